"""`MemoryRouter`: handlers that take events of the memory topics, as a router of FastStream; tombstones, and the
newest version of each entity whatever the order in which records come.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Annotated, Any, Generic, Literal, NamedTuple, ParamSpec, TypeVar

from faststream import AckPolicy, BaseMiddleware, Depends
from faststream.exceptions import HandlerException, IgnoredException, SubscriberNotFound
from faststream.kafka import KafkaMessage, KafkaRouter, Topic
from faststream.kafka.annotations import KafkaMessage as InjectedMessage
from pydantic import AwareDatetime

from eden_memory.errors import describe
from eden_memory.kafka.topics import Topics, load_topics
from eden_memory.logs import LibraryLogger
from eden_memory.schemas.envelope import Envelope, EnvelopeError, rfc3339
from eden_memory.schemas.events import Event, SchemaViolation, decode
from eden_memory.schemas.fields import Part
from eden_memory.settings import Settings

DEAD = ".dead"
"""Behind a group's name: the topic of its dead letters, where the router names no other."""
DEAD_HEADERS = "__connect.errors."
"""Before the name of every header that says why a record is a dead letter."""
UNREADABLE = (EnvelopeError, SchemaViolation)
TEXT = 2_000
"""Characters of an error's text in a dead letter."""
BYTES = "application/octet-stream"
"""The content type of dead letters: as JSON, FastStream would fail on tombstones and unreadable records."""
log = LibraryLogger()
Publish = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a handler is called: `attempts` times, with pauses that double up to `most_seconds`.

    After an error of the types in `permanent` it is not called again. Later records wait meanwhile: keep the sum of
    the pauses under Kafka's `max.poll.interval.ms` (5 minutes), or another member of the group takes the partitions.
    """

    attempts: int = 5
    first_seconds: float = 0.5
    most_seconds: float = 30.0
    permanent: tuple[type[Exception], ...] = ()

    def pause(self, attempt: int) -> float:
        """Seconds to wait after the attempt of this number, from 1."""
        return min(self.first_seconds * 2 ** (attempt - 1), self.most_seconds)

    def is_last(self, attempt: int, error: Exception) -> bool:
        """Return whether the record becomes a dead letter after this attempt."""
        return attempt >= self.attempts or isinstance(error, (*UNREADABLE, *self.permanent))


@dataclass(frozen=True, slots=True)
class HandlerRetries:
    """FastStream's middleware: built for each record."""

    retries: Retries
    group: str
    publish: Publish
    """Publishes a dead letter, and returns when it is confirmed."""

    def __call__(self, msg: Any, /, *, context: Any) -> "RetriedRecord":
        """Return the middleware of one record."""
        return RetriedRecord(self, msg, context=context)


class RetriedRecord(BaseMiddleware):
    """One record on its way through a handler."""

    def __init__(self, around: HandlerRetries, msg: Any, /, *, context: Any) -> None:
        super().__init__(msg, context=context)
        self._around = around

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: Any) -> Any:
        """Call the handler until it succeeds, or publish the record as a dead letter."""
        retries, attempt = self._around.retries, 1
        while True:
            try:
                return await call_next(msg)
            except (HandlerException, IgnoredException):
                raise
            except Exception as error:  # noqa: BLE001 - any failure of a handler becomes a retry or a dead letter
                if retries.is_last(attempt, error):
                    await self._bury(msg, error, attempt)
                    return None
                log.warning(
                    "a handler failed and is tried again", attempt=attempt, error=type(error).__name__
                )
            await asyncio.sleep(retries.pause(attempt))
            attempt += 1

    async def after_processed(
        self, exc_type: type[BaseException] | None = None, exc_val: Any = None, exc_tb: Any = None
    ) -> bool | None:
        """Skip records that no handler wants."""
        return (
            True
            if isinstance(exc_val, SubscriberNotFound)
            else await super().after_processed(exc_type, exc_val, exc_tb)
        )

    async def _bury(self, msg: KafkaMessage, error: Exception, attempts: int) -> None:
        try:
            await self._around.publish(**dead_letter(msg, self._around.group, error, attempts))
        except Exception as failure:
            log.warning(
                "a dead letter could not be published: its record is read again", error=describe(failure)
            )
            await asyncio.sleep(self._around.retries.pause(attempts))
            raise


