"""Views of stored documents for the API, without the sources of anybody but the caller."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from eden_memory.access.visible import Asker
from eden_memory.limits import words_of
from eden_memory.memory.results import (
    BlobVersionView,
    BlobView,
    CommandView,
    FactView,
    ReflectionVersionView,
    ReflectionView,
    VersionView,
)
from eden_memory.schemas.documents import Consolidated, Fact, FactVersion, Reflection
from eden_memory.schemas.events import MemoryCommandRef
from eden_memory.schemas.provenance import Call, SourceMessage
from eden_memory.schemas.scopes import Scope

SMALLEST = Decimal("1e-12")


def fact_view(fact: Fact, scope: Scope, asked: Asker) -> FactView:
    """Return the view of a fact in its newest version."""
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
        occurred_at=fact.occurred_at,
        valid_from=fact.valid_from,
        expires_at=fact.expires_at,
        private=fact.private,
        retired_at=fact.retired_at,
        retired_because=fact.retired_because,
        replaces=fact.replaces,
        replaced_by=fact.replaced_by,
        sources=_own(fact.sources, asked),
    )


def versions(fact: Fact) -> tuple[VersionView, ...]:
    """Return all stored versions, newest first; a version that begins after a later one is marked as undone."""
    found, earliest = list[VersionView](), fact.valid_from
    for version in map(_version, (fact, *fact.history)):
        found.append(replace(version, undone=version.valid_from > earliest))
        earliest = min(earliest, version.valid_from)
    return tuple(found)


def reflection_view(reflection: Reflection, scope: Scope, asked: Asker) -> ReflectionView:
    """Return the view of a reflection."""
    return ReflectionView(
        reflection_id=reflection.id,
        scope=scope,
        content=reflection.content,
        formed_at=reflection.formed_at,
        said_at=reflection.said_at,
        absorbed=reflection.absorbed,
        absorbed_at=reflection.absorbed_at,
        absorbed_into=reflection.absorbed_into,
        propagated_from=reflection.propagated_from,
        private=reflection.private,
        sources=_own(reflection.sources, asked),
        version=reflection.version,
        retired_at=reflection.retired_at,
        command=_command(reflection.command),
        earlier=tuple(
            ReflectionVersionView(
                version.version, version.content, version.private, version.said_at, _command(version.command)
            )
            for version in reflection.history
        ),
    )


def blob_view(blob: Consolidated, scope: Scope) -> BlobView:
    """Return the view of a blob with its earlier versions."""
    return BlobView(
        scope=scope,
        content=blob.content,
        version=blob.version,
        words=words_of(blob.content),
        word_limit=blob.word_limit,
        consolidated_at=blob.last_consolidated_at,
        said_at=blob.said_at,
        earlier=tuple(
            BlobVersionView(
                version.version,
                version.content,
                version.consolidated_at,
                version.pins,
                _command(version.command),
            )
            for version in blob.history
        ),
        pins=blob.pins,
        command=_command(blob.command),
    )


def _command(command: MemoryCommandRef | None) -> CommandView | None:
    if command is None:
        return None
    return CommandView(command.action, command.by, command.asked_by, command.reason, command.asked_at)


def _version(version: Fact | FactVersion) -> VersionView:
    command, call = version.command, version.call
    return VersionView(
        version=version.version,
        content=version.content,
        decision=version.decision,
        reason=version.reason,
        valid_from=version.valid_from,
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
    """Return all sources if the application itself asks; else those of the session or the user."""
    if asked.session_id is None and asked.user_id is None:
        return tuple(sources)
    return tuple(
        source
        for source in sources
        if (asked.session_id is not None and source.session_id == asked.session_id)
        or (asked.user_id is not None and source.user_id == asked.user_id)
    )
