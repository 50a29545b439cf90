"""Learn from messages how the application writes them, and write turns alike. Pure.

Where that cannot be learned, or the field mapping would not read a turn back as it was said, turns are not written
among the application's messages: they go to memory through `memory_inbox`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, cast
from uuid import UUID

from bson import ObjectId

from eden_memory.api.gateway.turns import PREFIX, ChatTurn
from eden_memory.errors import EdenError
from eden_memory.mongo.document_fields import (
    MILLISECONDS_FROM,
    TEXT_PARTS,
    getter,
    moment_of,
)
from eden_memory.settings import MessagesSettings, Role

Row = dict[str, Any]
Document = Mapping[str, Any]
PLACES = frozenset({"$id", "$session_id", "$user_id", "$agent_id", "$role", "$created_at"})
"""The placeholders that a value of `gateway.message_fields` may hold."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SAMPLED_PARTS = 100
"""Of a content that is a list: those in which a text is looked for."""
SLOT_BYTES = {12: 8, 16: 10}
"""Of an id of so many bytes: how many name the slot, so that the ids of a slot are a range."""


class TurnToWrite(NamedTuple):
    """A turn to write, with its session and author; ids as the application has them."""

    turn: ChatTurn
    session: Any
    user: Any
    """Of the chat: the author, if the turn is the user's."""
    agent: Any
    at: datetime


def _as_name(digits: bytes) -> Any:
    return digits.hex()


IDS: Mapping[str, tuple[int, Callable[[bytes], Any]]] = {
    "object_id": (12, ObjectId),
    "object_id text": (12, _as_name),
    "uuid": (16, lambda digits: UUID(bytes=digits)),
    "uuid text": (16, lambda digits: str(UUID(bytes=digits))),
}
"""Kinds of ids other than our own text: how many bytes, and what becomes of them."""


@dataclass(frozen=True, slots=True)
class TurnShape:
    """How messages are written: types of ids and times, forms of contents, names of roles, other fields."""

    ids: str = "text"
    times: Callable[[datetime], Any] | None = lambda at: at
    """None: the application's messages have no time."""
    contents: Mapping[str, Callable[[str], Any]] = field(default_factory=dict[str, Callable[[str], Any]])
    """By our role; others are text."""
    roles: Mapping[str, str] = field(default_factory=dict[str, str])
    """Our role → theirs."""

    @property
    def step(self) -> timedelta:
        """How far apart two messages must be to have different times."""
        step = timedelta(milliseconds=1)
        whole = self.times is not None and self.times(EPOCH) == self.times(EPOCH + step)
        return timedelta(seconds=1) if whole else step

    def id_of(self, turn: ChatTurn) -> Any:
        """Return the turn's `_id`, the same at every repeat."""
        return self._named(turn.slot, turn.name)

    def lost_id(self, name: str) -> Any:
        """Return the `_id` of a turn by its name."""
        slot, _, _ = name.rpartition("-")
        return self._named(f"{slot}-", name)

    def range_of(self, slot: str) -> Row:
        """Return the query for all ids that may stand in a turn's place."""
        if self.ids not in IDS:
            return {"$gte": slot, "$lt": f"{slot}~"}
        size, made = IDS[self.ids]
        first = _digest(slot, SLOT_BYTES[size])
        rest = size - len(first)
        return {"$gte": made(first + bytes(rest)), "$lte": made(first + b"\xff" * rest)}

    def row(self, written: TurnToWrite, fields: MessagesSettings, extra: Mapping[str, Any]) -> Row:
        """Return the message as the application would write it."""
        turn = written.turn
        role = self.roles.get(turn.role, turn.role)
        row: Row = {"_id": self.id_of(turn)}
        given = {
            "$id": row["_id"],
            "$session_id": written.session,
            "$user_id": written.user,
            "$agent_id": written.agent,
            "$role": role,
            "$created_at": None if self.times is None else self.times(written.at),
        }
        for path, value in extra.items():
            found = given[value] if isinstance(value, str) and value in PLACES else value
            if found is not None or value is None:
                _put(row, path, found)
        _put(row, fields.session_id, written.session)
        _put(row, fields.role, role)
        _put(row, fields.content, self.contents.get(turn.role, str)(turn.text))
        if self.times is not None and fields.created_at != "_id":
            _put(row, fields.created_at, self.times(written.at))
        if turn.role == "user" and written.user is not None:
            _put(row, fields.user_id, written.user)
        return row

    def _named(self, slot: str, name: str) -> Any:
        if self.ids not in IDS:
            return name
        size, made = IDS[self.ids]
        first = _digest(slot, SLOT_BYTES[size])
        return made(first + _digest(name, size - len(first)))


