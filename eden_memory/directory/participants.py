"""Decide who takes part in a session, who is switched off, and which scopes its memory may go to."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote

from eden_memory.schemas.documents import Stream
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.ids import encode, split
from eden_memory.schemas.scopes import (
    FORMED_KINDS,
    LISTED_USERS,
    Audience,
    FormedKind,
    LargeAudience,
    Scope,
    ScopeKind,
    SharedSessions,
    Sharing,
    audience_of,
)
from eden_memory.schemas.scopes import AudienceChange as Change

ROOM_CHOICES = (
    "Name a group in their documents (EDEN_SESSIONS_GROUP_ID), set EDEN_MEMORY_SHARED_SESSIONS=authors to keep what "
    "each says of themselves, or =session to keep none: docs/how-to/group-rooms.md."
)
"""What to do about sessions of several users, which keep no facts unless one of these is chosen."""

BEGINS = "eden:added:"
_BEGINS_TYPED = encode(BEGINS)


class Own(NamedTuple):
    """The agent and the user whose additions a session holds; ids typed."""

    agent_id: str
    user_id: str | None
    """None: the agent's, nobody's in particular."""
    shard: str | None = None
    """The agent's shard that they were added to."""


OF_SHARD = "shard."
"""Begins the part of a session's id that names a shard; no typed id begins so."""


def own_session(
    agent_id: str, user_id: str | None, conversation_id: str | None = None, *, shard: str | None = None
) -> str:
    """Return the session's id, as an application would have it: the same for the same agent and user, or shard.

    `conversation_id` (typed): one conversation of the user that was imported, in a session of its own.
    """
    of_shard = None if shard is None else OF_SHARD + quote(shard, safe="")
    named = (agent_id, *(name for name in (user_id, conversation_id, of_shard) if name is not None))
    return BEGINS + ":".join(named)


def is_reserved(session_id: str) -> bool:
    """Tell whether a session (`session_id` typed) bears a name that no application's conversation may have."""
    return session_id.startswith(_BEGINS_TYPED)


def whose(session_id: str) -> Own | None:
    """Return whose additions a session (`session_id` typed) holds; None for a conversation of the application."""
    if not is_reserved(session_id):
        return None
    agent, _, rest = split(session_id)[1].removeprefix(BEGINS).partition(":")
    if rest.startswith(OF_SHARD) and _is_id(agent):
        return Own(agent, None, unquote(rest.removeprefix(OF_SHARD)))
    user, _, conversation = rest.partition(":")
    given = (agent, user, conversation) if conversation else (agent, user) if user else (agent,)
    return Own(agent, user or None) if all(map(_is_id, given)) else None


def given_to_all(session_id: str) -> bool:
    """Tell whether the texts of this session (`session_id` typed) were added for all of the agent's users."""
    own = whose(session_id)
    return own is not None and own.user_id is None


def _is_id(text: str) -> bool:
    try:
        split(text)
    except ValueError:
        return False
    return ":" not in text


DEFAULT_AGENT = "s.default"
MOST_CHANGED = 1_000_000
"""Characters of the ids of users who join or leave a session at once, at most: of more the hash alone is kept."""
of_agent, of_shard = lru_cache(1_000)(Scope.of_agent), lru_cache(10_000)(Scope.of_shard)
of_group, of_user = lru_cache(10_000)(Scope.of_group), lru_cache(10_000)(Scope.of_user)
"""The same for every window: made and checked once."""


class Off(NamedTuple):
    """Sessions and users that are switched off: nothing of them is formed or kept.

    A session is switched off by its own document, or by those of all its users.
    """

    sessions: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()

    def of(self, session_id: str, user_id: str | None) -> bool:
        """Tell whether nothing of this author in this session is kept."""
        return session_id in self.sessions or user_id in self.users


NOBODY = Off()
NO_AUTHORS: Mapping[str, Collection[str]] = {}


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """Facts about a session, its agent and its users from the application's documents; ids typed (schemas.ids)."""

    agent_id: str
    users: tuple[str, ...] | None
    """None: sessions are not mapped, the users are the messages' authors."""
    group_id: str | None = None
    group_members: frozenset[str] | None = None
    """None: nothing lists them, and every participant counts."""
    tier: int = 0
    """The highest among the users."""
    private_users: tuple[str, ...] = ()
    user_memory: bool = True
    agent_memory: bool = True
    without_users: bool = True
    """Whether memory of the agent and the group is formed where no user is known."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    sharing: Sharing = "private"
    shared_sessions: SharedSessions = "session"
    shards: tuple[str, ...] = ()
    team_shards: tuple[str, ...] = ()
    """Those of the shards that collect from sessions with users, too."""
    off: frozenset[ScopeKind] = frozenset()
    """Kinds of scope that the agent's streams switch off."""
    forms: tuple[FormedKind, ...] = FORMED_KINDS
    replaced: frozenset[str] = frozenset()
    """Messages in whose place others are shown, as an answer that was made again; read where that is asked for."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A document that the application has not written (yet)."""

    reason: str


