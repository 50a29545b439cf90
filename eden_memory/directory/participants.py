"""Who takes part in a session, and where memory of it may go."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

from eden_memory.directory.switched_off import Off
from eden_memory.schemas.scopes import Scope, ScopeKind, SharedSessions, Sharing

DEFAULT_AGENT = "s.default"
of_agent, of_shard = lru_cache(1_000)(Scope.of_agent), lru_cache(10_000)(Scope.of_shard)
of_group, of_user = lru_cache(10_000)(Scope.of_group), lru_cache(10_000)(Scope.of_user)
"""The same for every window: made and checked once."""


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What the application says of a session, its agent and its users; ids typed (schemas.ids)."""

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


@dataclass(frozen=True, slots=True)
class Missing:
    """A document that the application has not written (yet)."""

    reason: str


class AudienceChange(NamedTuple):
    """How a generation's audience differs from the one before it."""

    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Audiences:
    """Who may see each generation (1, 2, …) of a session's memory.

    Memory that others heard is not for one who joins: it begins anew. When they have left, the earlier one
    goes on: the one formed among exactly these users, else the newest whose audience they all belong to.

    Only changes are kept: of a session that many join one after the other, whole lists grow with the square.
    """

    changes: tuple[AudienceChange, ...] = ()
    newest: frozenset[str] = frozenset()

    @classmethod
    def of_lists(cls, audiences: Iterable[Collection[str]]) -> "Audiences":
        """From each generation's whole audience."""
        found = cls()
        for one in audiences:
            found = found.followed_by(one)
        return found

    @classmethod
    def of_changes(cls, changes: Iterable[AudienceChange]) -> "Audiences":
        """From what is kept."""
        kept, newest = tuple(changes), set[str]()
        for one in kept:
            newest.difference_update(one.left)
            newest.update(one.joined)
        return cls(kept, frozenset(newest))

    def followed_by(self, users: Collection[str]) -> "Audiences":
        """With one more generation."""
        now = frozenset(users)
        joined, left = sorted(now - self.newest), sorted(self.newest - now)
        return Audiences((*self.changes, AudienceChange(tuple(joined), tuple(left))), now)

    def generation_of(self, users: Collection[str]) -> int | None:
        """The generation that goes on among these users; None: a new one begins."""
        now, size = frozenset(users), len(self.newest)
        missing = len(now - self.newest)
        exact = wider = None
        for number in range(len(self.changes), 0, -1):
            if not missing:
                wider = wider or number
                exact = number if size == len(now) else exact
            joined, left = self.changes[number - 1]
            size += len(left) - len(joined)
            missing += sum(one in now for one in joined) - sum(one in now for one in left)
        return exact or wider

    def audience_of(self, generation: int) -> tuple[str, ...]:
        """The users of a generation, sorted."""
        users = set(self.newest)
        for joined, left in reversed(self.changes[generation:]):
            users.difference_update(joined)
            users.update(left)
        return tuple(sorted(users))


def scopes_of(
    facts: SessionFacts,
    session_id: str,
    users: Sequence[str],
    participants: Sequence[str],
    audience: Sequence[str],
    generation: int,
    *,
    heard: bool = False,
    given: bool = False,
    authors: Sequence[str] = (),
) -> tuple[Scope, ...]:
    """Where memory may go, from broad to narrow; the session's own always, what is switched off never.

    With more than one user, one who wrote and has left included, none of them has user-scoped memory: nothing
    of one leaks to another. A group's memory holds only what was said among its members. Without a
    known user nobody's authority is behind what is said: agent and group then learn of it only if settings say so.
    Where sharing is private, the agent learns nothing from a session with users, and a group only from several;
    `heard`: users wrote in it whom nobody names; `given`: it was added for all of the agent's users; `authors`: of
    several participants, those who have user-scoped memory all the same, of what they say of themselves.
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
        scopes += [of_user(agent, one) for one in authors]
    scopes = [one for one in scopes if one.kind not in facts.off]
    scopes.append(Scope.of_session(agent, session_id, tuple(audience), generation))
    return tuple(scopes)


def _are_members(facts: SessionFacts, participants: Sequence[str]) -> bool:
    return facts.group_members is None or facts.group_members.issuperset(participants)


class Directory(Protocol):
    """What the application says of its sessions, agents, users and groups."""

    async def look_up(self, session_ids: Iterable[str]) -> dict[str, SessionFacts | Missing]:
        """For every session asked for: what is known, or which document is missing."""
        ...

    @property
    def switches(self) -> bool:
        """Whether sessions or users are described, so that one can be switched off."""
        ...

    async def off(self, authors: Mapping[str, Collection[str]]) -> Off:
        """Which of the sessions (with who wrote in them), and of all their users, are switched off."""
        ...
