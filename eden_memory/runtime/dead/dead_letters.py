"""Dead letters: the original bytes, key and headers, and beside them, as Kafka Connect does, why."""

import traceback
from dataclasses import dataclass
from datetime import datetime

from eden_memory.domain.outcome import StoredRecord
from eden_memory.domain.source.records import DEAD_HEADERS
from eden_memory.runtime.contract.topics import DEAD
from eden_memory.runtime.stages.failures import Failure
from eden_memory.runtime.stages.records import Record
from schemas.envelope import rfc3339

_TEXT = 2_000
_TRACE = 8_000


@dataclass(frozen=True, slots=True)
class Cause:
    """Why, where and when a record was given up."""

    stage: str
    group: str
    failure: Failure
    attempts: int
    time: datetime

    def headers(self, record: Record) -> list[tuple[str, str]]:
        """Names (without prefix) and values of the headers that are added."""
        error = self.failure.error
        trace = "".join(traceback.format_exception(error)) if error is not None else ""
        return [
            ("topic", record.topic),
            ("partition", str(record.partition)),
            ("offset", str(record.offset)),
            ("stage", self.stage),
            ("group", self.group),
            ("exception.class.name", _class_name(error)),
            ("exception.message", self.failure.reason[:_TEXT]),
            ("exception.stacktrace", trace[-_TRACE:]),
            ("attempts", str(self.attempts)),
            ("time", rfc3339(self.time)),
        ]


def _class_name(error: BaseException | None) -> str:
    return "Dead" if error is None else f"{type(error).__module__}.{type(error).__qualname__}"


def dead_topic(topic: str) -> str:
    """Where the dead letters of a topic go."""
    return topic + DEAD


def dead_letter(record: Record, cause: Cause) -> StoredRecord:
    """The dead letter of a record; headers of an earlier dead-lettering are replaced."""
    original = [(name, value) for name, value in record.headers if not name.startswith(DEAD_HEADERS)]
    added = [(DEAD_HEADERS + name, value.encode(errors="replace")) for name, value in cause.headers(record)]
    return StoredRecord(
        dead_topic(record.topic), record.ordering_key, record.key, record.value, (*original, *added)
    )


def known_as(record: Record) -> list[str]:
    """What the ledger may know a record by that died: its place and bytes if unreadable, else its event's id."""
    identity = dict(record.headers).get("ce_id")
    return [record.fingerprint, *([identity.decode(errors="replace")] if identity else ())]


def original(record: Record) -> Record:
    """The record that a dead letter holds, where it first stood; a KeyError if the headers do not say so."""
    found = {name: value or b"" for name, value in record.headers if name.startswith(DEAD_HEADERS)}
    return Record(
        topic=found[DEAD_HEADERS + "topic"].decode(),
        partition=int(found[DEAD_HEADERS + "partition"]),
        offset=int(found[DEAD_HEADERS + "offset"]),
        key=record.key,
        value=record.value,
        headers=tuple(pair for pair in record.headers if not pair[0].startswith(DEAD_HEADERS)),
        timestamp=record.timestamp,
    )
