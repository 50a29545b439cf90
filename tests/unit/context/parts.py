"""Scopes and snapshots for context tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from eden_memory.access.visible import VisibleScope
from eden_memory.limits import limits_of
from eden_memory.schemas.documents import BufferedReflection, RecentFact, Snapshot
from eden_memory.schemas.scopes import Scope

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
AGENT = Scope.of_agent("s.a")


def before(**ago: float) -> datetime:
    return NOON - timedelta(**ago)


def fact(content: str, formed_at: datetime, number: int = 0) -> RecentFact:
    return RecentFact(
        fact_id=f"f{number}", version=1, content=content, formed_at=formed_at, valid_from=formed_at
    )


def reflection(
    content: str, formed_at: datetime, number: int = 0, *, said_at: datetime | None = None
) -> BufferedReflection:
    return BufferedReflection(
        reflection_id=f"r{number:04}", content=content, formed_at=formed_at, said_at=said_at or formed_at
    )


def stored_snapshot(scope: Scope, **fields: Any) -> Snapshot:
    rest: dict[str, Any] = {"revision": 1, "changed_at": NOON, **fields}
    return Snapshot(
        _id=scope.key,
        scope=scope.kind,
        scope_key=scope.key,
        agent_id=scope.agent_id,
        group_id=scope.group_id,
        user_id=scope.user_id,
        session_id=scope.session_id,
        audience=scope.audience,
        **rest,
    )


def shown(scope: Scope, **fields: Any) -> VisibleScope:
    return VisibleScope(scope, limits_of(scope, {}), stored_snapshot(scope, **fields))
