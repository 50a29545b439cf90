"""What no client should send: texts, JSON values and whole bodies; and what each door is asked with them."""

import base64
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

TOKEN = "eyJhbGciOiJIUzI1NiJ9." + base64.urlsafe_b64encode(b"[" * 2_000).decode().rstrip("=") + ".c2ln"
"""Its claims are nested too deeply for a reader of JSON."""
TEXTS = (
    f"My token is {TOKEN}",
    "[" * 100_000,
    '{"a":' * 5_000,
    "\ud800",
    "a\udfffb",
    "\0",
    "a\0b",
    "\u202e\u200e\u061c\u2028\x85\U000e0041\U000e0100",
    "\x1b[2J\x07",
    "²³¹" * 6,
    "١٢٣٤" * 5,
    "e" + "\u0301" * 5_000,
    "\uffff\ufdd0\U0010ffff",
    "]]></MemoryContext>&lt;%s%n${x}{{y}}",
    "$where",
    "-----BEGIN RSA PRIVATE KEY-----",
    "postgres://a:b@c",
    "4 " * 10_000,
    "x" * 300_000,
    " " * 5_000,
    "",
)
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, float("nan"), float("inf"), [], {}, [None], [[]],
    {"$ne": None}, {"$where": "1"}, {"": ""}, {"a": {"b": [1, {"c": None}]}}, ["\ud800"], [{"type": "text"}],
    [{"type": "text", "text": {"value": 5}}], "2026-02-30T00:00:00Z", "9999-12-31T23:59:59-14:00", "0000", *TEXTS,
)  # fmt: skip
BODIES = (
    b"", b"null", b"[", b"[" * 100_000, b'{"a":' * 100_000, b"[" * 2_000 + b"]" * 2_000, b"\xff\xfe", b"\x00" * 100,
    b"\xef\xbb\xbf{}", b'"' + b"x" * 100_000, b"{}", b"[]", b"1", b"-", b"1" * 10_000, b"NaN", b"PK\x03\x04",
    b'{"text": ' + b"9" * 5_000 + b"}", b'{"text": "\\ud800"}', b'{"text": "a", "text": "b"}', b'{"\\u0000": 1}',
    b'{"queries": ["\\ud800"]}', b'{"messages": [{"role": "user", "content": "\\udfff"}]}',
)  # fmt: skip


class OddRequest(NamedTuple):
    """An HTTP request."""

    method: str
    path: str
    body: bytes | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path[:90]!r} {(self.body or b'')[:120]!r}"


def written(value: Any) -> bytes:
    """JSON as a careless program writes it: lone surrogates as escapes, and numbers that JSON does not have."""
    return json.dumps(value).encode()


def part(text: str) -> str:
    """A text in a path or a query."""
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


SHORT = tuple(text for text in TEXTS if len(part(text)) < 4_000)
"""Those that a server takes in an address."""


def http_requests() -> Iterator[OddRequest]:
    """Requests to all routes of the HTTP API."""
    root = "/v1/agents/a"
    for text in SHORT:
        named = part(text)
        for path in ("context", "why", "facts", "reflections", "blobs", "stats", "consolidation"):
            yield OddRequest("GET", f"{root}/{path}?user={named}")
            yield OddRequest("GET", f"{root}/{path}?session={named}&user=ada")
        yield OddRequest("GET", f"{root}/context?user=ada&message={named}")
        yield OddRequest("GET", f"{root}/why?user=ada&text={named}")
        yield OddRequest("GET", f"{root}/facts?user=ada&cursor={named}&since={named}&limit={named}")
        yield OddRequest("GET", f"{root}/facts?user=ada&cursor={named}")
        yield OddRequest("GET", f"{root}/reflections?user=ada&cursor={named}")
        for path in ("facts", "reflections", "streams"):
            yield OddRequest("GET", f"{root}/{path}/{named}")
        yield OddRequest("GET", f"{root}/facts/{named}/history")
        yield OddRequest("GET", f"/v1/agents/{named}/context?user=ada")
        yield OddRequest("GET", f"/v1/users/{named}/export")
        yield OddRequest("GET", f"/v1/receipts/{named}?topics=false")
        yield OddRequest("PATCH", f"{root}/streams/{named}", written({"active": True}))
        yield OddRequest("POST", f"{root}/sessions/{named}/start?user={named}")
        yield OddRequest("POST", f"{root}/sessions/{named}/end?user={named}")
        yield OddRequest("POST", f"{root}/sessions/{named}/form?user={named}")
        yield OddRequest("DELETE", f"/v1/users/{named}")
    for value in VALUES:
        for path, body in _bodies(value):
            method = (
                "PATCH" if path.startswith(("facts/", "reflections/", "blobs/user", "streams/")) else "POST"
            )
            yield OddRequest(method, f"{root}/{path}?user=ada", written(body))
        yield OddRequest("POST", "/v1/receipts/verify", written({"receipt": value}))
    for body in BODIES:
        for path in ("memories", "search", "forget", "undo", "undo/preview"):
            yield OddRequest("POST", f"{root}/{path}?user=ada", body)
        yield OddRequest("PATCH", f"{root}/streams/agent", body)
        yield OddRequest("POST", "/v1/receipts/verify", body)


