"""Erases the texts of windows once facts and reflections have been found in them for a week."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from eden_memory.stages.codec import event_id
from eden_memory.windows.window_text_rules import KEPT, Concluded, complete

FACTS, REFLECTIONS = "fact-extraction", "reflection-extraction"
TOGETHER = 500


class Texts(Protocol):
    """The texts of windows, and what the ledger says of them."""

    async def incomplete(self, after: str, most: int) -> Sequence[str]:
        """Formations that were asked for and are not known to be complete, by id, from behind `after` on."""
        ...

    async def concluded(self, members: Sequence[str]) -> Mapping[str, Concluded]:
        """How the ledger's members (`<stage>:<event id>`) ended; those that have not are left out."""
        ...

    async def note_complete(self, formation_ids: Sequence[str], at: datetime, erase_after: datetime) -> None:
        """Write down that nothing reads these any more."""
        ...

    async def erase(self, now: datetime) -> int:
        """Erase the texts that were to be erased by now; of how many windows."""
        ...


class WindowTexts:
    """A round of its own within the janitor's."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    async def round(self, now: datetime) -> int:
        """Note which windows are complete, and erase those that were for long enough; how many."""
        after = ""
        while waiting := await self._texts.incomplete(after, TOGETHER):
            members = {name: readers_of(name) for name in waiting}
            concluded = await self._texts.concluded([one for pair in members.values() for one in pair])
            done = [name for name in waiting if complete([concluded.get(one) for one in members[name]], now)]
            if done:
                await self._texts.note_complete(done, now, now + KEPT)
            after = waiting[-1]
        return await self._texts.erase(now)


def readers_of(formation_id: str) -> tuple[str, str]:
    """The members of the ledger that say that a window was read for the last time.

    Fact extraction is known by the FormationRequested, reflection extraction by the FactsExtracted: the first event
    of what the former decided.
    """
    asked = f"formation/{formation_id}"
    return f"{FACTS}:{asked}", f"{REFLECTIONS}:{event_id(asked, FACTS, 0)}"
