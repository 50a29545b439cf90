"""Whether a namespace says what live memory says, at a point that both have reached."""

import asyncio
from dataclasses import dataclass

from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.namespace_names import KINDS
from eden_memory.replay.rebuild.document_comparing_store import Compared, MongoComparing, Sums
from eden_memory.replay.rebuild.document_content import Difference
from eden_memory.replay.rebuild.rebuilding import Rebuilding

SHOWN = 50
ROUNDS = 20
STABLE = 3
"""So many looks one after the other must find the same differences before they are believed."""
PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found; `differences` are the first ones of `differing`, `scopes` the first that they are in."""

    compared: Compared
    differences: list[Difference]
    scopes: list[tuple[str, str, Sums]]

    @property
    def differing(self) -> int:
        """Documents that are not the same."""
        return len(self.compared.differing) + self.compared.beyond

    @property
    def equal(self) -> bool:
        """Whether all of them are."""
        return self.differing == 0

    def lines(self) -> list[str]:
        """Collection by collection, and the scopes in which something differs."""
        lines: list[str] = []
        for kind in KINDS:
            of = self.compared.of(kind.COLLECTION)
            scopes = self.compared.scopes[kind.COLLECTION]
            lines.append(f"{kind.COLLECTION}: {of.live.count:,} in {scopes:,} scopes, {of.live} {_equal(of)}")
            lines += [
                f"  {scope}: {sums.live.count:,}, {sums.live} {_equal(sums)}"
                for collection, scope, sums in self.scopes
                if collection == kind.COLLECTION
            ]
        return lines


def _equal(sums: Sums) -> str:
    return "equal" if sums.equal else f"DIFFERENT, rebuilt {sums.rebuilt.count:,} {sums.rebuilt}"


async def verify(at: Installation, work: Rebuilding, most: int = SHOWN) -> Verdict:
    """Compare everything, then what differs again and again, each time with all that was published meanwhile."""
    comparing = MongoComparing(at.database, at.prefix, work.namespace.prefix)
    compared = await comparing.whole()
    same = 0
    for _ in range(ROUNDS):
        if not compared.differing or same == STABLE:
            break
        await work.up_to_now()
        await asyncio.sleep(PAUSE_SECONDS)
        same = 0 if await comparing.again(compared) else same + 1
    return Verdict(compared, await comparing.named(compared, most), await comparing.scopes(compared, most))
