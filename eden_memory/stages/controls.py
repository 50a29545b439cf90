"""The collections `controls` and `groups`: pauses, and what each consumer group committed."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pymongo import UpdateOne
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from eden_memory.errors import EdenError, describe
from eden_memory.logs import LibraryLogger
from eden_memory.names import Names
from eden_memory.tasks import first_of

log = LibraryLogger()

PauseKind = Literal["hand", "dead-letters", "outage"]
Document = dict[str, Any]
AGAIN_SECONDS = 2.0
"""How soon a change stream that broke is opened again, and how often everything is read without one."""
REPORTED_SECONDS = 90.0
"""Seconds after which a report of trouble that is not renewed is out of date."""
AWAIT_MS = 10_000
"""So long the server waits for a change before it says that there is none."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a stage stands still; who asked, if people did."""

    stage: str
    kind: PauseKind
    reason: str
    at: datetime


class MongoControls:
    """The collection `controls`: documents of type `pause` and `trouble`, one of each subject."""

    def __init__(self, database: AsyncDatabase[Document], names: Names) -> None:
        self._controls = database[names["controls"]]
        self._listening: dict[asyncio.Event, None] = {}
        self._watching: asyncio.Task[None] | None = None

    async def pauses(self) -> Sequence[Pause]:
        """All pauses in force."""
        found = self._controls.find({"type": "pause"})
        return [Pause(row["stage"], row["kind"], row["reason"], row["at"]) async for row in found]

    async def pause(self, pause: Pause) -> None:
        """Put a pause in force; the reason of one that is there already stays."""
        first = {"type": "pause", "stage": pause.stage, "kind": pause.kind, "reason": pause.reason}
        await self._controls.update_one(
            {"_id": f"pause:{pause.stage}:{pause.kind}"},
            {"$setOnInsert": {**first, "at": pause.at}},
            upsert=True,
        )

    async def resume(self, stage: str, kind: PauseKind | None = None) -> int:
        """Lift the pauses of a stage (of one kind); how many there were."""
        which: Document = {"type": "pause", "stage": stage}
        if kind is not None:
            which["kind"] = kind
        return (await self._controls.delete_many(which)).deleted_count

    async def report(self, stage: str, trouble: str | None) -> None:
        """Say what keeps a stage, or some of its records, from going on; None: nothing does."""
        name = {"_id": f"trouble:{stage}"}
        if trouble is None:
            await self._controls.delete_one(name)
            return
        fields = {"type": "trouble", "stage": stage, "reason": trouble}
        change: Document = {"$set": fields, "$currentDate": {"at": True}}  # MongoDB's clock, as whoever reads
        await self._controls.update_one(name, change, upsert=True)

    async def troubles(self) -> Sequence[tuple[str, str]]:
        """Stage and reason of what was reported lately; a process that was killed takes nothing back."""
        lately = {"$gte": ["$at", {"$subtract": ["$$NOW", int(REPORTED_SECONDS * 1_000)]}]}
        found = self._controls.find({"type": "trouble", "$expr": lately}).sort("_id")
        return [(row["stage"], row["reason"]) async for row in found]

    async def tell(self) -> None:
        """Have all who listen look again: something is asked of them that stands elsewhere."""
        change: Document = {"$set": {"type": "told"}, "$currentDate": {"at": True}}
        await self._controls.update_one({"_id": "told"}, change, upsert=True)

    async def changes(self) -> AsyncIterator[None]:
        """Yields at the start and at each change, and again whenever the server could not be watched.

        All who listen in a process share one change stream.
        """
        changed = asyncio.Event()
        self._listening[changed] = None
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        watching = self._watching
        try:
            while True:
                yield None
                await first_of(changed, watching)
                changed.clear()
                if watching.done():
                    watching.result()
        finally:
            del self._listening[changed]
            if not self._listening:
                self._watching.cancel()
                self._watching = None

    async def _watch(self) -> None:
        """While anybody listens. The driver may lose a cancellation that arrives together with an answer."""
        while self._listening:
            try:
                async with await self._controls.watch(max_await_time_ms=AWAIT_MS) as stream:
                    self._tell()
                    while self._listening and stream.alive:
                        if await stream.try_next() is not None:
                            self._tell()
            except Exception as error:  # noqa: BLE001 - pauses must reach us whatever broke the stream
                if not isinstance(error, PyMongoError):
                    log.warning("controls could not be watched", error=describe(error))
                await asyncio.sleep(AGAIN_SECONDS)

    def _tell(self) -> None:
        for changed in self._listening:
            changed.set()


