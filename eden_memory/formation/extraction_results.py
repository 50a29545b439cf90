"""Events that follow from an extraction, and those that replace a dead one's result for later stages. Pure."""

from collections.abc import Sequence

from eden_memory.schemas.events import FactsExtracted, FactsProposed, FormationRequested, SessionClosed
from eden_memory.schemas.events.formation import ExtractedFact, Window
from eden_memory.schemas.provenance import Statement
from eden_memory.stages.stage import Delivery, Emitted


def facts_extracted(
    delivery: Delivery, window: Window, facts: tuple[ExtractedFact, ...] = (), reason: str | None = None
) -> FactsExtracted:
    """Return the one result of a window's extraction."""
    return FactsExtracted(
        cause=delivery.id,
        attempt=delivery.sent_again + 1,
        window=window,
        outcome="extracted" if facts else "empty",
        reason=reason,
        facts=facts,
    )


def proposals_of(extracted: FactsExtracted) -> list[FactsProposed]:
    """Return the proposals to each scope that has facts, from broad to narrow."""
    window = extracted.window
    return [
        FactsProposed(
            cause=extracted.cause,
            attempt=extracted.attempt,
            formation_id=window.formation_id,
            session_id=window.session_id,
            scope=scope,
            facts=tuple(
                Statement(**{name: getattr(extracted_fact, name) for name in Statement.model_fields})
                for extracted_fact in stated
            ),
            formed_at=window.closed_at,
            settings_version=window.settings_version,
        )
        for scope in window.scopes
        if (stated := [fact for fact in extracted.facts if fact.scope == scope])
    ]


def failed_extraction(delivery: Delivery, reason: str) -> Sequence[Emitted]:
    """Replace the result of a dead extraction: reflections are formed without its facts."""
    if not isinstance(delivery.event, FormationRequested):
        return ()
    extracted = facts_extracted(delivery, delivery.event.window(), reason=reason[:500])
    return (extracted.model_copy(update={"outcome": "failed"}),)


def closed_all_the_same(delivery: Delivery, reason: str) -> Sequence[Emitted]:
    """Close an ended session though its last reflections could not be formed."""
    del reason
    if not isinstance(delivery.event, FactsExtracted):
        return ()
    return session_closed(delivery, delivery.event, 0)


def session_closed(
    delivery: Delivery, extracted: FactsExtracted, reflections: int
) -> Sequence[SessionClosed]:
    """Close the session if its window was the final one; `reflections` counts those formed in its scope."""
    window = extracted.window
    if window.closed_because != "ended":
        return ()
    scope = next(scope for scope in window.scopes if scope.kind == "session")
    return (
        SessionClosed(
            cause=delivery.id,
            attempt=delivery.sent_again + 1,
            scope=scope,
            formation_id=window.formation_id,
            reflections=reflections,
            closed_at=window.closed_at,
        ),
    )
