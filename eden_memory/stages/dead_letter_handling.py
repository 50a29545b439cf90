"""Find dead letters, try them again, drop them."""

from collections.abc import AsyncIterator, Collection
from datetime import datetime
from typing import Any, Literal

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import EdenError, Invalid, NotFound
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.error_kinds import UNPUBLISHABLE
from eden_memory.kafka.topics import Topics
from eden_memory.names import Names
from eden_memory.stages.controls import DeadRetry, MongoControls
from eden_memory.stages.dead_letter_reading import (
    DeadLetter,
    DeadLetterFilter,
    OnProgress,
    dead_letter_at,
    dead_letters,
    no_progress,
)
from eden_memory.stages.letter_notes_store import LetterNotes
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.stages.publishing import Publisher, new_producer

SETTLED = ("published", "dropped", "dead again")
"""A retry that fails leaves a dead letter of its own, which stands for both."""
Retried = Literal["asked", "asked before", "published", "incomplete", "not of a stage"]


class DeadLetterHandling:
    """Finds, retries and drops the dead letters of one namespace."""

    def __init__(
        self,
        database: AsyncDatabase[dict[str, Any]],
        names: Names,
        topics: Topics,
        kafka: KafkaArguments,
        on_progress: OnProgress = no_progress,
    ) -> None:
        self._controls, self._ledger = MongoControls(database, names), MongoLedger(database, names)
        self._notes, self._used = LetterNotes(database, names), PartitionCounts(database, names).used
        self._topics, self._kafka, self._on_progress = topics, kafka, on_progress

    def filter(
        self,
        topic: str | None,
        stage: str | None,
        reason: str | None,
        since: datetime | None,
        until: datetime | None,
    ) -> DeadLetterFilter:
        """Return the filter of a topic's name without prefix, and the rest; raises Invalid for unknown names."""
        file = self._topics.file
        if topic is not None and topic not in file.topics:
            raise Invalid(f"there is no topic {topic}", f"Topics: {', '.join(file.topics)}.")
        if stage is not None and stage not in file.programs:
            raise Invalid(f"there is no stage {stage}", f"Stages: {', '.join(file.programs)}.")
        name = None if topic is None else self._topics.name(topic)
        return DeadLetterFilter(name, stage, reason, since, until)

    async def found(
        self, wanted: DeadLetterFilter, *, settled: bool = False
    ) -> AsyncIterator[tuple[DeadLetter, str]]:
        """Yield dead letters with their state; settled ones only on request."""
        states, ended = await self._controls.dead_states(), await self._notes.ended()
        async for letter in dead_letters(self._kafka, self._names(wanted.topic), wanted, self._on_progress):
            if letter.noted_as in ended:
                continue
            state = states.get(letter.id, "dead")
            if settled or state not in SETTLED:
                yield letter, state

    async def chosen(self, wanted: DeadLetterFilter, ids: Collection[str] | None) -> list[DeadLetter]:
        """Return unsettled dead letters, only those of `ids` if there are any; raises NotFound if one is missing."""
        found = [letter async for letter, _ in self.found(wanted) if not ids or letter.id in ids]
        missing = set(ids or ()) - {letter.id for letter in found}
        if missing:
            raise NotFound(f"unknown or settled: {', '.join(sorted(missing))}", "See `eden dead list --all`.")
        return found

    async def at(self, name: str) -> tuple[DeadLetter, str]:
        """Return a dead letter with its state; raises NotFound if there is none of this id."""
        letter = await dead_letter_at(self._kafka, self._names(), name)
        if letter is None or letter.noted_as in await self._notes.ended():
            what = f"there is no dead letter {name}"
            raise NotFound(what, "`eden dead list --all` shows all that are kept.")
        return letter, (await self._controls.dead_states()).get(name, "dead")

    async def retry(self, letter: DeadLetter) -> Retried:
        """Ask its stage to try a dead letter again, or publish the event that the broker refused."""
        request = letter.retry()
        if request is None:
            return "not of a stage"
        if letter.was_refused:
            return await self._publish(letter, request)
        return "asked" if await self._controls.ask_dead_retry(request) else "asked before"

    async def drop(self, letter: DeadLetter) -> None:
        """Take a dead letter off the list; its topic keeps it until it ages out."""
        await self._ledger.settled(letter.stage, letter.known_as, letter.record.topic)
        await self._controls.drop_dead(letter.id, letter.member)

    async def _publish(self, letter: DeadLetter, request: DeadRetry) -> Retried:
        if (event := letter.event()) is None:
            return "incomplete"
        publisher = Publisher(lambda: new_producer(self._kafka), self._used)
        try:
            await publisher.start()
            await publisher.publish([event])
        except UNPUBLISHABLE as error:
            what = f"{event.topic} still takes no event of {event.size:,} bytes"
            hint = "Raise its `max.message.bytes` (and the broker's `message.max.bytes`), then try again."
            raise EdenError(what, hint) from error
        finally:
            await publisher.stop()
        await self._controls.ask_dead_retry(request)
        for asked in await self._controls.dead_retries():
            if asked.id == letter.id:
                await self._controls.dead_retry_done(asked, "published")
        return "published"

    def _names(self, of: str | None = None) -> list[str]:
        return [
            topic.name for topic in self._topics if topic.dead_of is not None and of in (None, topic.dead_of)
        ]
