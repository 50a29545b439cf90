"""Make another memory live, and apply there what people changed meanwhile in the former one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from eden_memory.error_text import describe
from eden_memory.placement import Placement
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.namespace_store import placed
from eden_memory.replay.namespaces.pending_edits import pending_edits
from eden_memory.replay.namespaces.switching import rollback, switch
from eden_memory.replay.user_edits.reapplying import carry
from eden_memory.replay.user_edits.user_edits import AppliedEdits
from eden_memory.schemas.scopes import Scope

PATIENCE_SECONDS = 3.0
"""How long a rollback waits for edits that are not carried out yet."""


@dataclass(frozen=True, slots=True)
class Switchover:
    """The memories that were live, and are; `edits` None: none had to be applied, or `failed` says why none were.

    `pending`: what kept edits from the memory that was live; empty for nothing.
    """

    was: Placement
    now: Placement
    edits: AppliedEdits | None = None
    failed: Exception | None = None
    pending: str = ""


async def switch_to_reform(
    at: Installation, name: str, reapplied: AppliedEdits, wanted: Callable[[Scope], bool], *, part: bool
) -> Switchover:
    """Make a reform live, with the edits that came after those that it has reapplied; errors as of `switch`.

    All edits of the `wanted` scopes are looked at again: what was asked for before may have been carried out after.
    """
    was = await switch(at, name, part=part)
    done = await _with_edits(at, was, await at.live.placement(), None, wanted)
    return done if done.edits is None else replace(done, edits=done.edits.without(reapplied))


async def roll_back(at: Installation) -> Switchover:
    """Roll back; errors as of :func:`rollback`. Edits that are not carried out in time do not keep it."""
    live, pending = await at.live.read(), ""
    if live is not None and live.previous is not None and live.previous.pipeline != live.pipeline:
        try:
            pending = await pending_edits(at, placed(live), PATIENCE_SECONDS)
        except Exception as error:  # noqa: BLE001 - a memory that does not work has to be left
            pending = f"what people changed last is not known: {describe(error)}"
    was, now = await rollback(at)
    if live is None or was.pipeline == now.pipeline:
        return Switchover(was, now)  # one pipeline: both had every command
    return replace(await _with_edits(at, was, now, live.switched_at), pending=pending)


async def _with_edits(
    at: Installation,
    was: Placement,
    now: Placement,
    since: datetime | None,
    wanted: Callable[[Scope], bool] = lambda _: True,
) -> Switchover:
    """Apply user edits; those that could not be applied do not undo the switch."""
    try:
        return Switchover(was, now, edits=await carry(at, was, now, since, wanted))
    except Exception as error:  # noqa: BLE001 - the edge of a command: what it was called for is done
        return Switchover(was, now, failed=error)
