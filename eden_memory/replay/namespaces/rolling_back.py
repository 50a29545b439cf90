"""Make the former memory live again, and apply there what people changed meanwhile."""

from dataclasses import dataclass

from eden_memory.placement import Placement
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.switching import rollback
from eden_memory.replay.user_edits.reapplying import carry
from eden_memory.replay.user_edits.user_edits import AppliedEdits


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The memories that were live, and are; `edits` None: none had to be applied, or `failed` says why none were."""

    was: Placement
    now: Placement
    edits: AppliedEdits | None = None
    failed: Exception | None = None


async def roll_back(at: Installation) -> RolledBack:
    """Roll back; errors as of :func:`rollback`. User edits that could not be applied do not undo it."""
    live = await at.live.read()
    was, now = await rollback(at)
    if live is None or was.pipeline == now.pipeline:
        return RolledBack(was, now)  # one pipeline: both had every command
    try:
        return RolledBack(was, now, edits=await carry(at, was, now, live.switched_at))
    except Exception as error:  # noqa: BLE001 - the edge of a command: what it was called for is done
        return RolledBack(was, now, failed=error)
