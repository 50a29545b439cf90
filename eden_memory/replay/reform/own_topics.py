"""The topics that a namespace has of its own."""

from collections.abc import Iterator

from eden_memory.kafka.topics import Topic, Topics, read_topics, topics_path
from eden_memory.placement import Placement
from eden_memory.settings import KafkaSettings


class OwnTopics(Topics):
    """All but the shared ones, their dead letters with them."""

    def __iter__(self) -> Iterator[Topic]:
        """Every topic as the broker should have it."""
        shared = {self.name(short) for short, one in self.file.topics.items() if one.shared}
        return (one for one in super().__iter__() if (one.dead_of or one.name) not in shared)


def own_topics(kafka: KafkaSettings, placement: Placement) -> OwnTopics:
    """Those of a placement."""
    return OwnTopics(read_topics(topics_path()), kafka, placement)
