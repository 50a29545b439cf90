"""`memory_streams`: how an agent's scopes and shards are formed; read through a cache, changed after a check."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, get_args
from urllib.parse import quote

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import EdenError, Invalid, NotFound
from eden_memory.limits import (
    LONGEST_GUIDANCE,
    LONGEST_PROMPT,
    LONGEST_SHARD_NAME,
    MOST_RETENTION_DAYS,
    label_of,
)
from eden_memory.logs import LibraryLogger
from eden_memory.models.catalogue import choice_for, is_url
from eden_memory.models.question import Role
from eden_memory.names import Names
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import Scope, ScopeKind
from eden_memory.settings import Settings

KINDS: tuple[ScopeKind, ...] = get_args(ScopeKind)
BY_NAME: Mapping[str, ScopeKind] = {kind: kind for kind in KINDS}
FIELDS = frozenset(field.alias or name for name, field in Stream.model_fields.items())
"""As a document has them."""
NAMES = frozenset({"_id", "agent_id", "scope", "shard"})
"""The fields that identify a stream."""
SETTABLE = tuple(name for name in Stream.model_fields if name in FIELDS - NAMES)
OF_AGENTS = ("propagation", "propagation_from", "search_tool")
OF_FACTS = (
    "fifo_limit",
    "max_entries",
    "retention_days",
    "min_facts",
    "max_facts",
    "fact_word_limit",
    "fact_model",
)
PROMPTS = {"extraction_prompt": "extraction_guidance", "consolidation_prompt": "consolidation_guidance"}
"""A stream's own prompt, and the guidance in whose place it stands."""
ROLES_OF: Mapping[str, tuple[Role, ...]] = {
    "extraction_model": ("facts", "reflections"),
    "fact_model": ("facts",),
    "consolidation_model": ("consolidation",),
}


log = LibraryLogger()
Row = Mapping[str, Any]
Streams = Mapping[str, Stream]
MOST_AGENTS = 10_000


@dataclass(frozen=True, slots=True)
class StreamName:
    """The agent, and the scope or shard, that a stream configures."""

    agent_id: str
    scope: ScopeKind
    shard: str | None = None

    @classmethod
    def parse(cls, agent_id: str, label: str) -> Self:
        """Read `user`, `shard:pricing`, …; Invalid for anything else. `agent_id` is typed."""
        kind, colon, shard = label.partition(":")
        found = BY_NAME.get(kind)
        if found is None or (found == "shard") != bool(colon):
            raise Invalid(f"there is no scope {label!r:.80}", f"One of: {', '.join(KINDS[:-1])}, shard:NAME.")
        if found == "shard":
            _demand_shard_name(shard)
        return cls(agent_id, found, shard or None)

    @property
    def id(self) -> str:
        """The `_id` of a stream that the program makes."""
        named = (self.agent_id, self.scope, *(() if self.shard is None else (quote(self.shard, safe=""),)))
        return "/".join(named)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the document that say what it configures; null for a scope's shard."""
        return {"agent_id": self.agent_id, "scope": self.scope, "shard": self.shard}


def changed_stream(before: Row, fields: Row, settings: Settings) -> Stream:
    """Return a stream document with these fields set; None unsets a field. Invalid, with the field's name."""
    if unknown := sorted(fields.keys() - set(SETTABLE)):
        raise Invalid(
            f"a stream has no field {unknown[0]!r:.80} to set", f"Its fields: {', '.join(SETTABLE)}."
        )
    kept = {name: value for name, value in {**before, **fields}.items() if value is not None}
    try:
        stream = Stream.model_validate(kept, strict=False)
    except ValidationError as error:
        raise Invalid(
            f"the stream is not valid: {reasons_of(error)}", f"Its fields: {', '.join(SETTABLE)}."
        ) from None
    try:
        stream.model_dump_json()
    except PydanticSerializationError:
        raise Invalid("a text of the stream is not valid Unicode", "Leave out lone surrogates.") from None
    _demand_scope_has(stream)
    _demand_limits(stream)
    for field, roles in ROLES_OF.items():
        _demand_model(field, getattr(stream, field), roles, settings)
    return stream


def reasons_of(error: ValidationError) -> str:
    """Return what is wrong in which fields, without their values."""
    details = error.errors(include_url=False, include_input=False)[:5]
    return "; ".join(f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in details)


def _demand_shard_name(name: str) -> None:
    if not name or len(name) > LONGEST_SHARD_NAME or not name.isprintable() or name != " ".join(name.split()):
        raise Invalid(
            f"{f'shard:{name}'!r:.80} names no shard",
            f"Its name has 1 to {LONGEST_SHARD_NAME} visible characters, and single spaces inside.",
        )


def _demand_scope_has(stream: Stream) -> None:
    if stream.scope == "session" and not stream.active:
        raise Invalid("active: a session's memory is always formed", "Streams switch off the other scopes.")
    if stream.sharing is not None and stream.scope not in ("agent", "shard"):
        raise Invalid("sharing: only an agent or a shard can set it", "Set it for agent, or for shard:NAME.")
    for field in OF_AGENTS:
        if getattr(stream, field) is not None and stream.scope != "agent":
            raise Invalid(f"{field}: only an agent can set it", "Set it for agent.")
    if stream.scope == "session" and stream.extraction_fields == "facts":
        raise Invalid("extraction_fields: a session has no facts", "Leave it unset for the session.")
    of_facts = [name for name in OF_FACTS if getattr(stream, name) is not None]
    if stream.scope == "session" and of_facts:
        raise Invalid(
            f"{of_facts[0]}: a session has no facts", "Set it for user, group, agent or shard:NAME."
        )