def dead_letter(msg: KafkaMessage, group: str, error: Exception, attempts: int) -> dict[str, Any]:
    """Return the original bytes and headers, and beside them, as Kafka Connect does, where the record stood and why.

    The text of an error is given for unreadable records only: a handler's error may hold what was said.
    """
    record: Any = msg.raw_message
    why = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "group": group,
        "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": str(error)[:TEXT] if isinstance(error, UNREADABLE) else "",
        "attempts": attempts,
        "time": rfc3339(datetime.now(UTC)),
    }
    headers = {name: text for name, text in msg.headers.items() if not name.startswith(DEAD_HEADERS)}
    added = {DEAD_HEADERS + name: str(value) for name, value in why.items()}
    return {
        "message": record.value,
        "key": record.key,
        "headers": {**headers, **added, "content-type": BYTES},
    }


P = ParamSpec("P")
R = TypeVar("R")
Start = Literal["earliest", "latest"]
Original = Callable[[Any], Awaitable[KafkaMessage]]
E = TypeVar("E", bound=Event)


class Tombstone(Part):
    """One version of an entity that was erased. Erase what you derived from it: someone asked to be forgotten."""

    id: str
    """`ce_id`."""
    event: str
    """The type that was erased: `FactChanged`."""
    key: str
    """The record's key, which names one version: `<fact id>@<version>`."""
    entity: str
    """The fact, reflection, scope or message."""
    scope: str
    """The memory scope or session it was in."""
    reason: str | None
    time: AwareDatetime

    @classmethod
    def of(cls, about: Envelope, key: bytes | None) -> "Tombstone":
        """Read it from a record's headers and key."""
        return cls(
            id=about.id,
            event=about.name,
            key=(key or b"").decode(errors="replace"),
            entity=about.subject,
            scope=about.scope or about.ordering_key,
            reason=about.reason,
            time=about.time,
        )


def about(message: InjectedMessage) -> Envelope:
    """Return a record's CloudEvents attributes; EnvelopeError if it has none."""
    record: Any = message.raw_message
    return Envelope.of_headers(record.headers)


About = Annotated[Envelope, Depends(about)]
"""As a handler's second argument: the record's CloudEvents attributes (`ce_id`, `ce_time`, `ce_source`, …)."""