class MongoGroupNotes:
    """The collection `groups`: which partitions each consumer group has ever committed, and how far some are.

    A group whose stage is `noted` has a document for each partition: the highest offset that it was about to commit.
    """

    def __init__(self, database: AsyncDatabase[Document], names: Names) -> None:
        self._groups = database.get_collection(
            names["groups"], write_concern=WriteConcern("majority", j=True)
        )

    async def committed(self, group: str) -> Collection[tuple[str, int]]:
        """Topic and partition of every partition that the group committed."""
        found = await self._groups.find_one({"_id": group})
        return {(topic, number) for topic, number in (found or {}).get("partitions", ())}

    async def note(self, group: str, partitions: Collection[tuple[str, int]]) -> None:
        """Remember that the group committed these."""
        pairs = [[topic, number] for topic, number in partitions]
        await self._groups.update_one(
            {"_id": group}, {"$addToSet": {"partitions": {"$each": pairs}}}, upsert=True
        )

    async def reached(self, group: str) -> dict[tuple[str, int], int]:
        """Return the noted offset of each partition."""
        found = self._groups.find({"group": group})
        return {(row["topic"], row["partition"]): row["offset"] async for row in found}

    async def note_reached(
        self, group: str, offsets: Mapping[tuple[str, int], int], before: Mapping[tuple[str, int], int]
    ) -> None:
        """Note offsets that are committed next; an EdenError where less is noted than `before`.

        Whoever wrote `before` finds it again, unless a backup was restored meanwhile.
        """
        writes = [_reached(group, place, offset, before.get(place)) for place, offset in offsets.items()]
        if not writes:
            return
        result = await self._groups.bulk_write(writes, ordered=False)
        if result.matched_count + result.upserted_count < len(writes):
            raise EdenError(
                f"MongoDB has lost what the group {group} noted there: a backup was restored meanwhile",
                "Stop every process, and start `eden run` again; it forgets what was forgotten since the backup.",
            )

    async def heed_topic(self, group: str, topic: str, identity: str) -> None:
        """Drop a group's noted offsets if another topic of this name has taken the place of the one they are of."""
        place = {"_id": f"{group}/{topic}"}
        known = await self._groups.find_one(place) or {}
        if known.get("identity") == identity:
            return
        if known:
            await self._groups.delete_many({"group": group, "topic": topic})
        await self._groups.update_one(place, {"$set": {"identity": identity}}, upsert=True)

    async def forget(self, group: str) -> bool:
        """Let a group that lost its offsets start from the beginning; False: it is not known here."""
        await self.forget_reached(group)
        return (await self._groups.delete_one({"_id": group})).deleted_count > 0

    async def forget_reached(self, group: str | None = None) -> None:
        """Remove the noted offsets of a group, or of all: MongoDB counts as older than Kafka."""
        await self._groups.delete_many({"group": {"$exists": True} if group is None else group})


def _reached(group: str, place: tuple[str, int], offset: int, least: int | None) -> UpdateOne:
    topic, number = place
    query: Document = {"_id": f"{group}/{topic}/{number}"}
    if least is not None:
        query["offset"] = {"$gte": least}
    fields = {"group": group, "topic": topic, "partition": number}
    return UpdateOne(query, {"$set": fields, "$max": {"offset": offset}}, upsert=least is None)
