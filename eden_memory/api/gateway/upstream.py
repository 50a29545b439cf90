"""Call the provider behind the gateway over one pool of connections; callers share no state."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx2

from eden_memory.errors import EdenError
from eden_memory.settings import GatewaySettings

Headers = list[tuple[bytes, bytes]]

KEY = b"x-eden-key"
OURS = b"x-eden-"
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
NOT_SENT = HOP_BY_HOP | {
    b"host",
    b"content-length",
    b"accept-encoding",
    b"cookie",
    b"expect",
    b"origin",
    b"referer",
}
"""Nor what is of the browser and of our own address; the body is measured anew, and is to come uncompressed."""
IDLE_SECONDS = 60.0
CONNECT_SECONDS, SILENCE_SECONDS = 10.0, 600.0
"""For connecting to the provider, and its longest silence."""
MOST_CHATS = 500
"""Concurrent chats; more wait."""
PATHS_KEPT = 100


def to_provider(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the caller's headers (names in lower case) that are sent to the provider."""
    given = list(headers)
    left = NOT_SENT | _of_connection(given)
    kept = [(name, value) for name, value in given if name not in left and not _ours(name)]
    return [*kept, (b"accept-encoding", b"identity")]


def to_caller(headers: Iterable[tuple[bytes, bytes]], *, changed: bool) -> Headers:
    """Return the provider's headers that are sent to the caller; `changed`: the body's length will differ."""
    given = [(name.lower(), value) for name, value in headers]
    left = HOP_BY_HOP | _of_connection(given) | ({b"content-length"} if changed else frozenset[bytes]())
    return [(name, value) for name, value in given if name not in left]


def _ours(name: bytes) -> bool:
    return name.replace(b"_", b"-").startswith(OURS)


def _of_connection(headers: Headers) -> frozenset[bytes]:
    """Return the names that `Connection` lists, without the header that authenticates the caller."""
    listed = [
        header.strip().lower()
        for name, value in headers
        if name == b"connection"
        for header in value.split(b",")
    ]
    return frozenset(header for header in listed if header != b"authorization")


class Away(EdenError):  # noqa: N818 - a state of the provider
    """The provider cannot be reached, or broke off before its answer; `status` is 502 or 504."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what, "Try again; the gateway's log and the provider's status page say more.")
        self.status = status


class Upstream:
    """The provider; create it in the event loop that uses it. It follows no redirects and stores no cookies."""

    def __init__(self, settings: GatewaySettings) -> None:
        """Raise EdenError if no provider is set, or its address is not valid."""
        if settings.upstream is None:
            raise EdenError("no provider is set", "Set EDEN_GATEWAY_UPSTREAM, as https://api.openai.com/v1")
        self._base = httpx2.URL(settings.upstream.rstrip("/"))
        if self._base.scheme not in ("http", "https") or not self._base.host:
            raise EdenError(
                "EDEN_GATEWAY_UPSTREAM is no address", "Give a base URL, as https://api.openai.com/v1"
            )
        limits = httpx2.Limits(
            max_connections=MOST_CHATS,
            max_keepalive_connections=MOST_CHATS,
            keepalive_expiry=IDLE_SECONDS,
        )
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        nothing_kept = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        self._client = httpx2.AsyncClient(limits=limits, timeout=timeout, cookies=nothing_kept)
        self._timeout = {"timeout": timeout.as_dict()}
        self._urls: dict[str, httpx2.URL] = {}

    @asynccontextmanager
    async def asked(
        self, method: str, path: str, query: bytes, headers: Headers, body: bytes | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        """Yield the response with its body unread; the block's end frees the connection. May raise Away."""
        url = self._url(path)
        url = url.copy_with(query=query) if query else url
        request = httpx2.Request(method, url, headers=headers, content=body, extensions=self._timeout)
        try:
            response = await self._client.send(request, stream=True)
        except httpx2.TimeoutException as error:
            raise Away(504, f"the provider did not answer in time ({type(error).__name__})") from None
        except httpx2.HTTPError as error:
            raise Away(
                502, f"the provider at EDEN_GATEWAY_UPSTREAM cannot be reached ({type(error).__name__})"
            ) from None
        try:
            yield response
        finally:
            await response.aclose()

    def _url(self, path: str) -> httpx2.URL:
        """Return the URL of a path; parse it once, since that costs more than the rest of a request."""
        if path not in self._urls:
            if len(self._urls) >= PATHS_KEPT:
                self._urls.clear()
            self._urls[path] = self._base.copy_with(path=self._base.path.rstrip("/") + path)
        return self._urls[path]

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()