class MemoryRouter(KafkaRouter):
    """Typed handlers in one consumer group: `broker.include_router(memory)`.

    Records of older versions arrive in the newest one. Of a topic's handlers, the first that matches takes the
    record; records that no handler wants are passed over. A record whose handler keeps failing, or that cannot be
    read, goes to the topic `dead_letters` (`<group>.dead`). `topics`: those of another namespace (`load_topics`).
    """

    def __init__(
        self,
        group: str,
        *,
        retries: Retries | None = None,
        dead_letters: str | None = None,
        start: Start = "earliest",
        topics: Topics | None = None,
        middlewares: Sequence[Any] = (),
        **router: Any,
    ) -> None:
        self.group = group
        self.start: Start = start
        self.topics = topics or load_topics(Settings().kafka)
        self._of_topic: dict[str, Any] = {}
        around = HandlerRetries(retries or Retries(), group, self._publish_dead)
        super().__init__(**router, middlewares=(*middlewares, around))
        self.dead_letters: Any = self.publisher(
            dead_letters or group + DEAD,
            title=f"{group}{DEAD}",
            description="Records that could not be read, or whose handler kept failing, unchanged, with the reason.",
        )

    def on(
        self, event: type[Event], *, scope: str | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorate an event's handler; `scope`: only scope keys (in `chat.messages`, session ids) like `user:*`."""
        return self._handler(event, scope, of_tombstones=False)

    def on_tombstone(
        self, event: type[Event], *, scope: str | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorate a handler of an event's tombstones: it takes a `Tombstone`."""
        return self._handler(event, scope, of_tombstones=True)

    def record(self, event: Event, *, erased: bool = False) -> dict[str, Any]:
        """Return an event (`erased`: its tombstone) as arguments of `broker.publish`: for tests of handlers."""
        envelope = event.envelope(f"test-{event.key()}", "test", datetime.now(UTC))
        return {
            "message": None if erased else event.json_bytes(),
            "topic": self.topics.topic_of(event.NAME),
            "key": event.key().encode(),
            "headers": {name: text.decode() for name, text in envelope.headers()},
        }

    def _handler(self, event: type[Event], scope: str | None, *, of_tombstones: bool) -> Any:
        def wanted(message: KafkaMessage) -> bool:
            return _fits(message, event.NAME, scope, of_tombstones=of_tombstones)

        return self._subscriber(self.topics.topic_of(event))(filter=wanted)

    def _subscriber(self, topic: str) -> Any:
        """Return the topic's one subscriber: two in a group would each read half of the partitions."""
        if topic not in self._of_topic:
            declaration = next(declared.declaration for declared in self.topics if declared.name == topic)
            self._of_topic[topic] = self.subscriber(
                Topic(topic, declare=False),  # FastStream would create one that is not compacted
                title=topic,
                group_id=self.group,
                auto_offset_reset=self.start,
                ack_policy=AckPolicy.NACK_ON_ERROR,
                parser=readable,
                decoder=decoded,
                description=declaration.description,
            )
        return self._of_topic[topic]

    async def _publish_dead(self, **letter: Any) -> None:
        await self.dead_letters.publish(**letter)


async def readable(record: Any, original: Original) -> KafkaMessage:
    """Parse a record whatever its headers hold: FastStream's own parser raises at one that has no text."""
    headers = [
        (name, (value or b"").decode(errors="backslashreplace").encode()) for name, value in record.headers
    ]
    message = await original(replace(record, headers=headers))
    message.raw_message = record
    return message


async def decoded(message: KafkaMessage) -> Event | Tombstone:
    """Return the event in its newest version, or its tombstone; EnvelopeError, SchemaViolation."""
    record: Any = message.raw_message
    attributes = about(message)
    if record.value is None:
        return Tombstone.of(attributes, record.key)
    return decode(attributes.name, attributes.version, record.value)


def _fits(message: KafkaMessage, event: str, scope: str | None, *, of_tombstones: bool) -> bool:
    """Return whether a handler takes a record: the topic's first handler also takes what cannot be read."""
    record: Any = message.raw_message
    try:
        attributes = about(message)
    except EnvelopeError:
        return True
    return (
        attributes.name == event
        and (record.value is None) == of_tombstones
        and (scope is None or any(fnmatchcase(key, scope) for key in attributes.scopes))
    )


class EntityVersion(NamedTuple):
    """One version of a fact, reflection or blob."""

    entity: str
    version: int


def version_of(record: Event | Tombstone) -> EntityVersion:
    """Return which version of which entity a record is: its key is `entity@version`, `entity` for the first one."""
    key = record.key if isinstance(record, Tombstone) else record.key()
    entity, _, version = key.rpartition("@")
    return EntityVersion(entity, int(version)) if entity and version.isdecimal() else EntityVersion(key, 1)


class NewestVersions(Generic[E]):
    """A view of `memory.facts`, `memory.reflections` or `memory.consolidations` in this process's memory.

    An entity's state is its highest version that is not erased; what is erased stays erased. A consumer with a
    database does the same there: it stores `version_of(event)` and writes only if the stored version is lower.
    """

    def __init__(self) -> None:
        self._versions: defaultdict[str, dict[int, E]] = defaultdict(dict)
        self._erased: set[EntityVersion] = set()

    def take(self, event: E) -> bool:
        """Add a record; return whether it changed its entity's state (False: a repeat, an older version, erased)."""
        found = version_of(event)
        if found in self._erased:
            return False
        before = self.get(found.entity)
        self._versions[found.entity].setdefault(found.version, event)
        return self.get(found.entity) is not before

    def erase(self, tombstone: Tombstone) -> bool:
        """Erase a version for good; return whether that changed its entity's state."""
        found = version_of(tombstone)
        before = self.get(found.entity)
        self._erased.add(found)
        self._versions.get(found.entity, {}).pop(found.version, None)
        return self.get(found.entity) is not before

    def get(self, entity: str) -> E | None:
        """Return the state of an entity, None if there is none or it was erased."""
        versions = self._versions.get(entity)
        return versions[max(versions)] if versions else None

    def __iter__(self) -> Iterator[E]:
        """Iterate over the states of all entities, retired ones too."""
        return (versions[max(versions)] for versions in self._versions.values() if versions)
