"""Facts for tests of ranking."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from eden_memory.schemas.fields import pack_vector
from eden_memory.search.fact_candidates import FactCandidate, Ranked, Scored

NOW = datetime(2026, 3, 18, 15, tzinfo=UTC)
SCOPE = "agent:s.a"


def fact(
    fact_id: str,
    text: str = "",
    *,
    days: float = 0,
    vector: Sequence[float] | None = (1.0, 0.0),
    session: str | None = None,
    scope_key: str = SCOPE,
) -> FactCandidate:
    """Stated so many days ago."""
    at = NOW - timedelta(days=days)
    packed = pack_vector(vector) if vector is not None else None
    sessions = (session,) if session else ()
    return FactCandidate(
        fact_id, scope_key, text or fact_id, at, at, 1, at, vector=packed, session_ids=sessions
    )


def ranked(*scores: tuple[FactCandidate, float]) -> list[Ranked]:
    """A list of a store."""
    return [Ranked(one, score) for one, score in scores]


def scored(*scores: tuple[FactCandidate, float]) -> list[Scored]:
    """What an earlier stage left."""
    return [Scored(one, score) for one, score in scores]


def ids(found: Sequence[Scored]) -> list[str]:
    """In order."""
    return [one.fact.fact_id for one in found]
