"""What a record of `chat.messages` says, as far as a verdict needs it."""

from typing import Any, Literal, NamedTuple

import orjson

Kind = Literal["message", "ended", "control", "watermark"]
KINDS: dict[str, Kind] = {
    "eden.MessageRecorded": "message",
    "eden.SessionEnded": "control",
    "eden.FormationAsked": "control",
    "eden.Watermark": "watermark",
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
    id: str = ""
    """The envelope's: of two records with one id a stage drops the second as a repeat."""


def seen(record: Any, at: float = 0.0) -> Seen | None:
    """Of a consumer's record; None for one that is not the tailer's (the filler before compaction)."""
    headers = {name: value.decode() for name, value in record.headers}
    kind = KINDS.get(headers.get("ce_type", "").rpartition(".v")[0])
    if kind is None:
        return None
    place = record.partition, record.offset, record.key.decode()
    identity = f"{headers['ce_source']}/{headers['ce_id']}"
    if record.value is None:
        version, scope = headers["ce_entityversion"], headers.get("ce_scope", "")
        return Seen(*place, "ended", version, scope, reason=headers["ce_reason"], at=at, id=identity)
    fields = orjson.loads(record.value)
    session, text = fields.get("session_id", ""), fields.get("text", "")
    return Seen(*place, kind, fields["version"], session, text, at=at, id=identity)
