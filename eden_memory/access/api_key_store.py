"""API keys in the collection `api_keys`: their hashes, what they allow, and when they were last used."""

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any

from pymongo import ReadPreference, WriteConcern
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.access.callers import PREFIX, RIGHTS, SECRET, Caller, Right
from eden_memory.errors import EdenError, NotFound
from eden_memory.mongo.documents import document_of, row_of
from eden_memory.names import Names
from eden_memory.schemas.documents import ApiKey

CACHED_SECONDS = 5.0
"""A revoked key stops working after at most this time, whatever the wall clock does meanwhile."""
USED_EVERY = timedelta(minutes=10)
"""`last_used_at` is at most this far behind."""
MOST_CACHED = 10_000
SHORTEST_HASH = 8
"""Characters of a hash that name a key."""


class ApiKeys:
    """The API keys of one namespace; a key that was looked up is cached for CACHED_SECONDS."""

    def __init__(
        self,
        database: AsyncDatabase[dict[str, Any]],
        names: Names,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` dates what is stored; `elapsed` ends what is cached."""
        self._keys = database.get_collection(
            names[ApiKey.COLLECTION],
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority"),
        )
        self._clock, self._elapsed = clock, elapsed
        self._cached: OrderedDict[str, tuple[float, Caller | None]] = OrderedDict()

    async def caller_of(self, secret: str) -> Caller | None:
        """Return the caller with this key; None if it is not a key, unknown or revoked."""
        if SECRET.fullmatch(secret) is None:
            return None
        digest, now = _digest(secret), self._elapsed()
        cached = self._cached.get(digest)
        if cached is not None and now < cached[0]:
            return cached[1]
        key = await self._find({"_id": digest})
        caller = _caller(key) if key is not None and _opens(key, digest) else None
        self._cache(digest, now, caller)
        if key is not None and caller is not None:
            await self._note_use(key, self._clock())
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
        """Create a key and return its secret, which is stored nowhere. Ids typed; EdenError if the name is taken."""
        if await self._find({"name": str(name), "revoked_at": None}) is not None:
            raise EdenError(f"there is a key named {name!r}", "Revoke it first, or take another name.")
        secret = PREFIX + token_urlsafe(32)
        key = ApiKey(
            id=_digest(secret),
            name=name,
            agents=None if agents is None else tuple(agents),
            users=None if users is None else tuple(users),
            rights=tuple(right for right in RIGHTS if right in rights),
            requests_per_minute=requests_per_minute,
            created_at=self._clock(),
        )
        await self._keys.insert_one(row_of(key))
        return secret, key

    async def list(self) -> list[ApiKey]:
        """Return all keys, oldest first, including revoked ones."""
        rows = await self._keys.find({}).sort([("created_at", 1), ("_id", 1)]).to_list()
        return [document_of(ApiKey, row) for row in rows]

    async def any_valid(self) -> bool:
        """Whether there is a key that is not revoked."""
        return await self._keys.find_one({"revoked_at": None}, {"_id": 1}) is not None

    async def named(self, named: str) -> ApiKey:
        """Return the valid key of this name, or by 8 or more first characters of its hash; NotFound if none is."""
        live = [key for key in await self.list() if key.revoked_at is None]
        meant = [key for key in live if key.name == named] or [
            key for key in live if len(named) >= SHORTEST_HASH and key.id.startswith(named)
        ]
        if len(meant) != 1:
            raise NotFound(f"no valid key is named {named!r}", "`eden keys list` shows them.")
        return meant[0]

    async def revoke(self, named: str) -> ApiKey:
        """Revoke a key, named as above.

        A restored backup knows nothing of it: whoever revokes a key for good records it in the inbox, too.
        """
        key, now = await self.named(named), self._clock()
        await self._keys.update_one({"_id": key.id, "revoked_at": None}, {"$set": {"revoked_at": now}})
        self._cached.pop(key.id, None)
        return key.model_copy(update={"revoked_at": now})

    async def _find(self, wanted: Mapping[str, Any]) -> ApiKey | None:
        row = await self._keys.find_one(wanted)
        return None if row is None else document_of(ApiKey, row)

    def _cache(self, digest: str, now: float, caller: Caller | None) -> None:
        self._cached[digest] = (now + CACHED_SECONDS, caller)
        self._cached.move_to_end(digest)
        if len(self._cached) > MOST_CACHED:
            self._cached.popitem(last=False)

    async def _note_use(self, key: ApiKey, now: datetime) -> None:
        """A time to come, by a clock that ran ahead, is replaced too."""
        if key.last_used_at is None or abs(now - key.last_used_at) > USED_EVERY:
            await self._keys.update_one({"_id": key.id}, {"$set": {"last_used_at": now}})


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
