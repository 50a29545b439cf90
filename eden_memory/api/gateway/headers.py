"""Which headers go on to the provider, and which come back: all but those of one connection, and ours. Pure."""

from collections.abc import Iterable

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


def to_provider(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Of a caller's headers (names in lower case) those that go on."""
    given = list(headers)
    left = NOT_SENT | _of_connection(given)
    kept = [(name, value) for name, value in given if name not in left and not _ours(name)]
    return [*kept, (b"accept-encoding", b"identity")]


def to_caller(headers: Iterable[tuple[bytes, bytes]], *, changed: bool) -> Headers:
    """Of a provider's headers those that come back; `changed`: the body will have another length."""
    given = [(name.lower(), value) for name, value in headers]
    left = HOP_BY_HOP | _of_connection(given) | ({b"content-length"} if changed else frozenset[bytes]())
    return [(name, value) for name, value in given if name not in left]


def _ours(name: bytes) -> bool:
    return name.replace(b"_", b"-").startswith(OURS)


def _of_connection(headers: Headers) -> frozenset[bytes]:
    """Names that `Connection` lists; what authenticates the caller is not its to take away."""
    listed = [
        one.strip().lower() for name, value in headers if name == b"connection" for one in value.split(b",")
    ]
    return frozenset(one for one in listed if one != b"authorization")
