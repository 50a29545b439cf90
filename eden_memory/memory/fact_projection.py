"""Facts as documents: the highest version of each, its history, and which of those alike is active. Pure."""

from collections.abc import Iterable, Mapping, Set

from eden_memory.memory.memory_batch import ScopeBatch
from eden_memory.memory.stored_memory import StoredScope, scope_fields
from eden_memory.schemas.documents import HISTORY, Fact, FactVersion
from eden_memory.schemas.events import FactChanged
from eden_memory.schemas.provenance import SourceMessage

NONE: Set[int] = frozenset()


def facts_after(batch: ScopeBatch, stored: StoredScope) -> dict[str, Fact]:
    """All facts that are stored or come in, as they are afterwards; those that are gone are left out."""
    coming: dict[str, list[FactChanged]] = {}
    for event in batch.facts.values():
        coming.setdefault(event.fact_id, []).append(event)
    gone: dict[str, set[int]] = {}
    for fact_id, version in batch.gone_facts:
        gone.setdefault(fact_id, set()).add(version)
    names = dict.fromkeys([*stored.facts, *coming])
    merged = {
        name: _merged(
            stored.facts.get(name), coming.get(name, ()), gone.get(name, NONE), stored.next_revision
        )
        for name in names
    }
    return _one_active({name: fact for name, fact in merged.items() if fact is not None})


def duplicates_among(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Facts that are neither retired nor active: an older one says the same."""
    return tuple(fact for fact in facts if fact.retired_at is None and not fact.active)


def _merged(stored: Fact | None, events: Iterable[FactChanged], gone: Set[int], revision: int) -> Fact | None:
    """One fact out of what is stored and what comes; None if its newest version is gone and none comes."""
    known = {event.version: event for event in events}
    if stored is not None and stored.version not in gone and stored.version >= max(known, default=0):
        newest = stored
    elif known:
        newest = _fact(known[max(known)], revision)
    else:
        return None
    return _with_history(newest, _history(newest.version, stored, known, gone))


def _history(
    newest: int, stored: Fact | None, known: Mapping[int, FactChanged], gone: Set[int]
) -> tuple[FactVersion, ...]:
    kept: dict[int, Fact | FactVersion] = {}
    if stored is not None:
        kept = {stored.version: stored} | {one.version: one for one in stored.history}
    earlier = sorted(
        (number for number in {*known, *kept} if number < newest and number not in gone), reverse=True
    )
    return tuple(_as_version(kept.get(number) or known[number]) for number in earlier[:HISTORY])


def _with_history(fact: Fact, history: tuple[FactVersion, ...]) -> Fact:
    if fact.history == history and (history or fact.previous_content is None):
        return fact
    previous = next((one.content for one in history if one.content != fact.content), None)
    return fact.model_copy(update={"history": history, "previous_content": previous})


def _one_active(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Of facts that are not retired and say the same, the oldest is active."""
    first: dict[str, Fact] = {}
    for fact in facts.values():
        other = first.get(fact.hash)
        if fact.retired_at is None and (other is None or _age(fact) < _age(other)):
            first[fact.hash] = fact
    chosen = {fact.id for fact in first.values()}
    return {name: _active(fact, active=name in chosen) for name, fact in facts.items()}


def _age(fact: Fact) -> tuple[object, str]:
    return fact.formed_at, fact.id


def _active(fact: Fact, *, active: bool) -> Fact:
    return fact if fact.active == active else fact.model_copy(update={"active": active})


def _fact(event: FactChanged, revision: int) -> Fact:
    return Fact(
        _id=event.fact_id,
        **scope_fields(event.scope),
        content=event.text,
        hash=event.hash,
        embedding=event.embedding.vector if event.embedding else None,
        embedding_model=event.embedding.model if event.embedding else None,
        active=event.retired_at is None,
        version=event.version,
        decision=event.decision,
        reason=event.reason,
        command=event.command,
        call=event.call,
        session_ids=sessions_of(event.sources),
        message_ids=messages_of(event.sources),
        sources=event.sources,
        formed_at=event.formed_at,
        said_at=event.said_at,
        valid_from=event.valid_from,
        expires_at=event.expires_at,
        retired_at=event.retired_at,
        retired_because=event.retired_because,
        replaces=event.replaces,
        replaced_by=event.replaced_by,
        revision=revision,
    )


def sessions_of(sources: Iterable[SourceMessage]) -> tuple[str, ...]:
    """The sessions of some messages, each once."""
    return tuple(dict.fromkeys(one.session_id for one in sources))


def messages_of(sources: Iterable[SourceMessage]) -> tuple[str, ...]:
    """The messages, each once."""
    return tuple(dict.fromkeys(one.message_id for one in sources))


def _as_version(one: Fact | FactVersion | FactChanged) -> FactVersion:
    if isinstance(one, FactVersion):
        return one
    return FactVersion(
        version=one.version,
        content=one.text if isinstance(one, FactChanged) else one.content,
        decision=one.decision,
        reason=one.reason,
        valid_from=one.valid_from,
        command=one.command,
        call=one.call,
    )
