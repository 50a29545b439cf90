"""Admission of requests to a server: who calls, with which key, how often; without a key from this machine only."""

import hmac
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from secrets import token_urlsafe
from typing import Any, Literal
from urllib.parse import urlsplit

from pymongo import ReadPreference, WriteConcern
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.errors import EdenError, NotFound
from eden_memory.mongo.documents import document_of, row_of
from eden_memory.names import Names
from eden_memory.schemas.documents import ApiKey
from eden_memory.settings import ServeSettings

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
    def is_operator(self) -> bool:
        """Whether it administers all agents and users."""
        return self.may("admin") and not self.is_bound

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
    if not caller.is_operator:
        raise Refused(
            f"{what} concerns all agents and users", "Use a key with the right `admin` that is bound to none."
        )


def only_id(ids: frozenset[str] | None) -> str | None:
    """Return the id that a caller is bound to, if it is exactly one."""
    return next(iter(ids)) if ids is not None and len(ids) == 1 else None


LOCAL = Caller("local", agents=None, users=None, rights=frozenset(RIGHTS))
"""Whoever asks without a key; only ever let in on loopback."""


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


MOST_KEPT = 10_000
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
OTHER_SITES = frozenset(("cross-site", "same-site"))
"""Values of Sec-Fetch-Site: a page of another site, or of another port or name of this one, makes the request.

`none` is an address that somebody typed, or opened from a bookmark or another program.
"""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Rates:
    """`per_minute`: of callers whose key sets no limit of its own; None: as many as they like.

    Counted in this process: with several copies behind a balancer each lets so many through.
    """

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_of(self, caller: Caller) -> float:
        """0.0 and one request is counted, or the seconds until the next one is let through."""
        limit = caller.requests_per_minute or self._per_minute
        if limit is None:
            return 0.0
        now, full = self._clock(), float(limit)
        bucket = self._buckets.setdefault(caller.name, _Bucket(full, now))
        self._buckets.move_to_end(caller.name)
        bucket.tokens = min(full, bucket.tokens + (now - bucket.at) * full / 60)
        bucket.at = now
        if len(self._buckets) > MOST_KEPT:
            self._buckets.popitem(last=False)
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return 0.0
        return (1 - bucket.tokens) * 60 / full


class Turned(EdenError):  # noqa: N818 - a decision, no fault
    """Not let in; `status` as HTTP says it: 401, 403 or 429."""

    status = 403


class Unknown(Turned):
    """Neither a valid key, nor allowed without one."""

    status = 401


class TooMany(Turned):
    """Over the caller's limit; `seconds` until the next request is let through."""

    status = 429

    def __init__(self, seconds: float) -> None:
        super().__init__("too many requests", f"Again in {seconds:.1f} s.")
        self.seconds = seconds


class RequestAdmission:
    """One for all doors of a process, so that a caller has one limit for all of them."""

    def __init__(self, keys: ApiKeys, settings: ServeSettings, rates: Rates | None = None) -> None:
        self._keys, self._settings = keys, settings
        self._rates = Rates(settings.requests_per_minute) if rates is None else rates
        self._names = LOOPBACK | {host.lower() for host in settings.hosts}

    async def admit(self, headers: Iterable[tuple[bytes, bytes]], *, bearer: bool = True) -> Caller:
        """Return the caller of an ASGI request, and count it; `bearer` as :func:`secret_of`. Raises Turned."""
        given = list(headers)
        caller = await self._caller(secret_of(given, bearer=bearer), given)
        if wait := self._rates.wait_of(caller):
            raise TooMany(wait)
        return caller

    async def still(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Turned, if the key in these headers of an ASGI request, that was let in before, is not valid any more."""
        secret = secret_of(headers)
        if secret is not None and await self._keys.caller_of(secret) is None:
            raise Unknown("this key is not valid any more")

    async def _caller(self, secret: str | None, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        if secret is not None:
            found = await self._keys.caller_of(secret)
            if found is None:
                raise Unknown("this key is not valid", "`eden keys create` makes one.")
            return found
        if self._settings.require_key or not is_loopback(self._settings.host):
            raise Unknown(
                "a key is needed", "Send it as `Authorization: Bearer eden_…` or `X-Eden-Key: eden_…`."
            )
        self._demand_own_page(headers)
        return LOCAL

    def _demand_own_page(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise Turned for what a foreign page in a browser here asks for: it reaches this machine, too.

        It gives itself away by the Host or the Origin, or, where it sends no Origin (pictures, frames, links), by
        Sec-Fetch-Site. A page of an allowed origin always sends its Origin when it may read the answer.
        """
        host, origin, site = (_header(headers, name) for name in (b"host", b"origin", b"sec-fetch-site"))
        if host is None or host_name(host) not in self._names:
            raise Turned(
                "this Host is not served without a key", "Ask for localhost, or set EDEN_SERVE_HOSTS."
            )
        if origin is not None and origin in self._settings.cors_origins:
            return
        if origin is not None and not is_own_origin(origin, host):
            raise Turned(
                "this Origin is not allowed without a key", "EDEN_SERVE_CORS_ORIGINS lists the allowed ones."
            )
        if site in OTHER_SITES:
            raise Turned(
                "a page of another site may not ask for this without a key",
                "Type the address into the browser, or paste it.",
            )


def _header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in headers if name == wanted), None)


def host_name(host: str) -> str:
    """The name in a Host header, without the port, in small letters; "" if it cannot be read."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def is_own_origin(origin: str, host: str) -> bool:
    """Whether a page of this origin came from the very server that is asked as `host`."""
    try:
        read = urlsplit(origin)
    except ValueError:
        return False
    return read.scheme in ("http", "https") and read.netloc.lower() == host.lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def secret_of(headers: Iterable[tuple[bytes, bytes]], *, bearer: bool = True) -> str | None:
    """The key in an ASGI request: X-Eden-Key, or else (`bearer`) Authorization; None: none is shown."""
    found = {name.lower(): value.decode("latin-1").strip() for name, value in headers}
    if b"x-eden-key" in found:
        return found[b"x-eden-key"]
    scheme, _, token = found.get(b"authorization", "").partition(" ")
    if not bearer or not scheme:
        return None
    return token.strip() if scheme.lower() == "bearer" else ""
