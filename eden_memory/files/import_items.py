"""Items of other systems as requests to memory, under ids that stay the same, and the report of an import. Pure."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Literal, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pydantic import ValidationError

from eden_memory.directory.participants import DEFAULT_AGENT, own_session
from eden_memory.errors import NotAnId
from eden_memory.limits import DEFAULTS, LONGEST_BLOB, LONGEST_FACT, words_of
from eden_memory.mongo.document_fields import moment_of
from eden_memory.mongo.ids import decode_id, encode_id, typed
from eden_memory.schemas.documents import (
    InboxAddedText,
    InboxFactCommand,
    InboxFormNow,
    InboxMemoryCommand,
    Stream,
)
from eden_memory.schemas.reasons import reasons
from eden_memory.schemas.scopes import Scope

T = TypeVar("T")

Kind = Literal["fact", "reflection", "blob", "message", "shard"]

Request = InboxFactCommand | InboxMemoryCommand | InboxAddedText | InboxFormNow

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
"""When something was said that has no time."""

PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""An item's id that may become part of ours, such as a UUID; any other text could be content."""


class Unimportable(ValueError):  # noqa: N818 - a verdict on an item
    """The reason why an item is skipped, by field and without content. `bad`: the item cannot be read."""

    def __init__(self, reason: str, *, bad: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.bad = reason, bad


@dataclass(frozen=True, slots=True)
class ImportedItem:
    """An item that can be imported; `where`: its place in the source, such as `line 12`."""

    where: str
    kind: Kind | None
    """None: the request to form an imported conversation."""
    request: Request | Stream
    scope: Scope
    """To whom the memory belongs, or may belong."""
    said_at: datetime | None = None

    @property
    def name(self) -> str:
        """Its typed id."""
        return encode_id(self.request.id)

    @property
    def order(self) -> str:
        """Items with the same value are written together, in the order of the source."""
        request = self.request
        talks = isinstance(request, InboxAddedText | InboxFormNow)
        return str(request.session_id) if talks else self.scope.key

    def with_fields(self, **fields: Any) -> "ImportedItem":
        """Return the item with other values of its request."""
        return replace(self, request=self.request.model_copy(update=fields))


@dataclass(frozen=True, slots=True)
class SkippedItem:
    """Items that are not imported."""

    where: str
    reason: str
    bad: bool = False
    count: int = 1


Entry = ImportedItem | SkippedItem


@dataclass(frozen=True, slots=True)
class ImportMapping:
    """Agents and users here by those of the source; ours are typed ids."""

    agents: Mapping[str, str] = field(default_factory=dict[str, str])
    users: Mapping[str, str] = field(default_factory=dict[str, str])
    agent: str = DEFAULT_AGENT
    """The agent of items that name none."""
    user: str | None = None
    """The user of items that name neither a user nor an agent."""

    def agent_of(self, theirs: Any) -> str:
        """Return our agent for one of theirs; None or "" is the agent of items that name none."""
        return self.agent if _is_none(theirs) else _mapped(self.agents, theirs, "agent")

    def user_of(self, theirs: Any) -> str:
        """Return our user for one of theirs."""
        return _mapped(self.users, theirs, "user")

    def scope(self, agent: Any, user: Any) -> Scope:
        """Return the scope of an item that names this agent and user, None for those that it does not name."""
        if not _is_none(user):
            return Scope.of_user(self.agent_of(agent), self.user_of(user))
        if not _is_none(agent):
            return Scope.of_agent(self.agent_of(agent))
        if self.user is None:
            raise Unimportable("it names neither a user nor an agent; say with --user whose it is")
        return Scope.of_user(self.agent, self.user)


@dataclass(frozen=True, slots=True)
class ImportedAs:
    """Makes items of one source; `now`: when the import began."""

    source: str
    mapping: ImportMapping
    asked_by: str
    now: datetime
    decide: bool = False
    """Whether a model decides what a fact changes in known facts."""

    def fact(self, where: str, own: Any, text: Any, scope: Scope, said_at: Any) -> ImportedItem:
        """Return a fact; `own` is its id there, if it has any."""
        command = self._command(
            InboxFactCommand, "fact", own, checked_text(text, LONGEST_FACT), scope, said_at
        )
        return self._item(where, "fact", {**command, "action": "add", "decide": self.decide}, scope)

    def reflection(
        self, where: str, own: Any, text: Any, scope: Scope, said_at: Any, session: Any = None
    ) -> ImportedItem:
        """Return a reflection; `session`: the one that it was formed from, so that forgetting that reaches it."""
        command = self._command(
            InboxMemoryCommand, "reflection", own, checked_text(text, LONGEST_FACT), scope, said_at
        )
        there = {} if session is None else {"session_id": session}
        return self._item(where, "reflection", {**command, "action": "add_reflection", **there}, scope)

    def blob(self, where: str, own: Any, text: Any, scope: Scope, said_at: Any) -> ImportedItem:
        """Return the first blob of a scope."""
        command = self._command(
            InboxMemoryCommand, "blob", own, checked_text(text, LONGEST_BLOB), scope, said_at
        )
        del command["session_id"]
        return self._item(where, "blob", {**command, "action": "edit_blob", "expected_version": 0}, scope)

    def session(self, scope: Scope, conversation: Any) -> str:
        """Return the id here of the session of a user's imported conversation."""
        name = self._digest("session", _own_id(conversation), scope.key, "")
        return own_session(scope.agent_id, scope.user_id, encode_id(f"{self.source}.{name}"))

    def message(
        self, where: str, own: Any, session: str, role: str, text: str, scope: Scope, created_at: Any
    ) -> ImportedItem:
        """Return a message of an imported conversation; `scope`: its user's."""
        said_at = self.moment(created_at)
        fields = {
            "_id": self._name("message", _own_id(own), session, text),
            "kind": "added_text",
            "asked_by": self.asked_by,
            "session_id": session,
            "text": checked_text(text, None),
            "role": role,
            "user_id": decode_id(scope.user_id or "") if role == "user" else None,
            "created_at": said_at,
        }
        return self._checked(where, "message", InboxAddedText, fields, scope, said_at)

    def formed(self, where: str, session: str, scope: Scope) -> ImportedItem:
        """Return the request to form what is pending of an imported conversation."""
        fields = {"_id": uuid4(), "kind": "form_now", "asked_by": self.asked_by, "session_id": session}
        return self._checked(where, None, InboxFormNow, fields, scope, None)

    def _command(
        self, document: type[Any], kind: Kind, own: Any, text: str, scope: Scope, said_at: Any
    ) -> dict[str, Any]:
        return {
            "document": document,
            "_id": self._name(kind, _own_id(own), scope.key, text),
            "kind": "fact_command" if document is InboxFactCommand else "memory_command",
            "asked_by": self.asked_by,
            "scope": scope,
            "text": text,
            "by": "import",
            "said_at": self.moment(said_at),
            "session_id": own_session(scope.agent_id, scope.user_id),
        }

    def _item(self, where: str, kind: Kind, fields: dict[str, Any], scope: Scope) -> ImportedItem:
        return self._checked(where, kind, fields.pop("document"), fields, scope, fields["said_at"])

    def _checked(
        self,
        where: str,
        kind: Kind | None,
        document: type[Any],
        fields: dict[str, Any],
        scope: Scope,
        said_at: datetime | None,
    ) -> ImportedItem:
        try:
            return ImportedItem(where, kind, document.model_validate(fields, strict=False), scope, said_at)
        except ValidationError as error:
            raise Unimportable(reasons(error), bad=True) from None

    def _name(self, kind: Kind, own: str, whose: str, text: str) -> str:
        label = f"{own}:" if PLAIN.fullmatch(own) else ""
        return f"import:{self.source}:{label}{self._digest(kind, own, whose, text)}"

    def _digest(self, *parts: str) -> str:
        return blake2b(
            "\x00".join((self.source, *parts)).encode(errors="surrogatepass"), digest_size=12
        ).hexdigest()

    def command_id(self, kind: Kind, own: Any, scope: Scope) -> str:
        """Return the id of the command that would add a memory, whatever its text."""
        return self._name(kind, _own_id(own), scope.key, "")

    def moment(self, value: Any) -> datetime | None:
        """Return a time; None for None; Unimportable for the future."""
        if _is_none(value):
            return None
        written = moment_of(value)
        if written is None:
            raise Unimportable("its time cannot be read", bad=True)
        at = datetime.fromisoformat(written).replace(tzinfo=UTC)
        if at > self.now:
            raise Unimportable("its time lies in the future", bad=True)
        return at


Reader = Callable[[str, ImportedAs], AsyncIterator[Entry]]
"""Reads a source (its path, or address) item by item."""


def checked_text(value: Any, most: int | None) -> str:
    """Return a text as it is; Unimportable."""
    if not isinstance(value, str) or not value.strip():
        raise Unimportable("it has no text", bad=True)
    if most is not None and len(value) > most:
        raise Unimportable(f"its text is longer than {most:,} characters", bad=True)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unimportable("its text is not valid Unicode", bad=True) from None
    return value


def _own_id(value: Any) -> str:
    return "" if value is None else _id_text(value, "its id is no text or number")


def _id_text(value: Any, reason: str) -> str:
    """Return an id as text; a few lines of YAML can make lists whose text is enormous."""
    try:
        if not isinstance(value, Collection) or isinstance(value, str | bytes):
            return str(value)
    except ValueError:  # a number of thousands of digits
        pass
    raise Unimportable(reason, bad=True)


def _is_none(value: Any) -> bool:
    return value is None or value == ""


def _mapped(mapping: Mapping[str, str], theirs: Any, what: str) -> str:
    reason = f"its {what} has no usable id"
    found = mapping.get(_id_text(theirs, reason))
    if found is not None:
        return found
    try:
        return typed(theirs, what)
    except NotAnId:
        raise Unimportable(reason, bad=True) from None


def imported_or_skipped(where: str, make: Callable[[], T]) -> T | SkippedItem:
    """Return the result of `make`, or why it failed: whatever an item raises concerns that item."""
    try:
        return make()
    except Unimportable as error:
        return SkippedItem(where, error.reason, error.bad)
    except Exception as error:  # noqa: BLE001 - as above
        return SkippedItem(where, f"it cannot be read ({type(error).__name__})", bad=True)


def stream_of(row: Mapping[str, Any], scope: Scope) -> Stream:
    """Return the stream of a shard, with a word limit that its blob fits."""
    words = words_of(row.get("content") or "")
    return Stream(
        _id=f"{scope.agent_id}/shard/{quote(scope.shard or '', safe='')}",
        agent_id=scope.agent_id,
        scope="shard",
        shard=scope.shard,
        extraction_guidance=row.get("extraction_prompt") or None,
        threshold=row.get("max_agent_memories_before_consolidation") or None,
        word_limit=words if words > DEFAULTS["shard"].blob_words else None,
    )


NAMED = 20
"""Most places named for each reason; the others are only counted."""


@dataclass(slots=True)
class SkippedForReason:
    """The items skipped for one reason."""

    bad: bool
    count: int = 0
    places: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class ConversationCost:
    """The estimated cost of forming the imported conversations."""

    windows: int = 0
    usd: Decimal | None = Decimal(0)
    """None: a price is unknown."""


@dataclass(slots=True)
class ImportReport:
    """Counts; ids and places only, no content."""

    taken: Counter[Kind] = field(default_factory=Counter[Kind])
    known: int = 0
    """Items that memory had taken before."""
    forming: int = 0
    """Conversations whose messages wait to be formed."""
    skipped: dict[str, SkippedForReason] = field(default_factory=dict[str, SkippedForReason])
    cost: ConversationCost = field(default_factory=ConversationCost)
    notes: list[str] = field(default_factory=list[str])
    """What else changes, in a sentence each."""

    @property
    def empty(self) -> bool:
        """Whether nothing is taken."""
        return not (self.taken or self.forming)

    def take(self, item: ImportedItem) -> None:
        """Count an item that is taken."""
        if item.kind is None:
            self.forming += 1
        else:
            self.taken[item.kind] += 1

    def skip(self, item: SkippedItem) -> None:
        """Count what is skipped."""
        group = self.skipped.setdefault(item.reason, SkippedForReason(item.bad))
        group.count += item.count
        if len(group.places) < NAMED:
            group.places.append(item.where)

    def lines(self, did: str) -> Iterator[str]:
        """Yield the report for people; `did`: `taken`, or what a dry run says."""
        counts = [_counted(number, kind) for kind, number in self.taken.items()]
        yield f"{did}: {', '.join(counts) or 'nothing'}"
        if self.known:
            yield f"already here: {self.known:,}"
        for reason, group in self.skipped.items():
            more = f" and {group.count - len(group.places):,} more" if group.count > len(group.places) else ""
            yield f"{'bad' if group.bad else 'skipped'}: {group.count:,}, {reason}: {'; '.join(group.places)}{more}"
        yield from self.notes


def _counted(number: int, kind: Kind) -> str:
    return f"{number:,} {kind}{'s' * (number != 1)}"