class AudienceDelta(NamedTuple):
    """How a generation's audience differs from the last known one before it."""

    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    large: LargeAudience | None = None
    """In place of both: which users belong to it is not known."""


@dataclass(frozen=True, slots=True)
class Audiences:
    """Who may see each generation (1, 2, …) of a session's memory.

    Memory that others heard is not for one who joins: it begins anew. When they have left, the earlier one
    goes on: the one formed among exactly these users, else the newest whose audience they all belong to.

    Only changes are kept: of a session that many join one after the other, whole lists grow with the square.
    """

    changes: tuple[AudienceDelta, ...] = ()
    newest: frozenset[str] = frozenset()
    """The users of the newest generation of which they are known."""

    @classmethod
    def of_changes(cls, changes: Iterable[AudienceDelta]) -> "Audiences":
        """Build from stored changes."""
        kept, newest = tuple(changes), set[str]()
        for change in kept:
            newest.difference_update(change.left)
            newest.update(change.joined)
        return cls(kept, frozenset(newest))

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Audiences":
        """From a document of `memory_sessions`."""
        return cls.of_changes(
            AudienceDelta(
                tuple(kept.get("joined", ())),
                tuple(kept.get("left", ())),
                LargeAudience(**kept["large"]) if kept.get("large") else None,
            )
            for kept in row.get("audience_changes", ())
        )

    @classmethod
    def of_windows(cls, windows: Iterable[FormationRequested]) -> "Audiences":
        """From all windows of a session, in order."""
        told: dict[int, tuple[Audience, Change | None]] = {}
        for window in windows:
            for scope in window.scopes:
                if scope.generation is None:
                    continue
                audience, change = told.get(scope.generation, (scope.audience, None))
                told[scope.generation] = audience, change or window.audience_change
        found = cls()
        for generation in range(1, max(told, default=0) + 1):
            found = found._followed_as_told(*told.get(generation, ((), None)))
        return found

    def behind(self, window: FormationRequested) -> "Audiences":
        """Return them as they are behind a recorded window, the next of the session."""
        found = self
        for scope in window.scopes:
            if scope.generation is not None and scope.generation > len(found.changes):
                while scope.generation > len(found.changes) + 1:
                    found = found._followed_as_told((), None)
                found = found._followed_as_told(scope.audience, window.audience_change)
        return found

    def followed_by(self, users: Collection[str]) -> "Audiences":
        """Add a generation; if too many users joined or left at once, drop their ids."""
        now = frozenset(users)
        joined, left = sorted(now - self.newest), sorted(self.newest - now)
        if len(now) > LISTED_USERS and sum(map(len, (*joined, *left))) > MOST_CHANGED:
            return self._followed_by_unknown(LargeAudience.of(now))
        return Audiences((*self.changes, AudienceDelta(tuple(joined), tuple(left))), now)

    def _followed_by_unknown(self, audience: LargeAudience) -> "Audiences":
        return Audiences((*self.changes, AudienceDelta(large=audience)), self.newest)

    def _followed_as_told(self, audience: Audience, change: Change | None) -> "Audiences":
        """Add a generation as its first window recorded it."""
        if isinstance(audience, tuple):
            return self.followed_by(audience)
        users = (self.newest.difference(change.left)).union(change.joined) if change is not None else None
        if users is None or audience_of(users) != audience:
            return self._followed_by_unknown(audience)
        return self.followed_by(users)

    def generation_of(self, users: Collection[str], among: Container[int] | None = None) -> int | None:
        """Return the generation that continues with these users; None: a new one begins. `among`: the candidates."""
        now, size = frozenset(users), len(self.newest)
        missing = len(now - self.newest)
        exact = wider = None
        for number in range(len(self.changes), 0, -1):
            joined, left, large = self.changes[number - 1]
            if among is None or number in among:
                if large is not None:
                    exact = number if large.users == len(now) and large == LargeAudience.of(now) else exact
                elif not missing:
                    wider = wider or number
                    exact = number if size == len(now) else exact
            size += len(left) - len(joined)
            missing += sum(user in now for user in joined) - sum(user in now for user in left)
        return exact or wider

    def users_of(self, generation: int) -> frozenset[str] | None:
        """Return the users of a generation; None: unknown."""
        if not 1 <= generation <= len(self.changes) or self.changes[generation - 1].large is not None:
            return None
        users = set(self.newest)
        for joined, left, _ in reversed(self.changes[generation:]):
            users.difference_update(joined)
            users.update(left)
        return frozenset(users)

    def audience_of(self, generation: int) -> Audience:
        """Return the audience of a generation; a list is sorted."""
        users = self.users_of(generation)
        return self.changes[generation - 1].large or () if users is None else audience_of(sorted(users))

    def change_of(self, generation: int) -> Change | None:
        """Return what the first window of a generation records, so that its users are known from the topic alone."""
        joined, left, large = self.changes[generation - 1]
        listed = isinstance(self.audience_of(generation), tuple)
        return None if listed or large is not None else Change(joined=joined, left=left)

    def heard_by(self, user: str) -> tuple[int, ...]:
        """Return the generations with a large audience that includes the user."""
        among, size, found = False, 0, list[int]()
        for number, (joined, left, large) in enumerate(self.changes, 1):
            among, size = (among or user in joined) and user not in left, size + len(joined) - len(left)
            if among and large is None and size > LISTED_USERS:
                found.append(number)
        return tuple(found)


