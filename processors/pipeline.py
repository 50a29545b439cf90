"""The table of the system: which stage does what, reads which events, publishes which, and how much at once.

A test holds it against topics.yaml. A new stage is a file beside this one, a row here, and a program there.
"""

from collections.abc import Mapping

from eden_memory.domain.stage import Handler, Stage
from schemas.events import (
    Forgotten,
    FormationAsked,
    FormationRequested,
    MessageRecorded,
    SessionEnded,
    Watermark,
)

FORMATION_TRIGGER = "formation-trigger"

NAMES = (FORMATION_TRIGGER,)
KEEP_THEIR_OWN_STATE = frozenset({FORMATION_TRIGGER})
"""Their documents hold state and outcome in one; they have no outcomes in the ledger."""


def stages(handlers: Mapping[str, Handler]) -> tuple[Stage, ...]:
    """The stages, in flow order; `handlers` has one for each of NAMES."""
    return (
        Stage(
            FORMATION_TRIGGER,
            handlers[FORMATION_TRIGGER],
            reads=(MessageRecorded, SessionEnded, FormationAsked, Watermark),
            writes=(FormationRequested, Forgotten),
            batch=1_000,
            decides=FORMATION_TRIGGER not in KEEP_THEIR_OWN_STATE,
        ),
    )
