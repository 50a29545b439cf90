"""How well-known programs store their messages: one row for each, from the program's own schema."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from eden_memory.doctor.sampled_fields import Row, SampledField
from eden_memory.mongo.document_fields import Getter, Unusable, getter, is_json, stored_path, without_json
from eden_memory.schemas.events.chat import ALL_OTHERS
from eden_memory.settings import Role

HALF = 0.5


@dataclass(frozen=True, slots=True)
class KnownSessions:
    """The documents of a program's sessions, where messages name them by another field than `_id`."""

    id: str
    users: str
    """A list of ids or one id: of several documents of a session, each names a user."""
    exclude_else: Mapping[str, str] = field(default_factory=dict[str, str])
    """As in KnownShape."""


@dataclass(frozen=True, slots=True)
class KnownShape:
    """The fields of one program's messages. Where a field has several paths, the documents decide."""

    program: str
    shown_by: Sequence[str]
    """Paths that half of the documents and more have: no other program has all of them."""
    session_id: str
    role: str
    content: Sequence[str]
    """Of those that are there, the first that holds text counts."""
    created_at: str
    user_id: Sequence[str] = ()
    """The first that half of the users' messages have is the author; empty: found by its name."""
    roles: Mapping[str, Role] = field(default_factory=dict[str, Role])
    """`*` among them: the role is that of the author, and who answers is found in the documents."""
    answers: str | None = None
    """A field that only messages of bots have."""
    bots: Sequence[str] = ()
    """Authors that are bots in every installation."""
    deleted: Sequence[str] = ()
    exclude: Sequence[str] = ()
    """Marks, in the form of the settings; proposed if a document has the field."""
    exclude_else: Mapping[str, str] = field(default_factory=dict[str, str])
    """What marked it in earlier versions of the program, whose documents lack the field of a mark."""
    listed: str | None = None
    """The list in a document whose elements are the messages."""
    sessions: KnownSessions | None = None

    def fits(self, documents: Sequence[Row]) -> bool:
        """Tell whether messages look like this program's."""
        texts = (stored_path(path) for path in self.shown_by if is_json(path))
        return (
            bool(documents)
            and all(at(documents, path).share(_is_text) >= HALF for path in texts)
            and all(at(documents, path).share(_is_there) >= HALF for path in self.shown_by)
        )

    def contents(self, documents: Sequence[Row]) -> list[str]:
        """Return the paths of the content that the documents have."""
        return [path for path in self.content if at(documents, path).present]

    def means(self, documents: Sequence[Row]) -> Mapping[str, Role]:
        """Return our role by the program's name for it; empty where the documents do not say who answers."""
        if ALL_OTHERS not in self.roles:
            return self.roles
        authors = at(documents, self.role).values
        marked = at(documents, self.answers).values if self.answers else [None] * len(documents)
        bots = {
            str(author)
            for author, mark in zip(authors, marked, strict=True)
            if author is not None and (mark or author in self.bots)
        }
        return {**dict.fromkeys(sorted(bots), "assistant"), **self.roles} if bots else {}

    def marks(self, name: str, documents: Sequence[Row]) -> list[str]:
        """Return those of the marks `deleted` or `exclude` whose field a document has."""
        given: Sequence[str] = getattr(self, name)
        found = [mark for mark in given if at(documents, mark.partition("=")[0]).present]
        return [*found, *(earlier_marks(self.exclude_else, found) if name == "exclude" else ())]


def earlier_marks(earlier: Mapping[str, str], found: Sequence[str]) -> list[str]:
    """Return the marks of a program's earlier versions in the place of those that no document has."""
    return [mark for now, mark in earlier.items() if now not in found]


def at(documents: Sequence[Row], path: str) -> SampledField:
    """Return the values at a path; None for those that cannot be read."""
    return SampledField(path, [_read(getter(path), document) for document in documents])


def _read(read: Getter, document: Row) -> Any:
    with suppress(Unusable):
        return read(document)
    return None


def _is_there(value: Any) -> bool:
    return value is not None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


BY_FLAG: Mapping[str, Role] = {"true": "assistant", "false": "user"}

WHATSAPP_TEXTS = (
    "message.conversation",
    "message.extendedTextMessage.text",
    "message.imageMessage.caption",
    "message.videoMessage.caption",
    "message.documentMessage.caption",
)

LIBRECHAT_EARLIER = {"isTemporary": "expiredAt"}

