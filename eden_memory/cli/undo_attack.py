"""`eden forget --caused-by KIND ID`: show all memory that an attack led to, remove it, and wait until it is gone."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import get_args

import typer

from eden_memory.cli.terminal import as_written, confirm
from eden_memory.errors import Invalid
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings
from eden_memory.unpoison.attack_rules import Attack, AttackPlan, CauseKind
from eden_memory.unpoison.attack_store import AttackUndo

SHOWN = 20
"""Memories of each kind that are listed one by one."""
WAIT_SECONDS = 60.0


def undo(settings: Settings, kind: str, name: str, by: str | None, *, yes: bool) -> None:
    """Show what changes, ask, and undo it; raises Invalid for a kind that is no cause."""
    if kind not in get_args(CauseKind):
        raise Invalid(f"--caused-by does not take {kind}", f"One of: {', '.join(get_args(CauseKind))}.")
    asyncio.run(_undo(settings, kind, name, by, yes=yes))  # pyright: ignore[reportArgumentType]


async def _undo(settings: Settings, kind: CauseKind, name: str, by: str | None, *, yes: bool) -> None:
    async with installation(settings) as at:
        work = AttackUndo(at)
        attack = await work.named(kind, name)
        plan = await work.plan(attack)
        for line in lines_of(plan):
            typer.echo(line)
        if not yes:
            confirm(f"Undo what the {kind} {name} led to, and forget it? This cannot be undone.")
        await _carry_out(work, attack, plan, by)


async def _carry_out(work: AttackUndo, attack: Attack, plan: AttackPlan, by: str | None) -> None:
    begun = time.monotonic()
    await work.ask(attack, plan, by)
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT_SECONDS):
            await work.finish(attack, plan, by)
        typer.echo(f"Undone in {time.monotonic() - begun:.1f} s.")
        return
    typer.echo(
        "Requested, but not finished. `eden run` continues with it; `eden status` shows whether it is running. "
        "Repeat the command to see what is left."
    )


def lines_of(plan: AttackPlan) -> Iterator[str]:
    """Yield what changes, for people: ids and versions, no texts."""
    if not plan:
        yield "No memory rests on it."
    yield from _list("facts are removed", [fact.fact_id for fact in plan.removed])
    yield from _list(
        "facts get back the text that other statements support",
        [f"{fact.fact_id}@{fact.version}" for fact, _ in plan.restored],
    )
    yield from _list(
        "facts that they contradicted become active again", [fact.fact_id for fact in plan.returning]
    )
    yield from _list("reflections are removed", [found.reflection_id for found in plan.reflections])
    earlier = [f"{blob.scope.key}@{blob.version}" for blob in plan.blobs if not blob.anew]
    anew = [f"{blob.scope.key}@{blob.version}" for blob in plan.blobs if blob.anew]
    yield from _list("blobs go back to an earlier version", earlier)
    yield from _list("blobs are consolidated again, each with one model call if a model is set", anew)


def _list(what: str, names: list[str]) -> Iterator[str]:
    if names:
        yield f"{len(names):,} {what}:"
        yield from (f"  {as_written(name)}" for name in names[:SHOWN])
    if len(names) > SHOWN:
        yield f"  … and {len(names) - SHOWN:,} more"
