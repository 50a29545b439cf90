"""Commands that state anew what is left of a forgotten fact. Pure."""

from datetime import datetime

from eden_memory.schemas.documents import FactStatement
from eden_memory.schemas.events import FactCommanded
from eden_memory.schemas.provenance import newest_said
from eden_memory.schemas.scopes import Scope


def is_restated(command_id: str) -> bool:
    """Return whether a command states anew what was left of a fact."""
    return command_id.startswith("restated/")


def restated(
    fact_id: str,
    said: FactStatement,
    scope: Scope,
    *,
    asked_at: datetime,
    asked_by: str | None = None,
    expires_at: datetime | None = None,
    decide: bool = False,
) -> FactCommanded:
    """Return the command that adds one statement of a fact again; the same statement gives the same id."""
    return FactCommanded(
        command_id=f"restated/{fact_id}/{said.version}",
        scope=scope,
        action="add",
        text=said.text,
        sources=said.sources,
        expires_at=expires_at,
        decide=decide,
        by="forgetting",
        asked_by=asked_by,
        reason="something else that the fact was merged from is forgotten",
        asked_at=asked_at,
        said_at=newest_said(said.sources),
    )
