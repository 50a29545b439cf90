"""`eden forget … --compact`: report what Kafka's segments hold of what is forgotten, and have it removed now."""

import asyncio
from collections.abc import Sequence

import typer

from eden_memory.receipts.compact_forgotten import SegmentsHold, compact_forgotten
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings


def compact(settings: Settings) -> None:
    """Compact, and print what the segments hold before, in between and at the end."""

    async def work() -> int:
        async with installation(settings) as at:
            return sum(held.records for held in await compact_forgotten(at, _report))

    gone = asyncio.run(work())
    typer.echo(f"{gone:,} ended records are removed from the disks of Kafka.")


def _report(held: Sequence[SegmentsHold]) -> None:
    for segments in held:
        typer.echo(
            f"{segments.topic}: its segments hold {segments.records:,} ended records, without --compact until "
            f"{segments.until:%Y-%m-%d %H:%M} UTC"
        )
