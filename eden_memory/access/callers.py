"""Who asks at a door, and what they may do there: callers, and the API keys that make them."""

import hmac
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any, Literal

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.access.api_key_store import MongoApiKeys
from eden_memory.errors import EdenError, NotFound
from eden_memory.names import Names
from eden_memory.schemas.documents import ApiKey

Right = Literal["read", "write", "admin"]
RIGHTS: tuple[Right, ...] = ("read", "write", "admin")
PREFIX = "eden_"
SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
KEPT_FOR = timedelta(seconds=5)
"""A revoked key opens nothing any more after so long."""
USED_EVERY = timedelta(minutes=10)
"""`last_used_at` is at most so far behind."""
MOST_KEPT = 10_000
SHORTEST = 8
"""Characters of a hash that name a key."""


class Refused(EdenError):  # noqa: N818 - a decision, no fault
    """The caller may not do this; says nothing of what is there."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks; ids typed (schemas.ids), None: all of them. `admin` includes reading and writing."""

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

    def demand(self, right: Right, agent_id: str, user_id: str | None) -> None:
        """Refused, unless it may do this with this agent and user; bound to users, it must name one of them.

        What a session holds is of all its users: eden_memory.api.reach.SessionReach asks for sessions.
        """
        if not self.may(right):
            raise Refused(f"this key has no right to {right}", "Use a key that was created with it.")
        if self.agents is not None and agent_id not in self.agents:
            raise Refused("this key is not for this agent", "Name an agent that it is bound to.")
        if self.users is None:
            return
        if user_id is None:
            raise Refused("this key is bound to users, and none is named", "Name one of them as the user.")
        if user_id not in self.users:
            raise Refused("this key is not for this user", "Name a user that it is bound to.")


LOCAL = Caller("local", agents=None, users=None, rights=frozenset(RIGHTS))
"""Whoever asks without a key; only ever let in on loopback."""


class ApiKeys:
    """Keys as MongoDB has them, looked up again after KEPT_FOR: so long after its revocation a key may still work."""

    def __init__(
        self,
        database: AsyncDatabase[dict[str, Any]],
        names: Names,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._stored, self._clock = MongoApiKeys(database, names), clock
        self._kept: OrderedDict[str, tuple[datetime, Caller | None]] = OrderedDict()

    async def caller_of(self, secret: str) -> Caller | None:
        """Whose key this is; None for what is no key, unknown or revoked."""
        if SECRET.fullmatch(secret) is None:
            return None
        digest, now = _digest(secret), self._clock()
        kept = self._kept.get(digest)
        if kept is not None and now < kept[0]:
            return kept[1]
        key = await self._stored.find(digest)
        caller = _caller(key) if key is not None and _opens(key, digest) else None
        self._keep(digest, now, caller)
        if key is not None and caller is not None:
            await self._note_use(key, now)
        return caller

    async def create(
        self,
        name: str,
        *,
        agents: Sequence[str] | None = None,
        users: Sequence[str] | None = None,
        rights: Sequence[Right] = ("read", "write"),
        requests_per_minute: int | None = None,
    ) -> tuple[str, ApiKey]:
        """A new key and its secret, which is not kept anywhere. Ids typed; EdenError if the name is taken."""
        if await self._stored.named(name) is not None:
            raise EdenError(f"there is a key named {name!r}", "Revoke it first, or take another name.")
        secret = PREFIX + token_urlsafe(32)
        key = ApiKey(
            id=_digest(secret),
            name=name,
            agents=None if agents is None else tuple(agents),
            users=None if users is None else tuple(users),
            rights=tuple(one for one in RIGHTS if one in rights),
            requests_per_minute=requests_per_minute,
            created_at=self._clock(),
        )
        await self._stored.insert(key)
        return secret, key

    async def list(self) -> list[ApiKey]:
        """All keys, oldest first, revoked ones included."""
        return await self._stored.all()

    async def any_valid(self) -> bool:
        """Whether any key opens anything."""
        return await self._stored.any_valid()

    async def revoke(self, named: str) -> ApiKey:
        """End a key, by its name or the beginning of its hash (8 characters at least). EdenError if none is meant."""
        live = [one for one in await self._stored.all() if one.revoked_at is None]
        meant = [one for one in live if one.name == named] or [
            one for one in live if len(named) >= SHORTEST and one.id.startswith(named)
        ]
        if len(meant) != 1:
            raise NotFound(f"no valid key is named {named!r}", "`eden keys list` shows them.")
        now = self._clock()
        await self._stored.revoke(meant[0].id, now)
        self._kept.pop(meant[0].id, None)
        return meant[0].model_copy(update={"revoked_at": now})

    def _keep(self, digest: str, now: datetime, caller: Caller | None) -> None:
        self._kept[digest] = (now + KEPT_FOR, caller)
        self._kept.move_to_end(digest)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    async def _note_use(self, key: ApiKey, now: datetime) -> None:
        if key.last_used_at is None or now - key.last_used_at > USED_EVERY:
            await self._stored.used(key.id, now)


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _opens(key: ApiKey, digest: str) -> bool:
    return hmac.compare_digest(key.id, digest) and key.revoked_at is None


def _caller(key: ApiKey) -> Caller:
    return Caller(
        name=key.name,
        agents=None if key.agents is None else frozenset(key.agents),
        users=None if key.users is None else frozenset(key.users),
        rights=frozenset(key.rights),
        requests_per_minute=key.requests_per_minute,
    )
