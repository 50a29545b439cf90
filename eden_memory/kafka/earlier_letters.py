"""Dead letters of earlier versions, whose key is their record's: of those of one key, compaction keeps the newest."""

# pyright: reportPrivateImportUsage=false

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from eden_memory.errors import EdenError
from eden_memory.kafka.outgoing import DEAD_HEADERS, NULLS, ORIGINAL_KEY

Headers = Sequence[tuple[str, bytes | None]]
GROUP = DEAD_HEADERS + "group"
"""The header of a stage's letters; the tailer's have the key that they always had."""
READ_SECONDS = 30.0
TOGETHER = 1_000
WAY_OUT = (
    "it holds {count} dead letters of an earlier version, of which compaction would lose those of one key. "
    "Run `eden dead list`, retry or drop them (`eden dead retry`, `eden dead drop`) and run `eden topics apply` "
    "again, or do so when they have aged out"
)


@dataclass(frozen=True, slots=True)
class PlacedLetter:
    """A letter of a dead-letter topic; `id` names its place."""

    id: str
    key: bytes | None
    headers: Headers

    @property
    def has_own_key(self) -> bool:
        """Whether its key is that of no other letter, or it is none of a stage's."""
        names = {name for name, _ in self.headers}
        return GROUP not in names or not names.isdisjoint({ORIGINAL_KEY, NULLS})


def left_over(letters: Iterable[PlacedLetter], settled: Collection[str]) -> int:
    """Count the letters without a key of their own that nobody settled; copies of a letter count as one letter."""
    copies = dict[tuple[bytes | None, tuple[Any, ...]], bool]()
    for letter in letters:
        if not letter.has_own_key:
            named = letter.key, tuple(letter.headers)
            copies[named] = copies.get(named, False) or letter.id in settled
    return sum(not is_settled for is_settled in copies.values())


def placed_letters(config: Mapping[str, Any], topic: str, partitions: int) -> Iterator[PlacedLetter]:
    """Read all records of a topic, in no group; EdenError if Kafka refuses or gives nothing for a while."""
    options: dict[str, Any] = {
        **config,
        "group.id": "eden-topics",  # the library wants one; nothing is committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
        "log_level": 0,
    }
    consumer: Any = Consumer(options)
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        yield from _to_the_end(consumer, topic, set(range(partitions)))
    except KafkaException as error:
        raise _unread(topic, error) from error
    finally:
        consumer.close()


def _to_the_end(consumer: Any, topic: str, unread: set[int]) -> Iterator[PlacedLetter]:
    until = monotonic() + READ_SECONDS
    while unread:
        for message in consumer.consume(TOGETHER, timeout=1.0):
            until = monotonic() + READ_SECONDS
            if (error := message.error()) is None:
                place = f"{topic}/{message.partition()}@{message.offset()}"
                yield PlacedLetter(place, message.key(), message.headers() or ())
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                raise KafkaException(error)
        if monotonic() > until:
            raise _unread(topic, f"no answer within {READ_SECONDS:.0f} s")


def _unread(topic: str, reason: object) -> EdenError:
    what = f"{topic} cannot be read, so nobody knows whether it may be compacted: {reason}"
    return EdenError(what, "Check that this user may read it (`eden doctor` prints the ACLs).")
