"""The envelope of every record: CloudEvents 1.0 in Kafka's binary binding.

Attributes stand in `ce_*` headers; the value is the event's JSON alone (`content-type: application/json`).
A tombstone has no value: its headers say which entity ended, at which version and why.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

SPEC_VERSION = "1.0"
CONTENT_TYPE = "application/json"
TYPE_PREFIX = "eden."
SCHEMA_PREFIX = "urn:eden-memory:schema:"
STORE_FORMAT = 1
"""Raise it when documents or records change so that a store, topic or export made before can no longer be read."""
NAME_NOT_UTF8, VALUE_OF_NOT_UTF8 = "eden.name-not-utf8", "eden.value-of-name-not-utf8"
"""Headers in place of one whose name is not UTF-8: its name's bytes, and its value."""

Headers = list[tuple[str, bytes]]
_OPTIONAL = ("traceparent", "ce_entityversion", "ce_scope", "ce_reason")


class EnvelopeError(ValueError):
    """The headers are not those of a CloudEvent that this program can read."""


def event_type(name: str, version: int) -> str:
    """The `ce_type` of a version of an event: `eden.MessageRecorded.v1`."""
    return f"{TYPE_PREFIX}{name}.v{version}"


def data_schema(name: str, version: int) -> str:
    """The `ce_dataschema`: the store format, and the exported file's name, as in `…:1:MessageRecorded.v1`."""
    return f"{SCHEMA_PREFIX}{STORE_FORMAT}:{name}.v{version}"


def store_format_of(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    """The store format of a record, 0 where it names none; None for a record that is not ours."""
    schema = (dict(headers).get("ce_dataschema") or b"").decode(errors="replace")
    number = schema.removeprefix(SCHEMA_PREFIX).partition(":")[0]
    if not schema.startswith(SCHEMA_PREFIX):
        return None
    return int(number) if number.isdecimal() else 0


def parse_type(ce_type: str) -> tuple[str, int]:
    """Name and version out of a `ce_type`; an EnvelopeError if it is not one of ours."""
    name, dot, number = ce_type.removeprefix(TYPE_PREFIX).rpartition(".v")
    if not ce_type.startswith(TYPE_PREFIX) or not dot or not number.isdecimal():
        raise EnvelopeError("ce_type names no event of ours")
    return name, int(number)


@lru_cache(maxsize=256)
def _known_type(ce_type: bytes) -> tuple[str, int]:
    return parse_type(ce_type.decode())


def rfc3339(moment: datetime) -> str:
    """A UTC time with milliseconds, as `ce_time` and every event write it: `2026-01-02T03:04:05.678Z`."""
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds")[:-6] + "Z"


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise EnvelopeError("ce_time has no time zone")
    return moment


class Envelope(NamedTuple):
    """The attributes of one record; `id` is deterministic, from what caused the event and the stage."""

    id: str
    name: str
    version: int
    source: str
    time: datetime
    subject: str
    ordering_key: str
    traceparent: str | None = None
    entity_version: str | None = None
    """Tombstones: the version at which the entity ended."""
    scope: str | None = None
    """Tombstones: the session or scope key that the entity was in, where known."""
    reason: str | None = None
    """Tombstones: why the entity ended."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """The ordering key, and the scope or session that a tombstone names."""
        return tuple(scope for scope in (self.ordering_key, self.scope) if scope)

    def headers(self) -> Headers:
        """As Kafka headers, in a fixed order."""
        pairs = [
            ("ce_specversion", SPEC_VERSION),
            ("ce_id", self.id),
            ("ce_type", event_type(self.name, self.version)),
            ("ce_source", self.source),
            ("ce_time", rfc3339(self.time)),
            ("ce_subject", self.subject),
            ("ce_dataschema", data_schema(self.name, self.version)),
            ("ce_orderingkey", self.ordering_key),
            ("content-type", CONTENT_TYPE),
            ("traceparent", self.traceparent),
            ("ce_entityversion", self.entity_version),
            ("ce_scope", self.scope),
            ("ce_reason", self.reason),
        ]
        return [(name, value.encode()) for name, value in pairs if value is not None]

    @classmethod
    def of_headers(cls, headers: Iterable[tuple[str, bytes | None]]) -> "Envelope":
        """Read back from Kafka headers; unknown ones are ignored, a missing attribute is an EnvelopeError."""
        try:
            found = {name: value for name, value in headers if value is not None}
            get = found.get
            if NAME_NOT_UTF8 in found:
                raise EnvelopeError(f"the name of a header is not UTF-8: {found[NAME_NOT_UTF8]!r}")
            name, version = _known_type(found["ce_type"])
            if found["ce_specversion"] != b"1.0":
                raise EnvelopeError(f"ce_specversion is not {SPEC_VERSION}, the only version that is read")
            return cls(
                found["ce_id"].decode(),
                name,
                version,
                found["ce_source"].decode(),
                _time(found["ce_time"].decode()),
                get("ce_subject", b"").decode(),
                get("ce_orderingkey", b"").decode(),
                *[None if value is None else value.decode() for value in map(get, _OPTIONAL)],
            )
        except KeyError as missing:
            raise EnvelopeError(f"header {missing.args[0]} is missing") from None
        except EnvelopeError:
            raise
        except UnicodeDecodeError:
            raise EnvelopeError("a header is not UTF-8") from None
        except ValueError:
            raise EnvelopeError("ce_time is no time") from None
