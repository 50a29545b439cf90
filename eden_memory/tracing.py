"""The trace that a record belongs to: W3C trace context, derived from what caused it, never drawn.

What follows from one session shares the session's trace id, so all that a message led to has the message's. A
record's parent id names the record that caused it; a record that nothing caused names itself.
"""

from functools import lru_cache
from hashlib import blake2b

from eden_memory.schemas.envelope import Envelope

PARTS = 4
REMEMBERED = 50_000
"""Sessions whose trace ids are kept at hand."""


@lru_cache(maxsize=REMEMBERED)
def trace_id(about: str) -> str:
    """32 hexadecimal digits: of a session's typed id, or of what else begins a trace."""
    return blake2b(about.encode(), digest_size=16, person=b"eden trace").hexdigest()


def span_id(event_id: str) -> str:
    """16 hexadecimal digits that stand for a record, from its `ce_id`."""
    return blake2b(event_id.encode(), digest_size=8).hexdigest()


def traceparent(about: str, parent: str) -> str:
    """Of a record in the trace of `about` that the record with the `ce_id` `parent` caused (or is, at the root)."""
    return f"00-{trace_id(about)}-{span_id(parent)}-01"


def following(cause: Envelope) -> str:
    """Of a record that `cause` caused; a cause without a trace begins that of its ordering key."""
    parts = (cause.traceparent or "").split("-")
    if len(parts) != PARTS:
        return traceparent(cause.ordering_key, cause.id)
    version, trace, _, flags = parts
    return f"{version}-{trace}-{span_id(cause.id)}-{flags}"
