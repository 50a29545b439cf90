"""One consumer group membership: what is assigned, where reading starts, what may be committed.

Plain aiokafka (docs/decisions/kafka.md): reading starts where the group's own offsets say, or at the
beginning if it never had any; a lost offset is an error here, never `earliest`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from aiokafka.structs import ConsumerRecord

from eden_memory.errors import EdenError, describe
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.broken_clients import (
    close_consumer,
    closed,
    consumer_broken,
    heeding_group_errors,
    remove_dead_members,
    starting,
)
from eden_memory.kafka.connection import CLIENT_ID
from eden_memory.kafka.topic_reading import FETCHER_MS, let_fetches_wait, spare_heartbeats
from eden_memory.logs import LibraryLogger
from eden_memory.stages.controls import MongoGroupNotes
from eden_memory.stages.failure_decisions import Kind, classify, connection_lost, passes
from eden_memory.stages.lanes import AssignedPartition
from eden_memory.stages.patience import until_done
from eden_memory.tasks import naming_process

log = LibraryLogger()

HEARTBEAT_MS = 500
"""Rebalances are noticed by heartbeats; this is how long one waits for the slowest member."""
SESSION_MS = 10_000
FETCH_BYTES = 1_048_576
ERROR_PAUSE = 0.5
NO_PARTITION = -1
NOWHERE = TopicPartition("", NO_PARTITION)
"""A partition without records: polling it keeps a consumer's membership."""
POSITION_SECONDS = 0.5
LEAVE_SECONDS, LAST_SECONDS = 10.0, 1.0
"""Seconds for leaving a group, and for closing each part of the client if that was not enough."""

Fetched = Sequence["ConsumerRecord[bytes, bytes]"]


def new_consumer(kafka: KafkaArguments, group: str, topics: Sequence[str]) -> Any:
    """A member of a group: sticky, or by range if several topics are read side by side."""
    assignor: type[AbstractPartitionAssignor] = StickyPartitionAssignor
    if len(topics) > 1:
        assignor = RangePartitionAssignor
    named: dict[str, Any] = {**kafka, "client_id": naming_process(CLIENT_ID)}
    consumer: Any = AIOKafkaConsumer(
        **named,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_uncommitted",
        partition_assignment_strategy=(assignor,),
        heartbeat_interval_ms=HEARTBEAT_MS,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        max_partition_fetch_bytes=FETCH_BYTES,
        metadata_max_age_ms=60_000,
        consumer_timeout_ms=FETCHER_MS,
    )
    consumer._client.send = heeding_group_errors(consumer._client.send)
    return consumer


