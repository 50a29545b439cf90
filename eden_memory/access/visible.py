"""Rules for the memory that a user of a session may see; one user's memory is never shown to another. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from eden_memory.directory.participants import Audiences, given_to_all
from eden_memory.limits import STANDARD, FormationLimits, ScopeLimits, label_of, limits_of, sharing_of
from eden_memory.schemas.documents import Snapshot, Stream
from eden_memory.schemas.scopes import (
    FORMED_KINDS,
    Audience,
    FormedKind,
    LargeAudience,
    Scope,
    ScopeKind,
    SharingMode,
)

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


UNNAMED = ""
"""Among the users of a session: a user who wrote in it and whom nobody names."""
NOBODY_KNOWN: Mapping[str, Audiences] = {}


@dataclass(frozen=True, slots=True)
class Present:
    """A session's users and switches, as the application has them now; ids typed (schemas.ids)."""

    users: frozenset[str] | None
    """Its users; None: they cannot be known (yet), and nobody's own memory is shown in it."""
    group_id: str | None = None
    user_memory: bool = True
    agent_memory: bool = True
    learns: bool = False
    """Whether the agent's own document says that it learns from its users."""
    off: bool = False
    """The session is switched off (`memory: false`, `incognito`): nothing personal is shown."""
    by_authors: bool = False
    """Its users are the authors of its messages: no document lists them."""
    unnamed: bool = False
    """A user wrote in it whom nobody names: it may be anybody, so nobody's own memory is shown in it."""
    group_name: str | None = None
    group_members: frozenset[str] | None = None
    """None: nothing lists them, and every user of the session counts."""
    shared_groups: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Where the session names no group: those of which all its users are members, with their names."""
    title: str | None = None
    """Of the session."""
    shows: frozenset[FormedKind] = frozenset(FORMED_KINDS)

    @property
    def everybody(self) -> frozenset[str] | None:
        """Return its users, with UNNAMED among them where somebody is unnamed."""
        return self.users | {UNNAMED} if self.users is not None and self.unnamed else self.users

    def name_of(self, scope: Scope) -> str | None:
        """Return the application's name of a group's scope; None for all others."""
        if scope.group_id is None:
            return None
        return self.group_name if scope.group_id == self.group_id else self.shared_groups.get(scope.group_id)


@dataclass(frozen=True, slots=True)
class Asker:
    """The agent, session and user that memory is read for; `user_id` None: no particular user."""

    agent_id: str
    session_id: str | None
    """None: outside of any session."""
    user_id: str | None = None


@dataclass(frozen=True, slots=True)
class VisibleScope:
    """One visible scope and what is stored of it."""

    scope: Scope
    limits: ScopeLimits
    snapshot: Snapshot
    name: str | None = None
    """The application's name of the group or session."""


@dataclass(frozen=True, slots=True)
class VisibleMemory:
    """The memory that a user of a session may see, as it is stored at this moment."""

    shown: tuple[VisibleScope, ...]
    """The visible scopes of which something is stored."""
    scope_keys: tuple[str, ...]
    """All visible scopes, those with nothing stored included: what changes in them changes the context."""
    present: bool = True
    """Whether the user is in the session, as far as is known."""
    users: frozenset[str] | None = None
    """For whom it holds: all who were in the session, UNNAMED included; None: that cannot be known."""
    by_authors: bool = False
    """These are the authors of its messages, so the next message may change it."""
    private: frozenset[str] = frozenset()
    """Keys of the visible scopes that show nothing which rests on what users said (eden_memory.access.visible), and
    the ids of memory that rests on a message which was deleted just now, and may be written again."""
    shows: frozenset[FormedKind] = frozenset(FORMED_KINDS)
    """What contexts and searches show; the rest is only formed."""

    @property
    def revisions(self) -> dict[str, int]:
        """Scope key → revision of what is shown of it."""
        return {shown.scope.key: shown.snapshot.revision for shown in self.shown}

    def narrowed(self, kinds: Collection[ScopeKind] | None) -> "VisibleMemory":
        """Return the part of it in scopes of these kinds; None: all of it."""
        if kinds is None:
            return self
        shown = tuple(visible for visible in self.shown if visible.scope.kind in kinds)
        keys = tuple(key for key in self.scope_keys if key.partition(":")[0] in kinds)
        return replace(self, shown=shown, scope_keys=keys)

    @property
    def personal(self) -> bool:
        """Whether it shows memory that depends on who is in the session."""
        return any(shown.scope.kind in ("user", "session", "group") for shown in self.shown)


def view_of(
    asked: Asker,
    present: Present,
    streams: Mapping[str, Stream],
    stored: Mapping[str, Snapshot],
    limits: FormationLimits = STANDARD,
    sharing: SharingMode = "team",
    audiences: Mapping[str, Audiences] = NOBODY_KNOWN,
    hidden: frozenset[str] = frozenset(),
) -> VisibleMemory:
    """The view, out of snapshots by scope key that hold those of the visible scopes and of the session.

    Where sharing is private, the caller has taken out of the snapshots what users said. `audiences`: of the sessions
    that `with_unlisted` names.
    """
    scopes = broad_scopes(asked, present, streams)
    shown = [
        VisibleScope(
            scope,
            limits_of(scope, streams, limits),
            stored[scope.key],
            present.name_of(scope),
        )
        for scope in scopes
        if scope.key in stored
    ]
    own = session_memory(asked, present, stored.values(), audiences)
    keys = [scope.key for scope in scopes]
    if own is not None:
        scope = Scope.of_key(own.scope_key, own.agent_id, own.audience)
        shown.append(VisibleScope(scope, limits_of(scope, streams, limits), own, present.title))
        keys.append(scope.key)
    gone = asked.user_id is not None and present.users is not None and asked.user_id not in present.users
    private = private_keys(scopes, streams, sharing, learns=present.learns) | hidden
    return VisibleMemory(
        tuple(shown), tuple(keys), not gone, present.everybody, present.by_authors, private, present.shows
    )


