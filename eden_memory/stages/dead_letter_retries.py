"""Dead letters tried again inside the stage that failed, in the lane they belong to."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from eden_memory.kafka.broken_clients import close_consumer
from eden_memory.kafka.record import Record, as_record
from eden_memory.logs import LibraryLogger
from eden_memory.stages.controls import DeadRetry, MongoControls
from eden_memory.stages.dead_letters import known_as, original
from eden_memory.stages.finished_offsets import AssignedPartition
from eden_memory.stages.lanes import Queued
from eden_memory.stages.outcome import Ledger

log = LibraryLogger()
READ_SECONDS = 10.0


class DeadRetries:
    """Takes the retries asked of one stage whose original partition is held here."""

    def __init__(
        self,
        stage: str,
        client: dict[str, Any],
        controls: MongoControls,
        ledger: Ledger,
        queue: Callable[[Queued], None],
    ) -> None:
        self._stage = stage
        self._client = client
        self._controls = controls
        self._ledger = ledger
        self._queue = queue
        self._items: dict[Queued, DeadRetry] = {}
        self._under_way: dict[str, tuple[DeadRetry, AssignedPartition]] = {}

    async def look(self, homes: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Queue what is asked for and not under way in the current assignment; what fails is raised at the end."""
        self._items = {item: asked for item, asked in self._items.items() if not item.home.revoked}
        failed: Exception | None = None
        for asked in await self._controls.dead_retries():
            home = homes.get(TopicPartition(asked.topic, asked.partition))
            if asked.stage != self._stage or home is None or home.revoked or self._has(asked, home):
                continue
            self._under_way[asked.id] = (asked, home)
            try:
                await self._take(asked, home)
            except BaseException as error:
                self._under_way.pop(asked.id, None)
                if not isinstance(error, Exception):
                    raise
                failed = error
        if failed is not None:
            raise failed

    def _has(self, asked: DeadRetry, home: AssignedPartition) -> bool:
        under_way = self._under_way.get(asked.id)
        return under_way is not None and under_way[0].times == asked.times and under_way[1] is home

    async def finished(self, item: Queued, *, dead: bool) -> None:
        """Note how a retry ended; if its partition has moved nothing is published, and the next holder goes on."""
        asked = self._items.pop(item, None)
        if asked is not None and not item.home.revoked:
            self._under_way.pop(asked.id, None)
            await self._ledger.settled(self._stage, known_as(item.record), asked.dead_topic)
            await self._controls.dead_retry_done(asked, "dead again" if dead else "published")

    async def _take(self, asked: DeadRetry, home: AssignedPartition) -> None:
        tp = TopicPartition(asked.dead_topic, asked.dead_partition)
        letter = await read_at(self._client, tp, asked.dead_offset)
        record = None if letter is None else _original(letter)
        if record is None:
            log.error("dead letter is gone", stage=self._stage, id=asked.id)
            await self._controls.dead_retry_done(asked, "gone")
        elif not home.revoked:
            item = Queued(record, home, record.size, retry=_number(asked), times=asked.times)
            self._items[item] = asked
            self._queue(item)


def _original(letter: Record) -> Record | None:
    """Return the record of a dead letter; None if something else stands there, as after a topic was made anew."""
    try:
        return original(letter)
    except (KeyError, ValueError):
        return None


def _number(asked: DeadRetry) -> int:
    """A number of this retry alone, different also from those of dead letters that earlier retries left."""
    return int.from_bytes(blake2b(f"{asked.id}#{asked.times}".encode(), digest_size=6).digest()) or 1


async def read_at(client: dict[str, Any], tp: TopicPartition, offset: int) -> Record | None:
    """One record by its offset; None if the broker does not hold it any more, a TimeoutError if it does not say."""
    consumer: Any = AIOKafkaConsumer(**client, enable_auto_commit=False, auto_offset_reset="earliest")
    try:
        await consumer.start()
        consumer.assign([tp])
        first, end = (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]
        if not first <= offset < end:
            return None
        consumer.seek(tp, offset)
        fetched = await consumer.getmany(tp, timeout_ms=int(READ_SECONDS * 1000), max_records=1)
    finally:
        await close_consumer(consumer)
    for record in fetched.get(tp, []):
        return as_record(record) if record.offset == offset else None
    raise TimeoutError(f"{tp.topic}/{tp.partition}@{offset} was not read in {READ_SECONDS} s")