SHAPES = (
    KnownShape(
        "LibreChat",
        ("messageId", "conversationId", "isCreatedByUser"),
        session_id="conversationId",
        role="isCreatedByUser",
        content=("content", "text"),
        created_at="createdAt",
        user_id=("user",),
        roles={"true": "user", "false": "assistant"},
        exclude=("isTemporary", "error"),
        exclude_else=LIBRECHAT_EARLIER,
        sessions=KnownSessions("conversationId", users="user", exclude_else=LIBRECHAT_EARLIER),
    ),
    KnownShape(
        "Rocket.Chat",
        ("rid", "msg", "u._id", "ts"),
        session_id="rid",
        role="u._id",
        content=("msg",),
        created_at="ts",
        user_id=("u._id",),
        roles={ALL_OTHERS: "user"},
        answers="bot",
        bots=("rocket.cat",),
        sessions=KnownSessions("rid", users="u._id"),
    ),
    KnownShape(
        "Vercel AI SDK",
        ("chatId", "role", "parts"),
        session_id="chatId",
        role="role",
        content=("parts",),
        created_at="createdAt",
        sessions=KnownSessions("id", users="userId"),
    ),
    KnownShape(
        "OpenAI Responses",
        ("type", "role", "content", "conversation_id"),
        session_id="conversation_id",
        role="role",
        content=("content", "output"),
        created_at="created_at",
        roles={"false": "tool", "developer": "system"},
    ),
    KnownShape(
        "HF chat-ui",
        ("messages.from", "messages.id", "messages.content", "title", "model"),
        listed="messages",
        session_id="_id",
        role="messages.from",
        content=("messages.content",),
        created_at="messages.createdAt",
        user_id=("userId", "sessionId"),
    ),
    KnownShape(
        "LangChain.js and n8n",
        ("sessionId", "messages.type", "messages.data.content"),
        listed="messages",
        session_id="sessionId",
        role="messages.type",
        content=("messages.data.content",),
        created_at="messages.data.created_at",
        roles={"human": "user", "ai": "assistant"},
    ),
    KnownShape(
        "LangChain",
        ("SessionId", "History::json.type", "History::json.data.content"),
        session_id="SessionId",
        role="History::json.type",
        content=("History::json.data.content",),
        created_at="_id",
        roles={"human": "user", "ai": "assistant"},
    ),
    KnownShape(
        "Mastra",
        ("thread_id", "resourceId", "role", "content::json.parts"),
        session_id="thread_id",
        role="role",
        content=("content::json.parts", "content::json.content"),
        created_at="createdAt",
        user_id=("resourceId",),
        sessions=KnownSessions("id", users="resourceId"),
    ),
    KnownShape(
        "Discord",
        ("channel_id", "author.id", "content", "timestamp"),
        session_id="channel_id",
        role="author.bot",
        content=("content",),
        created_at="timestamp",
        user_id=("author.id",),
        roles=BY_FLAG,
    ),
    KnownShape(
        "Telegram",
        ("message_id", "chat.id", "from.id", "date"),
        session_id="chat.id",
        role="from.is_bot",
        content=("text",),
        created_at="date",
        user_id=("from.id",),
        roles=BY_FLAG,
    ),
    KnownShape(
        "Baileys",
        ("key.remoteJid", "key.fromMe", "messageTimestamp"),
        session_id="key.remoteJid",
        role="key.fromMe",
        content=WHATSAPP_TEXTS,
        created_at="messageTimestamp",
        user_id=("key.participant", "key.remoteJid"),
        roles=BY_FLAG,
    ),
    KnownShape(
        "whatsapp-web.js",
        ("id.remote", "fromMe", "body", "timestamp"),
        session_id="id.remote",
        role="fromMe",
        content=("body",),
        created_at="timestamp",
        user_id=("author", "from"),
        roles=BY_FLAG,
    ),
)


def known_shape(documents: Sequence[Row]) -> KnownShape | None:
    """Return the shape of the program that stored the documents, if it is a known one."""
    return next((shape for shape in SHAPES if shape.fits(listed_rows(documents, shape.listed))), None)


def listed_rows(documents: Sequence[Row], path: str | None) -> Sequence[Row]:
    """Return a row for each message that documents list at a path: its document with it in place of the list.

    Without a path, the documents.
    """
    if path is None:
        return documents
    *outer, name = [without_json(part) for part in path.split(".")]
    read, rows = getter(path), list[Row]()
    for document in documents:
        with suppress(Unusable):
            listed = read(document)
            for element in cast("Sequence[Any]", listed) if isinstance(listed, Sequence) else ():
                if isinstance(element, Mapping):
                    row = inner = dict(document)
                    for part in outer:
                        inner[part] = inner = dict(inner[part])
                    inner[name] = element
                    rows.append(row)
    return rows
