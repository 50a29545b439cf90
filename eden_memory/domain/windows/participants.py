"""Who takes part in a session, and where memory of it may go."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from schemas.scopes import Scope

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
    tier: int = 0
    """The highest among the users."""
    private_users: tuple[str, ...] = ()
    user_memory: bool = True
    agent_memory: bool = True
    names: dict[str, str] = field(default_factory=dict[str, str])
    shards: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """A document that the application has not written (yet)."""

    reason: str


def generation_of(users: Sequence[str], audiences: Sequence[Sequence[str]]) -> tuple[int, list[list[str]]]:
    """The generation (1, 2, …) of the session's memory for these users, and the audiences up to it.

    Memory that others heard is not for one who joins: it begins anew. When they have left, the earlier one
    goes on: the one formed among exactly these users, else the newest whose audience they all belong to.
    """
    now = sorted(set(users))
    known = [sorted(set(one)) for one in audiences]
    if now in known:
        return known.index(now) + 1, known
    wider = [number for number, audience in enumerate(known, 1) if set(now) <= set(audience)]
    if wider:
        return wider[-1], known
    return len(known) + 1, [*known, now]


def scopes_of(
    facts: SessionFacts,
    session_id: str,
    users: Sequence[str],
    participants: Sequence[str],
    audience: Sequence[str],
    generation: int,
) -> tuple[Scope, ...]:
    """Where memory may go, from broad to narrow; the session's own always.

    With more than one user, one who wrote and has left included, none of them has user-scoped memory: nothing
    of one leaks to another.
    """
    agent = facts.agent_id
    scopes: list[Scope] = []
    if facts.agent_memory:
        scopes.append(of_agent(agent))
        scopes += [of_shard(agent, name) for name in facts.shards]
        if facts.group_id is not None:
            scopes.append(of_group(agent, facts.group_id))
    if facts.user_memory and len(users) == len(participants) == 1:
        scopes.append(of_user(agent, users[0]))
    scopes.append(Scope.of_session(agent, session_id, tuple(audience), generation))
    return tuple(scopes)
