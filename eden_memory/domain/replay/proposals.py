"""What a window's facts propose to each scope, from the record of what was found in it. Pure."""

from schemas.events import FactsExtracted, FactsProposed
from schemas.provenance import Statement


def proposals_of(extracted: FactsExtracted) -> list[FactsProposed]:
    """One for each scope that has facts, from broad to narrow: as fact-extraction published them."""
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