class UnknownShape(NamedTuple):
    """The reason why turns cannot be written among the application's messages."""

    reason: str


def plain_shape(fields: MessagesSettings) -> TurnShape:
    """Return the shape for a collection without messages: text ids, dates and texts."""
    return TurnShape(roles={ours: theirs for theirs, ours in fields.roles.items()})


def sampled_fields(fields: MessagesSettings) -> Row:
    """Return the projection of messages that a shape is learned from: of contents, which may be long, the form."""
    content = f"${fields.content}"
    text = {
        "$switch": {
            "branches": [
                {"case": {"$eq": [{"$type": "$$part.text"}, "string"]}, "then": ""},
                {"case": {"$eq": [{"$type": "$$part.text"}, "object"]}, "then": {"value": ""}},
            ],
            "default": "$$REMOVE",
        }
    }
    part = {
        "$switch": {
            "branches": [
                {"case": {"$eq": [{"$type": "$$part"}, "string"]}, "then": ""},
                {
                    "case": {"$eq": [{"$type": "$$part"}, "object"]},
                    "then": {"type": "$$part.type", "text": text},
                },
            ],
            "default": None,
        }
    }
    parts = {"$map": {"input": {"$slice": [content, SAMPLED_PARTS]}, "as": "part", "in": part}}
    kind, empty = {"$type": content}, {"string": "", "array": parts, "object": {}, "binData": False}
    form = {
        "$switch": {
            "branches": [{"case": {"$eq": [kind, name]}, "then": value} for name, value in empty.items()],
            "default": content,
        }
    }
    named = (fields.session_id, fields.role, fields.user_id, fields.created_at)
    return dict.fromkeys(named, 1) | {fields.content: form}


def learned_shape(documents: Sequence[Document], fields: MessagesSettings) -> TurnShape | UnknownShape:
    """Learn the shape from the application's newest messages, the newest first."""
    if fields.created_at == "_id":
        return UnknownShape(
            "`_id` says when a message was written, and the id of a turn says which turn it is"
        )
    theirs = [document for document in documents if not _is_ours(document)]
    if not theirs:
        return plain_shape(fields)
    ids = {_id_kind(document["_id"]) for document in theirs}
    if len(ids) > 1 or None in ids:
        return UnknownShape(
            "ids of messages are integers or of several kinds: only the application can give one"
        )
    role = getter(fields.role)
    if not all(isinstance(role(document), str) for document in theirs):
        return UnknownShape(f"not every message has a text in `{fields.role}`")
    times = _times(theirs, fields)
    if isinstance(times, UnknownShape):
        return times
    roles = _roles(theirs, fields)
    contents = _contents(theirs, fields)
    return (
        contents if isinstance(contents, UnknownShape) else TurnShape(ids.pop() or "", times, contents, roles)
    )


def checked_fields(extra: Mapping[str, Any], fields: MessagesSettings) -> Mapping[str, Any]:
    """Return the extra fields of each message; EdenError for one that cannot be set."""
    mapped = [fields.session_id, fields.role, fields.content, fields.user_id, fields.created_at, "_id"]
    for path, value in extra.items():
        what = f"EDEN_GATEWAY_MESSAGE_FIELDS: {path!r}"
        if not path or path.startswith("$") or "" in path.split("."):
            raise EdenError(f"{what} is no name of a field", "Name a field, as status or meta.source.")
        if any(_overlap(path, field_path) for field_path in mapped):
            raise EdenError(f"{what} is a field that the gateway writes", "Leave it out.")
        if isinstance(value, str) and value.startswith("$") and value not in PLACES:
            raise EdenError(f"{what} has an unknown place", f"There are: {', '.join(sorted(PLACES))}.")
        if any(other.startswith(f"{path}.") for other in extra):
            raise EdenError(f"{what} has another of the fields inside it", "Leave one of them out.")
    return extra


