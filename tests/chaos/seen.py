"""What a record of `chat.messages` says, as far as a verdict needs it."""

from typing import Any, Literal, NamedTuple

import orjson

Kind = Literal["message", "ended", "control", "watermark"]
KINDS: dict[str, Kind] = {
    "eden.MessageRecorded.v1": "message",
    "eden.SessionEnded.v1": "control",
    "eden.FormationAsked.v1": "control",
    "eden.Watermark.v1": "watermark",
}


class Seen(NamedTuple):
    """One record; `at` is when the reader got it (monotonic seconds), `reason` that of a tombstone."""

    partition: int
    offset: int
    key: str
    kind: Kind
    version: str
    session: str
    text: str = ""
    reason: str = ""
    at: float = 0.0


def seen(record: Any, at: float = 0.0) -> Seen | None:
    """Of a consumer's record; None for one that is not the tailer's (the filler before compaction)."""
    headers = {name: value.decode() for name, value in record.headers}
    kind = KINDS.get(headers.get("ce_type", ""))
    if kind is None:
        return None
    place = record.partition, record.offset, record.key.decode()
    if record.value is None:
        version, scope = headers["ce_entityversion"], headers.get("ce_scope", "")
        return Seen(*place, "ended", version, scope, reason=headers["ce_reason"], at=at)
    fields = orjson.loads(record.value)
    return Seen(*place, kind, fields["version"], fields.get("session_id", ""), fields.get("text", ""), at=at)
