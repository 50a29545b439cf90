"""`eden rebuild NAME`: fill a namespace from the memory topics, compare it with live memory, and make it live."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from eden_memory.errors import EdenError
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.switching import switch
from eden_memory.replay.rebuild.document_comparing import (
    ComparedMemories,
    DocumentDifference,
    MemoryComparison,
)
from eden_memory.replay.rebuild.namespace_fill import NamespaceFill, OnProgress, filling

SHOWN = 50
ROUNDS = 20
STABLE = 3
"""So many comparisons in a row must find the same differences before they are believed."""
PAUSE_SECONDS = LOOK_SECONDS = 1.0


@dataclass(slots=True)
class NamespaceRebuild:
    """One `eden rebuild NAME`; `say` gets lines for people, `on_progress` the newest figures."""

    name: str
    say: Callable[[str], None]
    on_progress: OnProgress
    follow: bool = False
    compared: int | None = None
    """How many differences are listed; None: nothing is compared."""
    switch: bool = False
    accept: bool = False
    """Switch in spite of differences, or uncompared."""
    verdict: "RebuildVerdict | None" = None

    async def run(self, at: Installation) -> None:
        """Fill, compare and switch; EdenError once somebody drops the namespace or makes it live."""

        async def once_filled() -> None:
            counts = await at.namespaces.counts(fill.namespace.prefix)
            listed = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
            self.say(f"{self.name} has all that was there: {listed}")
            if self.compared is not None:
                await self._compare(at, fill, self.compared)
            if self.switch and (self.accept or self.verdict is None or self.verdict.equal):
                was = await switch(at, self.name)
                self.say(f"{self.name} is live now, in the place of {was.memory}")
            elif self.switch:
                self.say("nothing was switched; --accept makes it live all the same")

        async with filling(at, self.name, self.on_progress) as fill:
            await fill.run(once_filled, follow=self.follow and not self.switch, guard=self._until_taken(at))

    async def _compare(self, at: Installation, fill: NamespaceFill, most: int) -> None:
        self.verdict = verdict = await verify(at, fill, most)
        for line in verdict.lines():
            self.say(line)
        if verdict.equal:
            await at.namespaces.verified(self.name, datetime.now(UTC))

    async def _until_taken(self, at: Installation) -> None:
        """Watch whether somebody drops the namespace, or makes it live: it has a writer then."""
        while True:
            found, live = await at.namespaces.get(self.name), await at.live.placement()
            if found is None or found.state == "dropped":
                raise EdenError(f"{self.name} is being dropped")
            if live.memory == self.name and not self.switch:
                raise EdenError(f"{self.name} was made live: `eden run` goes on with it")
            await asyncio.sleep(LOOK_SECONDS)


@dataclass(frozen=True, slots=True)
class RebuildVerdict:
    """A comparison, and how many of its differences are listed."""

    compared: ComparedMemories
    most: int

    @property
    def differences(self) -> list[DocumentDifference]:
        """The first differences, by collection and id."""
        return [found for _, found in sorted(self.compared.differing.items())[: self.most]]

    @property
    def differing(self) -> int:
        """The number of documents that differ."""
        return len(self.compared.differing) + self.compared.beyond.total()

    @property
    def equal(self) -> bool:
        """Whether all documents are the same."""
        return self.differing == 0

    def lines(self) -> list[str]:
        """Return the documents that were compared, those that differ, and the verdict, for people."""
        differ = Counter(name for name, _ in self.compared.differing) + self.compared.beyond
        lines = [
            f"{name}: {count:,} compared, " + (f"{differ[name]:,} DIFFERENT" if differ[name] else "equal")
            for name, count in self.compared.counts.items()
        ]
        lines += map(str, self.differences)
        if (more := self.differing - len(self.differences)) > 0:
            lines.append(f"and {more:,} more")
        return [*lines, "equal to live" if self.equal else f"{self.differing:,} documents differ from live"]


async def verify(at: Installation, fill: NamespaceFill, most: int = SHOWN) -> RebuildVerdict:
    """Compare everything, then the differences again and again, each time with what was published meanwhile."""
    comparison = MemoryComparison(at.database, at.prefix, fill.namespace.prefix)
    compared = await comparison.whole()
    same = 0
    for _ in range(ROUNDS):
        if not compared.differing or same == STABLE:
            break
        await fill.up_to_now()
        await asyncio.sleep(PAUSE_SECONDS)
        same = 0 if await comparison.again(compared) else same + 1
    return RebuildVerdict(compared, most)
