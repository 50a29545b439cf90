"""Dead letters of documents that the tailer could not use, for those who read the documents again."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from eden_memory.stages.dead_letter_reading import DeadLetterFilter, dead_letters

SETTLED = frozenset({"published", "dropped", "dead again"})


@dataclass(frozen=True, slots=True)
class RefusedDocuments:
    """Of one collection; `states` and `published` reach what is noted of dead letters."""

    client: dict[str, Any]
    topic: str
    """The dead-letter topic, by its whole name."""
    collection: str
    states: Callable[[], Awaitable[Mapping[str, str]]]
    published: Callable[[str], Awaitable[None]]

    async def waiting(self) -> Mapping[bytes, Collection[str]]:
        """Ids of the letters that nobody has settled, by their key."""
        states, found = await self.states(), defaultdict[bytes, list[str]](list)
        async for letter in dead_letters(self.client, [self.topic], DeadLetterFilter(stage="tailer")):
            refused = letter.why.get("collection") == self.collection
            if refused and states.get(letter.id) not in SETTLED:
                found[letter.record.key or b""].append(letter.id)
        return found

    async def settle(self, letters: Collection[str]) -> None:
        """Note that these documents are recorded now."""
        for one in letters:
            await self.published(one)