def broad_scopes(asked: Asker, present: Present, streams: Mapping[str, Stream]) -> tuple[Scope, ...]:
    """The visible scopes but the session's own, from broad to narrow; shards behind their agent.

    One who is not among the session's users sees what the agent knows, and neither the group's nor any
    user's; with more than one user in the session, or an unnamed one, no user's memory is visible. A group's is
    visible where all users of the session are members: that of the session's own group, or, where it names none,
    of all their groups (what the agent answers there is no group's memory, so none hears of another). What a stream
    switches off is not shown.
    """
    agent, scopes = asked.agent_id, list[Scope]()
    users = present.users
    if present.agent_memory:
        scopes.append(Scope.of_agent(agent))
        shards = sorted(
            stream.shard for stream in streams.values() if stream.shard is not None and stream.active
        )
        scopes += [Scope.of_shard(agent, name) for name in shards]
        if present.group_id is not None and _is_among_members(asked, present):
            scopes.append(Scope.of_group(agent, present.group_id))
        scopes += [Scope.of_group(agent, group_id) for group_id in present.shared_groups]
    alone = asked.user_id if asked.user_id is not None and users == frozenset((asked.user_id,)) else None
    if alone is not None and present.user_memory and not (present.off or present.unnamed):
        scopes.append(Scope.of_user(agent, alone))
    return tuple(scope for scope in scopes if limits_of(scope, streams).active)


def _is_among_members(asked: Asker, present: Present) -> bool:
    users, members = present.users, present.group_members
    if users is None or (asked.user_id is not None and asked.user_id not in users):
        return False
    return members is None or (users <= members and not present.unnamed)


def session_memory(
    asked: Asker,
    present: Present,
    stored: Iterable[Snapshot],
    audiences: Mapping[str, Audiences] = NOBODY_KNOWN,
) -> Snapshot | None:
    """The one of a session's memories that all who are in it now may see, if there is one.

    `stored` holds the snapshots of all generations of the session's memory, `audiences` who belongs to those
    that list nobody: where that is missing, they are shown among exactly their users alone.
    """
    now = _everybody(asked, present)
    if now is None:
        return None
    own = _memories(asked, stored)
    if not now:  # nobody is in it: everybody would be among any audience
        return next((own[number] for number in sorted(own, reverse=True) if not own[number].audience), None)
    exact = min((number for number, shot in own.items() if _consists_of(shot.audience, now)), default=None)
    if exact is not None:
        return own[exact]
    wider = [generation for generation, shot in own.items() if _lists(shot.audience, now)]
    known = audiences.get(asked.session_id or "", Audiences())
    larger = known.generation_of(
        now, {generation for generation, shot in own.items() if _is_larger(shot, now)}
    )
    if larger is not None and known.audience_of(larger) == own[larger].audience:
        wider.append(larger)
    return own[max(wider)] if wider else None


def with_unlisted(
    asked: Iterable[Asker], present: Mapping[Asker, Present], stored: Collection[Snapshot]
) -> set[str]:
    """Sessions of which it matters who belongs to memories whose audience lists nobody."""
    largest: dict[str | None, int] = {}
    for shot in stored:
        if isinstance(shot.audience, LargeAudience):
            largest[shot.session_id] = max(shot.audience.users, largest.get(shot.session_id, 0))
    return {
        asker.session_id
        for asker in asked
        if asker.session_id is not None
        and (now := _everybody(asker, present[asker]))
        and len(now) < largest.get(asker.session_id, 0)
    }


def _everybody(asked: Asker, present: Present) -> frozenset[str] | None:
    """Who would see the session's memory; None: it is shown to nobody."""
    if present.users is None or present.off or asked.session_id is None:
        return None
    joins = asked.user_id is not None and asked.user_id not in present.users
    return present.users | {asked.user_id} if joins and asked.user_id is not None else present.users


def _memories(asked: Asker, stored: Iterable[Snapshot]) -> dict[int, Snapshot]:
    """The session's, by generation."""
    return {
        Scope.of_key(shot.scope_key, shot.agent_id).generation or 1: shot
        for shot in stored
        if shot.scope == "session" and (shot.agent_id, shot.session_id) == (asked.agent_id, asked.session_id)
    }


def _consists_of(audience: Audience, users: frozenset[str]) -> bool:
    if isinstance(audience, LargeAudience):
        return audience.users == len(users) and audience == LargeAudience.of(users)
    return len(audience) == len(users) and users.issuperset(audience)


def _lists(audience: Audience, users: frozenset[str]) -> bool:
    return isinstance(audience, tuple) and len(audience) > len(users) and users.issubset(audience)


def _is_larger(shot: Snapshot, users: frozenset[str]) -> bool:
    return isinstance(shot.audience, LargeAudience) and shot.audience.users > len(users)
