"""Changes of streams: which stream a scope's label names, and what may be set in it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, get_args
from urllib.parse import quote

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from eden_memory.errors import EdenError, Invalid
from eden_memory.limits import LONGEST_GUIDANCE, LONGEST_SHARD_NAME, MOST_RETENTION_DAYS
from eden_memory.models.catalogue import choice_for, is_url
from eden_memory.models.question import Role
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.scopes import ScopeKind
from eden_memory.settings import Settings

Row = Mapping[str, Any]
KINDS: tuple[ScopeKind, ...] = get_args(ScopeKind)
BY_NAME: Mapping[str, ScopeKind] = {kind: kind for kind in KINDS}
FIELDS = frozenset(field.alias or name for name, field in Stream.model_fields.items())
"""As a document has them."""
NAMES = frozenset({"_id", "agent_id", "scope", "shard"})
"""The fields that identify a stream."""
SETTABLE = tuple(name for name in Stream.model_fields if name in FIELDS - NAMES)
OF_FACTS = ("fifo_limit", "max_entries", "retention_days")
ROLES_OF: Mapping[str, tuple[Role, ...]] = {
    "extraction_model": ("facts", "reflections"),
    "consolidation_model": ("consolidation",),
}


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
    if stream.propagation is not None and stream.scope != "agent":
        raise Invalid("propagation: only an agent can set it", "Set it for agent.")
    of_facts = [name for name in OF_FACTS if getattr(stream, name) is not None]
    if stream.scope == "session" and of_facts:
        raise Invalid(
            f"{of_facts[0]}: a session has no facts", "Set it for user, group, agent or shard:NAME."
        )


def _demand_limits(stream: Stream) -> None:
    least, most = stream.min_items, stream.max_items
    if least is not None and most is not None and least > most:
        raise Invalid(f"min_items {least} is above max_items {most}", "Raise max_items, or lower min_items.")
    if (stream.retention_days or 0) > MOST_RETENTION_DAYS:
        raise Invalid(
            f"retention_days is above {MOST_RETENTION_DAYS:,}", "Leave it unset to keep facts for ever."
        )
    for field in ("extraction_guidance", "consolidation_guidance"):
        if len(getattr(stream, field) or "") > LONGEST_GUIDANCE:
            raise Invalid(f"{field} is too long", f"It may have {LONGEST_GUIDANCE:,} characters.")


def _demand_model(field: str, named: str | None, roles: tuple[Role, ...], settings: Settings) -> None:
    """Raise Invalid for a name that no call could use; whether the provider has the model, only a call shows."""
    if named is None:
        return
    if not named.strip() or not named.isprintable() or " " in named:
        raise Invalid(
            f"{field} names no model", "Write MODEL, openai:MODEL, google:MODEL, offline or URL#MODEL."
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
