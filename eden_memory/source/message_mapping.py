"""Map a document of the application's messages collection to a record of `chat.messages`.

This is the tailer's hot path (some 10 µs a message in all): the record is written as plain JSON, and a test holds
it equal to what `eden_memory.schemas.events.MessageRecorded` writes.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import orjson

from eden_memory.directory.participants import BEGINS, is_reserved
from eden_memory.kafka.record import EVERYWHERE, EVERYWHERE_ELSE, Outgoing
from eden_memory.mongo.changes import Document
from eden_memory.mongo.document_fields import (
    FILE_FIELDS,
    Unusable,
    attached,
    beside,
    beside_content,
    calls_of,
    cut,
    first_with_text,
    getter,
    item_call,
    kind_of_item,
    kinds_left_out,
    lists_turns,
    made_at,
    marked_if,
    moment_of,
    overlaps,
    paths_of,
    results_of,
    stored_path,
    text_of,
    without_thoughts,
)
from eden_memory.names import traceparent
from eden_memory.redaction import Redactor
from eden_memory.schemas.envelope import (
    CONTENT_TYPE,
    SPEC_VERSION,
    Envelope,
    data_schema,
    event_type,
    rfc3339,
)
from eden_memory.schemas.events import MessageRecorded, Watermark
from eden_memory.schemas.events.chat import AGENT_SIDE, participant_of, role_of, roles_of, with_detectors
from eden_memory.schemas.ids import NoId

TOPIC = "chat.messages"
ROLES = frozenset({"user", "assistant", "tool", "system", "other"})
LONGEST_ID = 1_024
RULES = 5
"""Raised when a program reads the same fields differently than its predecessor: a mapping's version begins with it.

