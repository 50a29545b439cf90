"""Erase the texts of windows a week after facts and reflections have been found in them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.names import Names
from eden_memory.stages.codec import event_id
from eden_memory.stages.dead_letter_store import KEPT as LETTERS_KEPT

Row = dict[str, Any]
HELD: Row = {"erased_at": None}
"""Windows with texts; the index is over these alone."""
KEPT = timedelta(days=7)
"""After everything that reads them is done."""
FACTS, REFLECTIONS = "fact-extraction", "reflection-extraction"
TOGETHER = 500
WITH_TEXTS = ("messages", "before")
"""Lists of a window that hold texts."""


@dataclass(frozen=True, slots=True)
class Concluded:
    """How a stage ended its work on a window."""

    at: datetime
    dead: bool = False
    settled: bool = False
    """A dead letter that was tried again with success, or dropped."""

    def final(self, now: datetime) -> bool:
        """Tell whether the stage will not read the window again."""
        return not self.dead or self.settled or now - self.at >= LETTERS_KEPT


async def erase_window_texts(
    windows: AsyncCollection[Row], message_ids: Sequence[str], up_to: str | None = None
) -> None:
    """Erase the texts of messages in closed windows and before them; with `up_to`, of versions up to that one."""
    if not message_ids:
        return
    of = {} if up_to is None else {"one.version": {"$lte": up_to}}
    for part in WITH_TEXTS:
        await windows.update_many(
            {f"{part}.message_id": {"$in": message_ids}},
            {"$set": {f"{part}.$[one].text": None}},
            array_filters=[{"one.message_id": {"$in": message_ids}, **of}],
        )


def of_messages(message_ids: Sequence[str], up_to: str | None = None) -> Row:
    """Return the query for windows formed in sight of these messages; with `up_to`, of versions up to that one."""
    seen: Row = {"message_id": {"$in": message_ids}}
    if up_to is not None:
        seen["version"] = {"$lte": up_to}
    return {"$or": [{part: {"$elemMatch": seen}} for part in WITH_TEXTS]}


class WindowTextRetention:
    """A round of the janitor over the collections `windows` and `outcomes`.

    `is_settled`: whether the dead letter of a member, of a stage, was tried again with success, or dropped.
    """

    def __init__(
        self, database: AsyncDatabase[Row], names: Names, is_settled: Callable[[str, str], Awaitable[bool]]
    ) -> None:
        self._windows, self._outcomes = database[names["windows"]], database[names["outcomes"]]
        self._is_settled = is_settled

    async def round(self, now: datetime) -> int:
        """Note which windows are complete, erase those that were for long enough, and return how many."""
        after = ""
        while waiting := await self._incomplete(after, TOGETHER):
            members = {name: readers_of(name) for name in waiting}
            concluded = await self._concluded([member for pair in members.values() for member in pair])
            done = [
                name for name in waiting if complete([concluded.get(member) for member in members[name]], now)
            ]
            if done:
                await self._note_complete(done, now, now + KEPT)
            after = waiting[-1]
        return await self._erase(now)

    async def _incomplete(self, after: str, most: int) -> Sequence[str]:
        """Return requested formations that are not known to be complete, by id, from behind `after` on."""
        wanted: Row = {**HELD, "erase_after": None, "_id": {"$gt": after}, "requested": {"$ne": None}}
        rows = await self._windows.find(wanted, {"_id": 1}, sort={"_id": 1}, limit=most).to_list()
        return [row["_id"] for row in rows]

    async def _concluded(self, members: Sequence[str]) -> Mapping[str, Concluded]:
        """Return how the ledger's members (`<stage>:<event id>`) ended; those that have not are left out."""
        fields = {"members": 1, "at": 1, "dead": 1}
        found: dict[str, Concluded] = {}
        for row in await self._outcomes.find({"members": {"$in": list(members)}}, fields).to_list():
            dead = row.get("dead") is not None
            for member in set(row["members"]) & set(members):
                settled = dead and await self._is_settled(member, member.partition(":")[0])
                found[member] = Concluded(row["at"], dead=dead, settled=settled)
        return found

    async def _note_complete(self, formation_ids: Sequence[str], at: datetime, erase_after: datetime) -> None:
        """Note that nothing reads these any more."""
        change = {"$set": {"completed_at": at, "erase_after": erase_after}}
        await self._windows.update_many({"_id": {"$in": list(formation_ids)}}, change)

    async def _erase(self, now: datetime) -> int:
        """Erase the texts that are due by now; return of how many windows."""
        due: Row = {**HELD, "erase_after": {"$lte": now}}
        explained: Row = {**due, "before.0": {"$exists": True}}
        await self._windows.update_many(explained, {"$set": {"before.$[].text": None}})
        gone: Row = {"$set": {"messages.$[].text": None, "names": {}, "erased_at": now}}
        done = await self._windows.update_many(due, gone)
        return done.modified_count


def complete(stages: Sequence[Concluded | None], now: datetime) -> bool:
    """Tell whether all stages that read a window are done with it; None: a stage has not ended its work."""
    return all(stage is not None and stage.final(now) for stage in stages)


def readers_of(formation_id: str) -> tuple[str, str]:
    """Return the members of the ledger which say that a window was read for the last time.

    Fact extraction is known by the FormationRequested, reflection extraction by the FactsExtracted: the first event
    of what the former decided.
    """
    asked = f"formation/{formation_id}"
    return f"{FACTS}:{asked}", f"{REFLECTIONS}:{event_id(asked, FACTS, 0)}"
