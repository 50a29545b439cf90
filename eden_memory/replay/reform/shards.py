"""Windows as recorded name the scopes that there were: a reform with streams of its own has others. Pure."""

from collections.abc import Mapping

from eden_memory.schemas.documents import Stream
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.scopes import Scope
from eden_memory.scope_limits import limits_of


def with_streams(
    asked: FormationRequested, streams: Mapping[str, Mapping[str, Stream]]
) -> FormationRequested:
    """The request with the shards of its agent in place of those that it names, without what is switched off.

    `streams`: by agent and label.
    """
    own = streams.get(asked.agent_id, {})
    active = [one for one in asked.scopes if one.kind != "shard" and limits_of(one, own).active]
    shards: list[Scope] = []
    if any(one.kind in ("agent", "shard") for one in asked.scopes):
        names = sorted(one.shard for one in own.values() if one.shard is not None and one.active)
        shards = [Scope.of_shard(asked.agent_id, name) for name in names]
    broad = [one for one in active if one.kind == "agent"]
    scopes = (*broad, *shards, *(one for one in active if one.kind != "agent"))
    return asked if scopes == asked.scopes else asked.model_copy(update={"scopes": scopes})