def scopes_of(
    facts: SessionFacts,
    session_id: str,
    users: Sequence[str],
    participants: Sequence[str],
    audience: Audience,
    generation: int,
    *,
    heard: bool = False,
    given: bool = False,
    shard: str | None = None,
    authors: Sequence[str] = (),
) -> tuple[Scope, ...]:
    """Return where memory may go, from broad to narrow; the session's own always, what is switched off never.

    With more than one user, one who wrote and has left included, none of them has user-scoped memory: nothing
    of one leaks to another. A group's memory holds only what was said among its members. Without a
    known user nobody's authority is behind what is said: agent and group then learn of it only if settings say so.
    Where sharing is private, the agent learns nothing from a session with users, and a group only from several;
    `heard`: users wrote in it whom nobody names; `given`: it was added for all of the agent's users, `shard`: to this
    one of its shards alone; `authors`: of several participants, those who have user-scoped memory all the same, of
    what they say of themselves.
    """
    agent = facts.agent_id
    scopes: list[Scope] = []
    shared = facts.sharing == "team" or given or not (participants or heard)
    if facts.agent_memory and (participants or facts.without_users):
        scopes += [of_agent(agent)] if shared else []
        scopes += [of_shard(agent, name) for name in (facts.shards if shared else facts.team_shards)]
        several = shared or len(participants) > 1
        if facts.group_id is not None and several and _are_members(facts, participants):
            scopes.append(of_group(agent, facts.group_id))
    if facts.user_memory and len(users) == len(participants) == 1:
        scopes.append(of_user(agent, users[0]))
    elif facts.user_memory and len(participants) > 1:
        scopes += [of_user(agent, author) for author in authors]
    if shard is not None:
        scopes = [scope for scope in scopes if scope.kind == "user" or scope.shard == shard]
    scopes = [scope for scope in scopes if scope.kind not in facts.off]
    scopes.append(Scope.of_session(agent, session_id, audience, generation))
    return tuple(scopes)


def _are_members(facts: SessionFacts, participants: Sequence[str]) -> bool:
    return facts.group_members is None or facts.group_members.issuperset(participants)


class Directory(Protocol):
    """The application's sessions, agents, users and groups."""

    async def look_up(
        self,
        session_ids: Iterable[str],
        authors: Mapping[str, Collection[str]] = NO_AUTHORS,
        branches_of: Collection[str] = (),
    ) -> dict[str, SessionFacts | Missing]:
        """Return, for every session asked for, its facts, or which document is missing.

        `authors`: who writes in a session; their documents are read whether the session's lists them or not.
        `branches_of`: the sessions whose messages are read for those in whose place others are shown.
        """
        ...

    @property
    def switches(self) -> bool:
        """Return whether sessions or users are described, so that they can be switched off."""
        ...

    async def off(self, authors: Mapping[str, Collection[str]], others: Collection[str]) -> Off:
        """Return which of the sessions (with who wrote in them), of all their users and of `others` are off."""
        ...


class Streams(Protocol):
    """How an agent's scopes and shards are formed (`memory_streams`)."""

    async def of(self, agent_id: str) -> Mapping[str, Stream]:
        """Return the streams of an agent by label (scope_limits.label_of), those switched off included."""
        ...