class Membership(ConsumerRebalanceListener):
    """The partitions that this member holds; `on_revoked` is called when it has to let go of all.

    `rest`: seconds between a fetch that brought little and the next one. `noted`: as Stage.noted.
    """

    def __init__(
        self,
        kafka: KafkaArguments,
        group: str,
        topics: Sequence[str],
        notes: MongoGroupNotes,
        on_revoked: Callable[[], None],
        on_assigned: Callable[[], None],
        *,
        rest: float = 0.0,
        noted: bool = False,
    ) -> None:
        self._kafka, self._rest = kafka, rest
        self._new = partial(new_consumer, kafka, group, topics)
        self._consumer: Any = None
        self._group = group
        self._topics = topics
        self._notes = notes
        self._noted: set[tuple[str, int]] = set()
        self._to_note: set[tuple[str, int]] = set()
        self._reached: dict[tuple[str, int], int] | None = {} if noted else None
        self._on_revoked = on_revoked
        self._on_assigned = on_assigned
        self._committed: dict[TopicPartition, int] = {}
        self._failure: Exception | None = None
        self.homes: dict[TopicPartition, AssignedPartition] = {}

    async def start(self) -> None:
        """Join the group; members that were killed on this machine leave it first."""
        await remove_dead_members(self._kafka, self._group)
        self._noted = set(await until_done(lambda: self._notes.committed(self._group)))
        await until_done(self._join)

    async def _join(self) -> None:
        self._consumer = self._new()
        let_fetches_wait(self._consumer, lambda: self.homes, self._rest)
        self._consumer.subscribe(topics=list(self._topics), listener=self)
        try:
            with starting():
                await self._consumer.start()
            spare_heartbeats(self._consumer, self._holds_all)
        except BaseException:
            await close_consumer(self._consumer)
            raise

    def _holds_all(self) -> bool:
        """Whether no other member of the group has a partition."""
        led = self._consumer._client.cluster.partitions_for_topic
        return all(
            TopicPartition(topic, number) in self.homes
            for topic in self._topics
            for number in led(topic) or (NO_PARTITION,)
        )

    async def leave(self, seconds: float = LEAVE_SECONDS) -> None:
        """Commit, let go and leave the group at once; the others take over without waiting for a timeout."""
        if self._consumer is None:
            return
        left = False
        try:
            left = await closed(self._leave, seconds)
        finally:
            if not left:
                log.warning("the group was not left as it should be", group=self._group)
                await close_consumer(self._consumer, LAST_SECONDS)

    async def _leave(self) -> None:
        await self._let_go()
        await self._consumer.stop()

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, revoked: Iterable[TopicPartition]
    ) -> None:
        """Commit finished records and release the partitions, without waiting for what is still running."""
        del revoked
        await self._let_go()

    async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, assigned: Iterable[TopicPartition]
    ) -> None:
        """Begin again at the group's offset of each partition, including those that were held before."""
        try:
            await self._begin(set(assigned))
        except Exception as error:  # noqa: BLE001 - aiokafka would log it and go on; `fetch` raises it
            self._failure = error
            return
        log.info("partitions assigned", group=self._group, partitions=_names(self.homes))
        self._on_assigned()

    async def fetch(
        self, seconds: float, most: int, held_back: Set[TopicPartition] = frozenset()
    ) -> Mapping[TopicPartition, Fetched]:
        """The next records by partition, of all but those held back; an EdenError if the group's offsets are lost.

        aiokafka throws away what it has fetched of a partition that is paused, and fetches it again. What it has
        fetched of a partition that is not asked for waits, and nothing more of that partition is fetched.
        """
        if self._failure is not None and classify(self._failure) is not Kind.AWAY:
            raise self._failure
        if self._failure is not None or consumer_broken(self._consumer):
            await self._rejoin()
        try:
            asked = self._asked(held_back) if held_back else ()
            return await self._consumer.getmany(*asked, timeout_ms=int(seconds * 1000), max_records=most)
        except NoOffsetForPartitionError:
            pass  # on_partitions_assigned says where to begin
        except OffsetOutOfRangeError as error:
            self._check_range(error.args[0])
        except (KafkaError, RuntimeError) as error:
            if classify(error) is not Kind.AWAY:
                raise
            self._failure = error if connection_lost(error) else None  # a repeat does not help
            log.warning("fetch failed, tried again", group=self._group, error=describe(error))
            await asyncio.sleep(ERROR_PAUSE)
        return {}

    async def _rejoin(self) -> None:
        """Release everything and join again with a new consumer."""
        log.warning("the consumer has broken down, joins again", group=self._group)
        self._drop()
        await close_consumer(self._consumer)
        self._failure = None
        await until_done(self._join)

    def _asked(self, held_back: Set[TopicPartition]) -> Sequence[TopicPartition]:
        """Return the partitions not held back; never none of them, which would ask for all."""
        return [tp for tp in self.homes if tp not in held_back] or [NOWHERE]

    async def commit(self) -> None:
        """Commit the contiguous prefix of finished offsets, for every partition that moved."""
        held = {tp: home for tp, home in self.homes.items() if not self._settled(tp, home)}
        positions = {tp: await self._position(tp, home) for tp, home in held.items() if not home.revoked}
        offsets: dict[TopicPartition, int] = {}
        for tp, position in positions.items():
            offset = held[tp].committable(position)
            if offset is not None and offset > self._committed.get(tp, -1) and not held[tp].revoked:
                offsets[tp] = offset
        if not offsets:
            return
        if not await self._note_reached({(tp.topic, tp.partition): offset for tp, offset in offsets.items()}):
            return
        try:
            await self._consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError) as error:
            log.info("not committed, the partitions move", group=self._group, error=describe(error))
            return
        except RuntimeError as error:
            if connection_lost(error):
                raise KafkaConnectionError(describe(error)) from error
            raise
        self._committed |= offsets
        await self._note({(tp.topic, tp.partition) for tp in offsets})

    def _settled(self, tp: TopicPartition, home: AssignedPartition) -> bool:
        """Whether the commit is at the partition's end as last reported: usually most are."""
        return home.count == 0 and tp in self._committed and self._committed[tp] == self._end(tp)

    def behind(self) -> int | None:
        """Offsets up to the ends that are not finished, as the broker last said; None: it has not said all ends."""
        held = [(home, self._end(tp), self._committed.get(tp, 0)) for tp, home in self.homes.items()]
        ends = [end for _, end, _ in held if end is not None]
        if len(ends) < len(held):
            return None
        reached = sum(max(home.committable() or 0, committed) for home, _, committed in held)
        return max(0, sum(ends) - reached)

    def _end(self, tp: TopicPartition) -> int | None:
        return self._consumer.highwater(tp) if tp in self._consumer.assignment() else None

    async def _position(self, tp: TopicPartition, home: AssignedPartition) -> int | None:
        """Return the consumer's position if it has one, without waiting."""
        if home.count or self._consumer.highwater(tp) is None:
            return None
        try:
            async with asyncio.timeout(POSITION_SECONDS):
                return await self._consumer.position(tp)
        except (TimeoutError, IllegalStateError):
            return None

    async def _note_reached(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Note offsets in MongoDB before Kafka has them: a MongoDB that has noted less was restored.

        False while MongoDB is away: they are committed later, and letting go waits for nothing.
        """
        if (before := self._reached) is None:
            return True
        try:
            await self._notes.note_reached(self._group, offsets, before)
        except Exception as error:
            if not passes(error):
                raise
            log.warning("not committed, MongoDB is away", group=self._group, error=describe(error))
            return False
        before |= {place: max(offset, before.get(place, 0)) for place, offset in offsets.items()}
        return True

    async def _note(self, partitions: set[tuple[str, int]]) -> None:
        self._to_note |= partitions - self._noted
        if not self._to_note:
            return
        try:
            await self._notes.note(self._group, self._to_note)
        except Exception as error:
            if not passes(error):
                raise
            log.warning("commit not noted yet", group=self._group, error=describe(error))
            return
        self._noted |= self._to_note
        self._to_note = set()

    async def _let_go(self) -> None:
        try:
            await self.commit()
        except (KafkaError, EdenError) as error:
            log.warning("not committed on leaving", group=self._group, error=describe(error))
        finally:
            self._drop()

    def _drop(self) -> None:
        """Forget all partitions that were held."""
        homes, self.homes = list(self.homes.values()), {}
        for home in homes:
            home.revoked = True
        if homes:
            self._on_revoked()

    async def _begin(self, assigned: set[TopicPartition]) -> None:
        """Read each partition from the group's offset; from the beginning if it never had one.

        The consumer may have read on already, so it is set back: nothing before `homes` is filled was taken.
        """
        offsets: dict[TopicPartition, int | None] = {
            tp: await self._consumer.committed(tp) for tp in assigned
        }
        restored = await self._restored(offsets)
        new = [tp for tp, offset in offsets.items() if offset is None]
        if new:
            noted = set(await until_done(lambda: self._notes.committed(self._group)))
            for tp in new:
                if (tp.topic, tp.partition) in noted:
                    offsets[tp] = await self._committed_since(tp)
            new = [tp for tp, offset in offsets.items() if offset is None]
        if restored:
            offsets |= dict.fromkeys(restored)
            new += restored
        if not assigned <= self._consumer.assignment():
            return  # the next rebalance has begun
        self.homes = {tp: AssignedPartition(tp.topic, tp.partition) for tp in assigned}
        self._committed = {tp: offset for tp, offset in offsets.items() if offset is not None}
        for tp, offset in self._committed.items():
            self._consumer.seek(tp, offset)
        if new:
            await self._consumer.seek_to_beginning(*new)

    async def _restored(self, offsets: Mapping[TopicPartition, int | None]) -> list[TopicPartition]:
        """Return the partitions of which Kafka knows more commits than MongoDB; the stage reads them again."""
        if self._reached is None:
            return []
        self._reached = found = await until_done(lambda: self._notes.reached(self._group))
        restored = [
            tp for tp, offset in offsets.items() if (offset or 0) > found.get((tp.topic, tp.partition), 0)
        ]
        if restored:
            log.warning(
                "MongoDB is older than Kafka, everything is read again",
                group=self._group,
                partitions=_names(restored),
            )
        return restored

    async def _committed_since(self, tp: TopicPartition) -> int:
        """Ask again after the note was read: an earlier member may have committed for the first time meanwhile."""
        offset: int | None = await self._consumer.committed(tp)
        if offset is None:
            raise _lost(self._group, tp, "the group has no offset any more")
        return offset

    def _check_range(self, offsets: Mapping[TopicPartition, int]) -> None:
        for tp, offset in offsets.items():
            raise _lost(self._group, tp, f"its offset {offset} is outside of what the broker holds")


def _lost(group: str, tp: TopicPartition, how: str) -> EdenError:
    return EdenError(
        f"the group {group} has lost its place in {tp.topic}, partition {tp.partition}: {how}",
        "Nothing is read from the beginning by itself, because that could repeat everything. "
        "If the topic was emptied on purpose, or repeating is what you want: "
        f"`eden groups restart {group}`; else set the group's offsets with Kafka's own tools.",
    )


def _names(homes: Iterable[TopicPartition]) -> str:
    """Return `topic 0 1 2` of each topic."""
    of_topics: dict[str, list[str]] = {}
    for tp in sorted(homes):
        of_topics.setdefault(tp.topic, []).append(str(tp.partition))
    return ", ".join(f"{topic} {' '.join(numbers)}" for topic, numbers in of_topics.items()) or "none"
