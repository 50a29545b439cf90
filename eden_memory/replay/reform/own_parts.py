"""The parts that only a reform has: topics, streams, and the scopes that follow from its streams."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from eden_memory.kafka.topics import Topic, Topics, read_topics, topics_path
from eden_memory.names import Names
from eden_memory.placement import Placement
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.scopes import Scope
from eden_memory.scope_limits import limits_of
from eden_memory.settings import KafkaSettings

STREAMS = "streams"


class OwnTopics(Topics):
    """The topics of a namespace that are not shared, and their dead letters."""

    def __iter__(self) -> Iterator[Topic]:
        """Yield every topic as the broker should have it."""
        shared = {self.name(short) for short, topic in self.file.topics.items() if topic.shared}
        return (topic for topic in super().__iter__() if (topic.dead_of or topic.name) not in shared)


def own_topics(kafka: KafkaSettings, placement: Placement) -> OwnTopics:
    """Return the topics that only this placement has."""
    return OwnTopics(read_topics(topics_path()), kafka, placement)


@dataclass(frozen=True, slots=True)
class OwnStreams(Placement):
    """The placement of a reform with streams of its own, which count only while it is formed."""

    def names(self, prefix: str) -> Names:
        """Return the collections of any namespace, with its own streams."""
        return replace(Placement.names(self, prefix), own=frozenset({STREAMS}))


def with_streams(
    asked: FormationRequested, streams: Mapping[str, Mapping[str, Stream]]
) -> FormationRequested:
    """Return the request for the agent's shards in `streams`, without scopes that these switch off.

    Recorded windows name the scopes that there were. `streams`: by agent and label.
    """
    own = streams.get(asked.agent_id, {})
    active = [scope for scope in asked.scopes if scope.kind != "shard" and limits_of(scope, own).active]
    shards: list[Scope] = []
    if any(scope.kind in ("agent", "shard") for scope in asked.scopes):
        names = sorted(stream.shard for stream in own.values() if stream.shard is not None and stream.active)
        shards = [Scope.of_shard(asked.agent_id, name) for name in names]
    broad = [scope for scope in active if scope.kind == "agent"]
    scopes = (*broad, *shards, *(scope for scope in active if scope.kind != "agent"))
    return asked if scopes == asked.scopes else asked.model_copy(update={"scopes": scopes})
