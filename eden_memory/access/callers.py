"""Callers of a server: who they are, and which rights, agents and users they are limited to."""

import re
from dataclasses import dataclass
from typing import Literal

from eden_memory.errors import EdenError

Right = Literal["read", "write", "admin"]
RIGHTS: tuple[Right, ...] = ("read", "write", "admin")
PREFIX = "eden_"
SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")


class Refused(EdenError):  # noqa: N818 - a decision, no fault
    """The caller may not do this; says nothing of what is there."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller; ids typed (schemas.ids), None: all of them. `admin` includes reading and writing."""

    name: str
    agents: frozenset[str] | None
    users: frozenset[str] | None
    rights: frozenset[Right]
    requests_per_minute: int | None = None

    @property
    def is_bound(self) -> bool:
        """Whether it is for some agents or users only."""
        return self.agents is not None or self.users is not None

    @property
    def changes_shared(self) -> bool | None:
        """Whether it may edit, retire and forget what an agent, group or shard remembers, which others see too.

        None: as the operator, where it names no user; for a user that it names, what rests on that user alone.
        """
        return None if self.users is None else self.may("admin")

    def may(self, right: Right) -> bool:
        """Whether it has the right at all."""
        return right in self.rights or "admin" in self.rights

    def demand_right(self, right: Right) -> None:
        """Refused, unless it has the right at all."""
        if not self.may(right):
            raise Refused(f"this key has no right to {right}", "Use a key that was created with it.")

    def demand(self, right: Right, agent_id: str, user_id: str | None) -> None:
        """Refused, unless it may do this with this agent and user; bound to users, it must name one of them.

        What a session holds is of all its users: eden_memory.operations.reach.SessionReach asks for sessions.
        """
        self.demand_right(right)
        if self.agents is not None and agent_id not in self.agents:
            raise Refused("this key is not for this agent", "Name an agent that it is bound to.")
        if self.users is None:
            return
        if user_id is None:
            raise Refused("this key is bound to users, and none is named", "Name one of them as the user.")
        if user_id not in self.users:
            raise Refused("this key is not for this user", "Name a user that it is bound to.")


def demand_operator(caller: Caller, what: str) -> None:
    """Refused, unless the caller administers all agents and users; `what` concerns them."""
    if not caller.may("admin") or caller.is_bound:
        raise Refused(
            f"{what} concerns all agents and users", "Use a key with the right `admin` that is bound to none."
        )


def only_id(ids: frozenset[str] | None) -> str | None:
    """Return the id that a caller is bound to, if it is exactly one."""
    return next(iter(ids)) if ids is not None and len(ids) == 1 else None


LOCAL = Caller("local", agents=None, users=None, rights=frozenset(RIGHTS))
"""Whoever asks without a key; only ever let in on loopback."""
