"""`eden forget --caused-by KIND ID`: show all memory that an attack led to, remove it, and wait until it is gone."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import get_args

import typer

from eden_memory.cli.terminal import as_written, confirm, plain
from eden_memory.errors import Invalid
from eden_memory.receipts.receipt import written
from eden_memory.receipts.signing_key import signing_key, write_private
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings
from eden_memory.unpoison.attack_rules import (
    Attack,
    AttackPlan,
    CauseKind,
    Change,
    UndoPreview,
    preview_of,
    text_id,
)
from eden_memory.unpoison.attack_store import AttackUndo, receipt_of_undo

SHOWN = 20
"""Memories of each kind that are listed one by one."""
WAIT_SECONDS = 60.0
WORDS: Mapping[Change, str] = {
    "fact_removed": "facts to remove",
    "text_restored": "facts that get back the text that other statements support",
    "fact_reactivated": "facts that they contradicted or retired, to become active again",
    "reflection_removed": "reflections to remove",
    "blob_withdrawn": "blobs that go back to an earlier version",
    "blob_consolidated_again": "blobs to consolidate again, each with one model call if a model is set",
}


def undo(
    settings: Settings, kind: str, name: str, by: str | None, *, yes: bool, receipt: Path | None
) -> None:
    """Show what changes, ask, and undo it; raises Invalid for a kind that is no cause."""
    if kind not in get_args(CauseKind):
        raise Invalid(f"--caused-by does not take {kind}", f"One of: {', '.join(get_args(CauseKind))}.")
    if receipt is not None:
        signing_key(settings.receipts.key)  # without a key nothing is undone
    asyncio.run(_undo(settings, kind, name, by, yes=yes, receipt=receipt))  # pyright: ignore[reportArgumentType]


async def _undo(
    settings: Settings, kind: CauseKind, name: str, by: str | None, *, yes: bool, receipt: Path | None
) -> None:
    async with installation(settings) as at:
        work = AttackUndo(at)
        attack = await work.named(kind, name)
        plan = await work.plan(attack)
        for line in lines_of(preview_of(attack, plan), texts_of(plan)):
            typer.echo(line)
        if not yes:
            confirm(question(kind, name))
        request_id = await _carry_out(work, attack, plan, by)
        if receipt is not None:
            write_private(receipt, written(await receipt_of_undo(at, request_id)))
            typer.echo(f"{receipt} says what was erased, and when each store is clean.")


def question(kind: CauseKind, name: str) -> str:
    """Return what to ask before an undo; that of an audit forgets nothing."""
    if kind == "import" and name.removeprefix("import:").startswith("audit:"):
        return f"Make active again what {name} retired?"
    return f"Undo what the {kind} {name} led to, and forget it? This cannot be undone."


async def _carry_out(work: AttackUndo, attack: Attack, plan: AttackPlan, by: str | None) -> str:
    begun = time.monotonic()
    request_id = await work.ask(attack, plan, by)
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT_SECONDS):
            await work.finish(attack, plan, by)
        typer.echo(f"Undone in {time.monotonic() - begun:.1f} s.")
        return request_id
    typer.echo(
        "Requested, but not finished. `eden run` continues with it; `eden status` shows whether it is running. "
        "Repeat the command to see what is left."
    )
    return request_id


def texts_of(plan: AttackPlan) -> dict[str, str]:
    """Return the texts of a plan's facts and reflections, by the ids in its preview."""
    texts = {fact.fact_id: fact.text for fact in (*plan.removed, *plan.returning)}
    texts |= {found.reflection_id: found.text for found in plan.reflections}
    restored = {text_id(one.fact): f"{one.fact.text} → {one.text}" for one in plan.restored}
    return texts | restored


def lines_of(preview: UndoPreview, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield what changes, for people: ids and versions, with the texts that there are."""
    if not preview.changes:
        yield "No memory rests on it."
    for change in preview.changes:
        yield f"{WORDS[change.change]}: {change.count:,}"
        for name in change.ids[:SHOWN]:
            yield f"  {as_written(name)}  {plain(texts.get(name, ''))}".rstrip()
        if change.count > SHOWN:
            yield f"  … and {change.count - SHOWN:,} more"
