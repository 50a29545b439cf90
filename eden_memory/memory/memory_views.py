"""Stored documents as the doors show them: sources of others than who asks are left out."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from eden_memory.access.visible import Asker
from eden_memory.memory.results import BlobVersionView, BlobView, FactView, ReflectionView, VersionView
from eden_memory.schemas.documents import Consolidated, Fact, Reflection
from eden_memory.schemas.events.facts import CommandRef, Decision
from eden_memory.schemas.provenance import Call, SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.word_limits import words_of

SMALLEST = Decimal("1e-12")


def fact_view(fact: Fact, scope: Scope, asked: Asker) -> FactView:
    """A fact as it is."""
    return FactView(
        fact_id=fact.id,
        scope=scope,
        content=fact.content,
        active=fact.active,
        version=fact.version,
        decision=fact.decision,
        reason=fact.reason,
        formed_at=fact.formed_at,
        said_at=fact.said_at,
        valid_from=fact.valid_from,
        expires_at=fact.expires_at,
        retired_at=fact.retired_at,
        retired_because=fact.retired_because,
        replaces=fact.replaces,
        replaced_by=fact.replaced_by,
        sources=_own(fact.sources, asked),
    )


def versions(fact: Fact) -> tuple[VersionView, ...]:
    """All versions that are kept, newest first; one that holds since after a later one does is undone."""
    now = _version(
        fact.version, fact.content, fact.decision, fact.reason, fact.valid_from, fact.command, fact.call
    )
    earlier = (
        _version(one.version, one.content, one.decision, one.reason, one.valid_from, one.command, one.call)
        for one in fact.history
    )
    found, earliest = list[VersionView](), fact.valid_from
    for one in (now, *earlier):
        found.append(replace(one, undone=one.valid_from > earliest))
        earliest = min(earliest, one.valid_from)
    return tuple(found)


def reflection_view(one: Reflection, scope: Scope, asked: Asker) -> ReflectionView:
    """A reflection as it is."""
    return ReflectionView(
        reflection_id=one.id,
        scope=scope,
        content=one.content,
        formed_at=one.formed_at,
        said_at=one.said_at,
        absorbed=one.absorbed,
        absorbed_at=one.absorbed_at,
        absorbed_into=one.absorbed_into,
        propagated_from=one.propagated_from,
        private=one.private,
        sources=_own(one.sources, asked),
    )


def blob_view(blob: Consolidated, scope: Scope) -> BlobView:
    """A blob with its earlier versions."""
    return BlobView(
        scope=scope,
        content=blob.content,
        version=blob.version,
        words=words_of(blob.content),
        word_limit=blob.word_limit,
        consolidated_at=blob.last_consolidated_at,
        said_at=blob.said_at,
        earlier=tuple(BlobVersionView(one.version, one.content, one.consolidated_at) for one in blob.history),
    )


def _version(
    version: int,
    content: str,
    decision: Decision,
    reason: str | None,
    valid_from: datetime,
    command: CommandRef | None,
    call: Call | None,
) -> VersionView:
    return VersionView(
        version=version,
        content=content,
        decision=decision,
        reason=reason,
        valid_from=valid_from,
        action=command.action if command else None,
        by=command.by if command else None,
        asked_by=command.asked_by if command else None,
        model=call.model if call else None,
        prompt=call.prompt if call else None,
        cost_usd=_share(call),
    )


def _share(call: Call | None) -> Decimal | None:
    if call is None or call.cost_usd is None:
        return None
    share = (call.cost_usd / call.items).quantize(SMALLEST).normalize()
    return Decimal(format(share, "f"))


def _own(sources: Sequence[SourceMessage], asked: Asker) -> tuple[SourceMessage, ...]:
    """All, where the application asks for itself; else those of the session or the user."""
    if asked.session_id is None and asked.user_id is None:
        return tuple(sources)
    return tuple(
        one
        for one in sources
        if (asked.session_id is not None and one.session_id == asked.session_id)
        or (asked.user_id is not None and one.user_id == asked.user_id)
    )
