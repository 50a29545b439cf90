"""Rules for sharing: where it is private, shared memory that rests on what users said is hidden. Pure."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from eden_memory.directory.own_sessions import given_to_all
from eden_memory.limits import label_of, sharing_of
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import Scope, SharingMode

WIDE = frozenset({"agent", "group", "shard"})
"""Kinds of scope that more than one user may see."""
WITHOUT_USERS = 0
ALONE: tuple[int | None, ...] = (None, 1)
"""Participants of whose windows a group may hold nothing; None: it was added by hand or imported."""


def in_force(stored: SharingMode | None, chosen: SharingMode | None) -> SharingMode:
    """Return the mode that readers apply: the narrower of the store's and this process's; private if nobody chose."""
    known = {stored, chosen} - {None}
    if not known or "private" in known:
        return "private"
    return "agents" if "agents" in known else "team"


def private_keys(
    scopes: Iterable[Scope], streams: Mapping[str, Stream], mode: SharingMode, *, learns: bool = False
) -> frozenset[str]:
    """The keys of those scopes in which nothing may be shown that rests on what users said."""

    def is_private(scope: Scope) -> bool:
        label = label_of(scope) if scope.kind == "shard" else "agent"
        return sharing_of(label, streams, mode, learns=learns) == "private"

    return frozenset(scope.key for scope in scopes if scope.kind in WIDE and is_private(scope))


def rests_on_users(scope_key: str, sources: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a memory of this scope rests on what sharing `private` keeps from it.

    `sources` are stored (schemas.provenance.SourceMessage). For an agent and its shards that is every message of a
    window in which a user took part; for a group, of a window in which one was alone. What was given to all on
    purpose never counts.
    """
    kind = scope_key.partition(":")[0]
    return kind in WIDE and any(_kept_from(kind, source) for source in sources)


def _kept_from(kind: str, source: Mapping[str, Any]) -> bool:
    participants = source.get("participants")
    kept = participants in ALONE if kind == "group" else participants != WITHOUT_USERS
    return kept and not _given_to_all(source["session_id"])


_given_to_all = lru_cache(10_000)(given_to_all)