def _demand_limits(stream: Stream) -> None:
    for of in ("items", "facts"):
        least, most = getattr(stream, f"min_{of}"), getattr(stream, f"max_{of}")
        if least is not None and most is not None and least > most:
            raise Invalid(f"min_{of} {least} is above max_{of} {most}", f"Raise max_{of}, or lower min_{of}.")
    if (stream.retention_days or 0) > MOST_RETENTION_DAYS:
        raise Invalid(
            f"retention_days is above {MOST_RETENTION_DAYS:,}", "Leave it unset to keep facts for ever."
        )
    for prompt, guidance in PROMPTS.items():
        for field, longest in ((prompt, LONGEST_PROMPT), (guidance, LONGEST_GUIDANCE)):
            if len(getattr(stream, field) or "") > longest:
                raise Invalid(f"{field} is too long", f"It may have {longest:,} characters.")
        if getattr(stream, prompt) is not None and getattr(stream, guidance) is not None:
            raise Invalid(f"{prompt} takes the place of {guidance}", f"Write the guidance into {prompt}.")


def _demand_model(field: str, named: str | None, roles: tuple[Role, ...], settings: Settings) -> None:
    """Raise Invalid for a name that no call could use; whether the provider has the model, only a call shows."""
    if named is None:
        return
    if not named.strip() or not named.isprintable() or " " in named:
        raise Invalid(
            f"{field} names no model",
            "Write MODEL, openai:MODEL, google:MODEL, anthropic:MODEL, offline or URL#MODEL.",
        )
    if is_url(named) and "@" in named.split("/")[2]:
        raise Invalid(
            f"{field}: its URL holds a user name", "Who may read streams could read it: leave it out."
        )
    try:
        for role in roles:
            choice_for(role, 0, settings, named)
    except EdenError:
        raise Invalid(f"{field} is a URL without a model", "Write it as URL#MODEL.") from None


class MongoStreams:
    """Reads an agent's streams at most every `keep_seconds`."""

    def __init__(
        self,
        database: AsyncDatabase[dict[str, Any]],
        names: Names,
        *,
        keep_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._streams = database[names[Stream.COLLECTION]]
        self._keep_seconds, self._clock = keep_seconds, clock
        self._known: dict[str, tuple[float, Streams]] = {}

    async def of(self, agent_id: str) -> Streams:
        """Return the streams of an agent by label, inactive ones too; log and leave out broken documents."""
        known = self._known.get(agent_id)
        if known is not None and self._clock() - known[0] < self._keep_seconds:
            return known[1]
        asked_at, cached = self._clock(), self._known
        rows = await self._streams.find({"agent_id": agent_id}).to_list()
        streams = streams_in(rows)
        if len(cached) >= MOST_AGENTS:
            cached.clear()
        cached[agent_id] = asked_at, streams
        return streams

    def forget(self) -> None:
        """Read everything again when it is next asked for; a reading that goes on now is not cached."""
        self._known = {}


class StreamStore:
    """Lists, finds and changes streams; `settings` of the namespace that is live."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]], settings: Settings) -> None:
        self._streams, self._settings = database[settings.names[Stream.COLLECTION]], settings

    async def list(self, agent_id: str | None = None) -> Sequence[Stream]:
        """Return the streams of an agent, or of all; documents that are none are logged and left out."""
        query = {} if agent_id is None else {"agent_id": agent_id}
        rows = await self._streams.find(query, sort=[("agent_id", 1), ("_id", 1)]).to_list()
        return [stream for row in rows for stream in streams_in([row]).values()]

    async def get(self, name: StreamName) -> Stream:
        """Return a stream; NotFound if there is none, Invalid if its document is none."""
        row = await self._streams.find_one(name.fields)
        if row is None:
            raise NotFound(f"there is no stream {name.id}", "`eden stream list` shows what there is.")
        for stream in streams_in([row]).values():
            return stream
        raise Invalid(f"the document {name.id} is no stream", "Set the fields that the log names.")

    async def set(self, name: StreamName, fields: Row) -> Stream:
        """Set these fields, None unsets one, and make the stream if there is none; Invalid."""
        before = await self._streams.find_one(name.fields) or {**name.fields, "_id": name.id}
        stream = changed_stream(before, fields, self._settings)
        stored = stream.stored()
        update = {
            "$set": {field: stored[field] for field, value in fields.items() if value is not None},
            "$unset": {field: "" for field, value in fields.items() if value is None},
            "$setOnInsert": {field: value for field, value in name.fields.items() if value is not None},
        }
        await self._streams.update_one(
            {"_id": before["_id"]}, {operator: part for operator, part in update.items() if part}, upsert=True
        )
        return stream


def streams_in(rows: Iterable[Row]) -> Streams:
    """Return streams by label; documents that are none are logged and left out."""
    read = filter(None, map(_read, rows))
    return dict(read)


def _read(row: Row) -> tuple[str, Stream] | None:
    try:
        stream = Stream.model_validate(row, strict=False, extra="ignore")
        if unknown := sorted(row.keys() - FIELDS):
            log.warning("a stream has unknown fields, which are ignored", stream=stream.id, fields=unknown)
        return label(stream), stream
    except ValidationError as error:
        reasons = "; ".join(
            f"{'.'.join(map(str, detail['loc']))}: {detail['type']}" for detail in error.errors()[:5]
        )
        log.warning("a stream is broken and ignored", stream=str(row.get("_id")), reasons=reasons)
        return None


def label(stream: Stream) -> str:
    """Return `user`, `shard:pricing`, …; ValidationError for a shard whose name makes no scope."""
    if stream.shard is not None:
        return label_of(Scope.of_shard(stream.agent_id, stream.shard))
    return stream.scope
