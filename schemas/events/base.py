"""The base of every event: a closed, immutable record that knows its key, its order and its subject."""

from abc import abstractmethod
from datetime import datetime
from typing import Any, ClassVar

from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.fields import EventId, Ordinal, Part


class Event(Part):
    """One record of a topic.

    Written closed (an unknown field is an error), read tolerantly (an unknown field is ignored). `NAME` is
    the class's name and with `VERSION` makes the `ce_type`.
    """

    NAME: ClassVar[str]
    VERSION: ClassVar[int] = 1

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.NAME = cls.__name__

    @abstractmethod
    def key(self) -> str:
        """The Kafka key: what the record *is*; compaction keeps one of each."""

    @abstractmethod
    def ordering_key(self) -> str:
        """The key of what it must stay in order with: partition = murmur2 of it."""

    @abstractmethod
    def subject(self) -> str:
        """The entity it is about (`ce_subject`)."""

    def envelope(
        self, identity: str, source: str, time: datetime, traceparent: str | None = None
    ) -> Envelope:
        """The metadata of its record: `identity` is `ce_id`, `source` who writes it, `time` `ce_time`."""
        return Envelope(
            id=identity,
            name=self.NAME,
            version=self.VERSION,
            source=source,
            time=time,
            subject=self.subject(),
            ordering_key=self.ordering_key(),
            traceparent=traceparent,
        )

    def json_bytes(self) -> bytes:
        """The record's value: compact JSON, fields in declared order, nulls spelled out."""
        return self.model_dump_json().encode()


class Derived(Part):
    """What every record that a stage derives says about its making."""

    cause: EventId
    """`ce_id` of the event that led to it."""
    attempt: Ordinal = 1
    """1, and one more whenever a dead letter was sent again."""