2: an author counts as a user who takes part unless the agent's side wrote the message.
3: what describes an attachment has a mark, and a tool's call is a line.
4: so do attachments beside the content, and a document that is a call itself.
5: so do files beside the content.
"""
REMEMBERED = 50_000
"""Sessions and authors whose encoded ids are cached."""

EncodeId = Callable[[Any], str]
Origin = Literal["stream", "backfill", "merge", "reread"]
Reason = Literal["deleted", "missing", "moved"]


class FieldPaths(NamedTuple):
    """Dotted paths of the fields that make a message."""

    session_id: str
    role: str
    content: str
    user_id: str
    created_at: str
    otherwise: tuple[str, ...] = ()
    """Paths of contents that are read, in this order, where `content` holds no text."""


class MessageMapping:
    """Maps messages; `roles` maps the application's role names to ours, `source` is every record's `ce_source`.

    Its `version` is carried by every record, and changes with the paths, the roles and the detectors of secrets.
    """

    def __init__(
        self,
        paths: FieldPaths,
        source: str,
        encode_id: EncodeId,
        *,
        text_limit: int,
        roles: Mapping[str, str] | None = None,
        redactor: Redactor | None = None,
        deleted: Sequence[str] = (),
    ) -> None:
        self.paths, self.source = paths, source
        self.is_deleted = marked_if(deleted)
        self._session, self._role = getter(paths.session_id), getter(paths.role)
        contents = (paths.content, *paths.otherwise)
        self._content, self._user = first_with_text(contents), getter(paths.user_id)
        self._created_at = getter(paths.created_at)
        mapped = (paths.session_id, paths.role, *contents, paths.user_id, paths.created_at)
        named = (*mapped, *paths_of(deleted))
        captions = beside_content(paths.content, mapped)
        calls, attachments = (beside(paths.content, name) for name in ("tool_calls", "attachments"))
        lists = (calls, *(() if overlaps(attachments, named) else (attachments,)))
        files = beside(paths.content, "files")
        files_read = [] if overlaps(files, named) else [f"{files}.{name}" for name in FILE_FIELDS]
        item = (beside(paths.content, name) for name in ("type", "name", "arguments"))
        of_item = tuple(path for path in item if path in named or not overlaps(path, named))
        self.text_paths = tuple(dict.fromkeys(map(stored_path, (*contents, *captions, *lists))))
        read = (*mapped, *captions, *lists, *files_read, *of_item, *paths_of(deleted))
        self.read_paths = tuple(dict.fromkeys(map(stored_path, read)))
        self._captions = [getter(path) for path in captions]
        self._calls = getter(calls)
        parent = paths.content.rpartition(".")[0]
        self._parent = getter(parent) if parent else _itself
        attached_in = (*lists[1:], *([files] if files_read else []))
        self._attachments = [getter(path) for path in attached_in]
        self._roles = roles_of(roles or {})
        self._encode_id, self._limit = encode_id, text_limit
        self._redacted = redactor or str
        self.version = with_detectors(_version(paths, self._roles, deleted), redactor and redactor.version)
        self._encoded: dict[str, str] = {}
        self._second: tuple[datetime | None, bytes] = (None, b"")
        self._fixed = [
            ("ce_specversion", SPEC_VERSION.encode()),
            ("ce_type", event_type(MessageRecorded.NAME, MessageRecorded.VERSION).encode()),
            ("ce_source", source.encode()),
            ("ce_dataschema", data_schema(MessageRecorded.NAME, MessageRecorded.VERSION).encode()),
            ("content-type", CONTENT_TYPE.encode()),
        ]

    def record(
        self, document: Document, version: str, time: bytes, origin: Origin, *, edited: bool = False
    ) -> Outgoing:
        """Return the record of a document, with the `ce_time` `time`; Unusable, with the reason, if it has none.

        `edited`: the change at `time` may have changed its text.
        """
        message_id = self._typed(document["_id"], "_id")
        session_id = self._id(self._session(document), "session_id")
        if is_reserved(session_id):
            raise Unusable(f"session_id begins with {BEGINS}, which is reserved")
        content = self._content(document)
        if lists_turns(content):
            raise Unusable("content lists turns of several speakers: each has to be a document of its own")
        role, author = self._speaker(document)
        text = self._said(document)
        if role == "assistant":
            text = without_thoughts(text)
        more = self._more(document)
        if not text and not more and (result := results_of(content)):
            role, text = "tool", result
        text = "\n".join(filter(None, (text, more)))
        length = len(text)
        kept = self._redacted(text if length <= self._limit else cut(text, self._limit))
        value = orjson.dumps(
            {
                "message_id": message_id,
                "session_id": session_id,
                "version": version,
                "role": role,
                "user_id": author,
                "text": kept,
                "characters": length,
                "truncated": length > self._limit,
                "created_at": self.created_at(document),
                "edited_at": time.decode() if edited else None,
                "origin": origin,
                "mapping": self.version,
                "first_id": None,
            }
        )
        event_id = f"{message_id}@{version}"
        key, ordering_key = message_id.encode(), session_id.encode()
        headers = [
            *self._fixed,
            ("ce_id", event_id.encode()),
            ("ce_time", time),
            ("ce_subject", key),
            ("ce_orderingkey", ordering_key),
            ("traceparent", traceparent(session_id, event_id).encode()),
        ]
        return Outgoing(TOPIC, key, value, headers, ordering_key)

    def has_text(self, document: Document) -> bool:
        """Tell whether there is anything to remember yet: tool calls and placeholders have no text."""
        return bool(self._said(document) or self._more(document) or results_of(self._content(document)))

    def left_out(self, document: Document) -> list[str]:
        """Return the kinds of what is in a message beside its text."""
        content = self._content(document)
        kinds = [kind for kind, described in self._attached(document) if not described]
        if not content and (kind := kind_of_item(self._parent(document))):
            kinds.append(kind)
        return kinds_left_out(content) + kinds

    def _said(self, document: Document) -> str:
        """Return the text of a document: of its content or, where that has none, of what stands beside it."""
        if text := text_of(self._content(document)):
            return text
        found = (read(document) for read in self._captions)
        return next((text for said in found if isinstance(said, str) and (text := text_of(said))), "")

    def _more(self, document: Document) -> str:
        """Return the lines that follow a document's text: of attachments that are described, and of tools' calls."""
        files = [f"[{kind}: {described}]" for kind, described in self._attached(document) if described]
        content, calls = self._content(document), self._calls(document)
        if not content and (call := item_call(self._parent(document))):
            calls = [call]
        return "\n".join(filter(None, (*files, calls_of(content, calls, self._redacted))))

    def _attached(self, document: Document) -> list[tuple[str, str]]:
        return [found for read in self._attachments for found in attached(read(document))]

    def lacks_author(self, document: Document) -> bool:
        """Tell whether a user wrote the message, and it does not say which, or by something that is no id."""
        return self._speaker(document) == ("user", None)

    def author(self, document: Document) -> Any:
        """Return the id of the message's author, as the application has it."""
        return self._user(document)

    def participant(self, document: Document) -> Any:
        """Return the id of the user who takes part by writing the document, if any, as the application has it."""
        return participant_of(role_of(self._role(document), self._roles), self._user(document))

    def role(self, document: Document) -> str:
        """Return our role of the message."""
        return role_of(self._role(document), self._roles)

    def is_users(self, document: Document) -> bool:
        """Tell whether the message's role is the user's."""
        return self.role(document) == "user"

    def written_at(self, document: Document, latest: datetime) -> bytes:
        """Return the `ce_time` of a document that was read, not streamed: its creation, never after the read."""
        created = self.created_at(document)
        return min(created, rfc3339(latest)).encode() if created else self.second(latest)

    def created_at(self, document: Document) -> str | None:
        """Return when the document says that it was created: its field or, where that is no time, its ObjectId."""
        return moment_of(self._created_at(document)) or made_at(document["_id"])

    def second(self, time: datetime) -> bytes:
        """Return the `ce_time` of a cluster time, formatted once a second."""
        if self._second[0] is not time:
            self._second = (time, rfc3339(time).encode())
        return self._second[1]

    def message_id(self, value: Any) -> str:
        """Return the typed id of a message's `_id`; Unusable if it cannot be an id."""
        return self._typed(value, "_id")

    def session_id(self, document: Document | None) -> str | None:
        """Return the typed id of the session that a document names, if it can be read."""
        try:
            return None if document is None else self._id(self._session(document), "session_id")
        except Exception:  # noqa: BLE001 - whatever stands there, it is no session
            return None

    def _speaker(self, document: Document) -> tuple[str, str | None]:
        """Return the role and the author's typed id. Whoever writes under something that is no id is a user whom
        nobody names, unless the agent's side wrote it.
        """
        role, author = role_of(self._role(document), self._roles), self._user(document)
        if author is None:
            return role, None
        try:
            return role, self._id(author, "user_id")
        except Unusable:
            return (role if role in AGENT_SIDE else "user"), None

    def tombstone(
        self,
        message_id: str,
        version: str,
        time: datetime,
        reason: Reason,
        *,
        session_id: str | None = None,
        partition: int | None = None,
        moved_to: str | None = None,
    ) -> Outgoing:
        """Return the tombstone of a message: for its session's partition where known, else for `partition`, else for
        every partition (but that of the session that it `moved_to`).

        Its id names the reason: the change that moves a message also gives a record of that version.
        """
        event_id = f"{message_id}@{version}/{reason}"
        envelope = Envelope(
            id=event_id,
            name=MessageRecorded.NAME,
            version=MessageRecorded.VERSION,
            source=self.source,
            time=time,
            subject=message_id,
            ordering_key=session_id or message_id,
            traceparent=traceparent(session_id or message_id, event_id),
            entity_version=version,
            scope=session_id,
            reason=reason,
        )
        if partition is None and session_id is None:
            partition = EVERYWHERE if moved_to is None else EVERYWHERE_ELSE
        place = session_id or moved_to or message_id
        return Outgoing(TOPIC, message_id.encode(), None, envelope.headers(), place.encode(), partition)

    def _id(self, value: Any, field: str) -> str:
        """Return the typed id of a session or an author, which come again and again, from a cache."""
        if type(value) is not str:
            return self._typed(value, field)
        encoded = self._encoded.get(value)
        if encoded is None:
            encoded = self._typed(value, field)
            if len(self._encoded) >= REMEMBERED:
                self._encoded.clear()
            self._encoded[value] = encoded
        return encoded

    def _typed(self, value: Any, field: str) -> str:
        if value is None or value == "":
            raise Unusable(f"it has no {field}")
        try:
            encoded = self._encode_id(value)
        except NoId as error:
            raise Unusable(f"{field}: {error}") from None
        if len(encoded) > LONGEST_ID:
            raise Unusable(f"{field} is longer than {LONGEST_ID} characters when encoded")
        return encoded


