"""Admission of requests to a server: with a valid key, or without a key from this machine only."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from eden_memory.access.api_key_store import ApiKeys
from eden_memory.access.callers import LOCAL, Caller
from eden_memory.errors import EdenError
from eden_memory.settings import ServeSettings

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