def _bodies(value: Any) -> Iterator[tuple[str, Any]]:
    yield "memories", {"text": value}
    yield "memories", {"text": value, "verbatim": True}
    yield "memories", {"text": "said", "at": value, "scope": value}
    for field in ("content", "role", "user_id", "created_at", "at"):
        yield "memories", {"messages": [{"role": "user", "content": "said", field: value}]}
    yield "memories", {"messages": value}
    yield "search", {"queries": [value]}
    yield "search", {"queries": value}
    for field in ("top_k", "search_type", "kinds", "scopes", "as_of", "occurred_after", "sort"):
        yield "search", {"queries": ["tea"], field: value}
    yield "forget", {"what": "message", "target": value}
    yield "forget", {"what": value, "target": "m"}
    yield "undo/preview", {"cause": "session", "target": value}
    yield "undo", {"cause": value, "target": value}
    yield "facts/f-1", {"text": value, "expected_version": value}
    yield "reflections/r-1", {"text": value}
    yield "blobs/user:s.a:s.ada", {"text": value, "expected_version": 1}
    yield "blobs/user:s.a:s.ada/pin", {"sentence": value}
    yield "facts/f-1/retire", {"expected_version": value}
    for field in ("active", "extraction_guidance", "word_limit", "threshold", "sharing"):
        yield "streams/shard:x", {field: value}


def mcp_calls() -> Iterator[Any]:
    """Calls of all tools, with one odd argument each; and requests that are none."""
    arguments = {
        "search_facts": {"queries": ["tea"], "top_k": 3, "as_of": None, "scopes": None, "user": "ada"},
        "get_memory_context": {"message": "tea", "session": "", "user": "ada"},
        "list_facts": {"active": "all", "limit": 5, "cursor": "", "user": "ada"},
        "why": {"text": "tea", "user": "ada"},
        "add_memory": {"text": "Likes tea.", "scope": "", "at": None, "verbatim": False, "user": "ada"},
        "forget": {"what": "fact", "target": "f-1", "user": "ada"},
        "edit_memory": {"memory_id": "f-1", "text": "Likes tea.", "user": "ada"},
        "retire_memory": {"memory_id": "f-1", "user": "ada"},
        "pin_sentence": {"scope": "user:s.a:s.ada", "sentence": "Likes tea.", "user": "ada"},
        "preview_undo": {"cause": "session", "target": "s1", "user": "ada"},
        "forget_receipt": {"request_id": "x"},
    }
    for name, given in arguments.items():
        for field in given:
            for value in VALUES:
                yield {"method": "tools/call", "params": {"name": name, "arguments": {**given, field: value}}}
    for value in VALUES:
        yield {"method": "tools/call", "params": {"name": value, "arguments": value}}
        yield {"method": "tools/call", "params": value}
        yield {"method": value}
        yield {"method": "resources/read", "params": {"uri": value}}
    for text in SHORT:
        yield {"method": "resources/read", "params": {"uri": f"memory://context/{part(text)}/{part(text)}"}}


def chats() -> Iterator[bytes]:
    """Bodies of chat completion requests."""
    for value in VALUES:
        for message in (
            {"role": "user", "content": value},
            {"role": "user", "content": [{"type": "text", "text": value}]},
            {"role": value, "content": "hello"},
            {"role": "tool", "tool_call_id": value, "content": value},
            value,
        ):
            yield written({"model": "m", "memory_id": "s1", "user": "ada", "messages": [message]})
        for field in (
            "memory_id",
            "user",
            "memory_top_k",
            "memory_recency_weight",
            "memory_score_threshold",
            "n",
        ):
            said = [{"role": "user", "content": "What did I say about tea?"}]
            yield written({"model": "m", "memory_id": "s1", "user": "ada", "messages": said, field: value})
    yield from BODIES


def pages() -> Iterator[str]:
    """Addresses of the inspector's pages."""
    shown = (
        "",
        "agents",
        "agent",
        "scope",
        "facts",
        "fact",
        "reflections",
        "reflection",
        "windows",
        "window",
    )
    for text in SHORT:
        named = part(text)
        for page in (*shown, "context", "costs", "sessions", "message", "add", "change", "live"):
            yield f"/ui/{page}?agent=a&user={named}&session={named}&key={named}&id={named}&q={named}"
            yield f"/ui/{page}?agent={named}&message={named}&kind={named}&state={named}&cursor={named}&by={named}"