def overlap(touched: str, mapped: str) -> bool:
    """Tell whether a change of the field `touched` may change what stands at a mapped path."""
    return touched == mapped or touched.startswith(mapped + ".") or mapped.startswith(touched + ".")


def _itself(document: Document) -> Any:
    return document


def _version(paths: FieldPaths, roles: Mapping[str, str], deleted: Sequence[str]) -> str:
    """Return the rules' number, and a short hash of the settings that decide how a document is read."""
    named = paths._asdict()
    if not paths.otherwise:
        del named["otherwise"]
    decides: dict[str, Any] = {
        "rules": 1,
        "paths": named,
        "roles": dict(roles),
    }  # 1: equal settings, equal hash
    if deleted:
        decides["deleted"] = sorted(deleted)
    hashed = blake2b(orjson.dumps(decides, option=orjson.OPT_SORT_KEYS), digest_size=6).hexdigest()
    return f"{RULES}.{hashed}"


def watermark(partition: int, version: str, time: datetime, source: str) -> Outgoing:
    """Return the record which says that a partition holds everything up to a cluster time."""
    event = Watermark(partition=partition, time=time, version=version)
    event_id = f"{event.key()}@{version}"
    envelope = event.envelope(event_id, source, time, traceparent(event.key(), event_id))
    key = event.key().encode()
    return Outgoing(TOPIC, key, event.json_bytes(), envelope.headers(), key, partition)
