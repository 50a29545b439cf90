"""Windows as recorded name the shards that there were: a reform with streams of its own has others. Pure."""

from collections.abc import Mapping, Sequence

from schemas.events import FormationRequested
from schemas.scopes import Scope


def with_shards(asked: FormationRequested, shards: Mapping[str, Sequence[str]]) -> FormationRequested:
    """The request with the shards of its agent (`shards`: by agent) in place of those that it names."""
    names = shards.get(asked.agent_id, ())
    scopes: list[Scope] = []
    for scope in asked.scopes:
        if scope.kind != "shard":
            scopes.append(scope)
        if scope.kind == "agent":
            scopes += [Scope.of_shard(asked.agent_id, name) for name in sorted(names)]
    return asked if tuple(scopes) == asked.scopes else asked.model_copy(update={"scopes": tuple(scopes)})
