"""Rules for sharing: where it is private, shared memory that rests on what users said is hidden. Pure."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from eden_memory.directory.own_sessions import given_to_all
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import Scope, Sharing
from eden_memory.scope_limits import label_of

WIDE = frozenset({"agent", "group", "shard"})
"""Kinds of scope that more than one user may see."""
WITHOUT_USERS = 0
ALONE: tuple[int | None, ...] = (None, 1)
"""Participants of whose windows a group may hold nothing; None: it was added by hand or imported."""


def in_force(stored: Sharing | None, chosen: Sharing | None) -> Sharing:
    """Return the mode that readers apply: private if the store or this process is set to it, or nobody chose one."""
    return "team" if {stored, chosen} in ({"team"}, {"team", None}) else "private"


def sharing_of(scope: Scope, streams: Mapping[str, Stream], store: Sharing) -> Sharing:
    """Return how a scope is shared: by its shard's stream, else its agent's, else the store's setting."""
    for label in (label_of(scope), "agent") if scope.kind == "shard" else ("agent",):
        stream = streams.get(label)
        if stream is not None and stream.sharing is not None:
            return stream.sharing
    return store


def private_keys(scopes: Iterable[Scope], streams: Mapping[str, Stream], store: Sharing) -> frozenset[str]:
    """The keys of those scopes in which nothing may be shown that rests on what users said."""
    return frozenset(
        scope.key for scope in scopes if scope.kind in WIDE and sharing_of(scope, streams, store) == "private"
    )


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
