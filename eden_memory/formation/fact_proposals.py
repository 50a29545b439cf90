"""The facts of a window as proposals to the scopes that they are for: at first, and again from the record. Pure."""

from eden_memory.schemas.events import FactsExtracted, FactsProposed
from eden_memory.schemas.provenance import Statement


def proposals_of(extracted: FactsExtracted) -> list[FactsProposed]:
    """Return one for each scope that has facts, from broad to narrow."""
    window = extracted.window
    return [
        FactsProposed(
            cause=extracted.cause,
            attempt=extracted.attempt,
            formation_id=window.formation_id,
            session_id=window.session_id,
            scope=scope,
            facts=tuple(
                Statement(**{name: getattr(one, name) for name in Statement.model_fields}) for one in stated
            ),
            formed_at=window.closed_at,
            settings_version=window.settings_version,
        )
        for scope in window.scopes
        if (stated := [one for one in extracted.facts if one.scope == scope])
    ]
