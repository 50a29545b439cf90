"""Find dead letters, have them tried again, drop them."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from eden_memory.errors import EdenError, Invalid, NotFound
from eden_memory.mongo.ids import from_json
from eden_memory.replay.installation import Installation
from eden_memory.schemas.documents import DeadLetter, InboxReread
from eden_memory.stages.controls import MongoControls
from eden_memory.stages.dead_letter_store import DeadLetterFilter
from eden_memory.stages.dead_letters import record_of
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.partition_count_store import PartitionCounts

TAILER = "tailer"
TOGETHER = 1_000
Retried = Literal["asked", "asked before", "published", "incomplete", "without a document"]


class DeadLetterHandling:
    """Finds, retries and drops the dead letters of one namespace."""

    def __init__(self, at: Installation) -> None:
        placement = at.settings.placement
        self._at, self._topics, self._letters = at, at.topics(placement), at.letters
        self._programs = [placement.group(program) for program in self._topics.file.programs]

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

    def found(self, wanted: DeadLetterFilter, *, settled: bool = False) -> AsyncIterator[DeadLetter]:
        """Yield dead letters without their values, oldest first; settled ones only on request."""
        return self._letters.found(self._programs, wanted, settled=settled)

    async def chosen(self, wanted: DeadLetterFilter, ids: Collection[str] | None) -> list[DeadLetter]:
        """Return unsettled dead letters, only those of `ids` if there are any; raises NotFound if one is missing."""
        if ids:
            wanted = replace(wanted, ids=tuple(ids))
        found = [letter async for letter in self.found(wanted)]
        missing = set(ids or ()) - {letter.id for letter in found}
        if missing:
            raise NotFound(f"unknown or settled: {', '.join(sorted(missing))}", "See `eden dead list --all`.")
        return found

    async def at(self, name: str) -> DeadLetter:
        """Return a dead letter whole; raises NotFound if there is none of this id."""
        letter = await self._letters.get(name)
        if letter is None or letter.program not in self._programs:
            what = f"there is no dead letter {name}"
            raise NotFound(what, "`eden dead list --all` shows all that are kept.")
        return letter

    async def retry(self, letters: Sequence[DeadLetter], asked_by: str) -> list[Retried]:
        """Have letters tried again, and return what became of each.

        Their stages are asked to decide them anew, and the tailer to read its documents again. An event that the
        broker refused is published.
        """
        inbox = self._at.source[self._at.settings.mongodb.prefix + InboxReread.COLLECTION]
        reading = {letter.id: found for letter in letters if (found := self._document(letter)) is not None}
        for start in range(0, len(reading), TOGETHER):
            documents = [document["_id"] for document in list(reading.values())[start : start + TOGETHER]]
            request = {"kind": "reread", "documents": documents, "asked_by": asked_by}
            await inbox.insert_one(request)
        results: list[Retried] = [
            await self._retry(letter, reading=letter.id in reading) for letter in letters
        ]
        await MongoControls(self._at.database, self._at.settings.names).tell()
        return results

    async def _retry(self, letter: DeadLetter, *, reading: bool) -> Retried:
        if letter.stage == TAILER:
            return "asked" if reading else "without a document"
        if letter.cut is not None:
            return "incomplete"
        if letter.partition is None and letter.state == "dead":
            return await self._publish(await self.at(letter.id))
        return "asked" if await self._letters.ask(letter) else "asked before"

    def _document(self, letter: DeadLetter) -> dict[str, Any] | None:
        """Return the `_id` of the message that a letter of the tailer's is about; None if it cannot be read again."""
        if letter.collection == self._at.settings.messages.collection:
            with suppress(ValueError, TypeError):
                found = from_json(letter.key or b"")
                return found if "_id" in found else None
        return None

    async def drop(self, letter: DeadLetter) -> None:
        """Take a dead letter off the list, and erase its value."""
        await self._letters.settle([letter.id], "dropped")

    async def _publish(self, letter: DeadLetter) -> Retried:
        from eden_memory.kafka.error_kinds import UNPUBLISHABLE  # noqa: PLC0415 - Kafka's client, rarely needed
        from eden_memory.stages.publishing import Publisher, new_producer  # noqa: PLC0415

        record = record_of(letter)
        event = StoredRecord(record.topic, record.ordering_key, record.key, record.value, record.headers)
        used = PartitionCounts(self._at.database, self._at.settings.names).used
        publisher = Publisher(lambda: new_producer(self._at.kafka), used)
        try:
            await publisher.start()
            await publisher.publish([event])
        except UNPUBLISHABLE as error:
            what = f"{event.topic} still takes no event of {event.size:,} bytes"
            hint = "Raise its `max.message.bytes` (and the broker's `message.max.bytes`), then try again."
            raise EdenError(what, hint) from error
        finally:
            await publisher.stop()
        await self._letters.settle([letter.id], "published")
        return "published"