def _is_ours(document: Document) -> bool:
    return isinstance(document["_id"], str) and document["_id"].startswith(PREFIX)


def _id_kind(value: Any) -> str | None:
    if isinstance(value, ObjectId):
        return "object_id"
    if isinstance(value, UUID):
        return "uuid"
    if not isinstance(value, str):
        return None
    if ObjectId.is_valid(value):
        return "object_id text"
    try:
        return "uuid text" if str(UUID(value)) == value else "text"
    except ValueError:
        return "text"


def _times(
    documents: Sequence[Document], fields: MessagesSettings
) -> Callable[[datetime], Any] | UnknownShape | None:
    read = getter(fields.created_at)
    value = next((found for document in documents if (found := read(document)) is not None), None)
    if value is None:
        return None
    if isinstance(value, datetime):
        return lambda at: at
    if isinstance(value, ObjectId) or moment_of(value) is None:
        return UnknownShape(f"`{fields.created_at}` holds times of a form that is not known")
    if isinstance(value, str):
        return _like(value)
    if value < MILLISECONDS_FROM:
        return (lambda at: int(at.timestamp())) if isinstance(value, int) else lambda at: at.timestamp()
    return lambda at: type(value)(int(at.timestamp() * 1000))


def _like(text: str) -> Callable[[datetime], str]:
    """Return ISO text in UTC, with the suffix that the application uses."""
    zoned = datetime.fromisoformat(text).tzinfo is not None
    precision = "milliseconds" if "." in text else "seconds"

    def write(at: datetime) -> str:
        utc = at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision)
        return f"{utc}Z" if text.endswith("Z") else f"{utc}+00:00" if zoned else utc

    return write


def _roles(documents: Sequence[Document], fields: MessagesSettings) -> dict[str, str]:
    """Return our role → their name for it; of several names the most frequent."""
    read = getter(fields.role)
    found: dict[str, str] = {}
    for theirs, _ in Counter(read(document) for document in documents).most_common():
        ours = fields.roles.get(theirs)
        if ours is not None:
            found.setdefault(ours, theirs)
    return {ours: theirs for theirs, ours in fields.roles.items()} | found


def _contents(
    documents: Sequence[Document], fields: MessagesSettings
) -> dict[str, Callable[[str], Any]] | UnknownShape:
    role, content = getter(fields.role), getter(fields.content)
    ours = {**{name: name for name in ("user", "assistant", "tool", "system")}, **fields.roles}
    found: dict[str, Callable[[str], Any]] = {}
    for document in documents:
        form = _form(content(document))
        if isinstance(form, UnknownShape):
            return UnknownShape(f"`{fields.content}` {form.reason}")
        if form is not None:
            found.setdefault(ours.get(role(document), "other"), form)
    if not found:
        return UnknownShape(f"no message has a text in `{fields.content}`")
    first = next(iter(found.values()))
    every: tuple[Role, ...] = ("user", "assistant", "tool", "system", "other")
    return {name: found.get(name, first) for name in every}


def _form(content: Any) -> Callable[[str], Any] | UnknownShape | None:
    """Return how to write a text in the form of this content; None: it has no text to learn from."""
    if isinstance(content, str):
        return str
    if content is None or content == []:
        return None
    if not isinstance(content, list):
        return UnknownShape(f"is {type(content).__name__}, not text or a list of parts")
    for part in cast("list[Any]", content):
        if isinstance(part, str):
            return lambda text: [text]
        if isinstance(part, Mapping):
            made = _part(cast("Mapping[str, Any]", part))
            if made is not None:
                return made
    return None


def _part(part: Mapping[str, Any]) -> Callable[[str], Any] | None:
    kind = {"type": part["type"]} if "type" in part else {}
    if part.get("type") not in TEXT_PARTS:
        return None
    if isinstance(part.get("text"), Mapping):
        return lambda text: [{**kind, "text": {"value": text}}]
    return (lambda text: [{**kind, "text": text}]) if isinstance(part.get("text"), str) else None


def _digest(text: str, size: int) -> bytes:
    return blake2b(text.encode(), digest_size=size).digest()


def _overlap(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")


def _put(row: Row, path: str, value: Any) -> None:
    """Set a dotted path."""
    *above, last = path.split(".")
    for name in above:
        row = row.setdefault(name, {})
    row[last] = value
