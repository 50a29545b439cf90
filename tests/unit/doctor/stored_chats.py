"""Chats as well-known programs store them, written from the programs' own schemas; all people are invented.

`docs/reference/stored-chats.md` is made from these rows.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from bson import Int64, ObjectId

Row = dict[str, Any]
BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)
USERS = ("ana", "rui", "dora")
SESSIONS = 4
EACH = 10


class Said(NamedTuple):
    """What is to become of one document: role, typed author, text."""

    role: str
    user_id: str | None
    text: str


@dataclass(frozen=True, slots=True)
class StoredChat:
    """The messages of one program, and what is to be proposed for and read of them."""

    program: str
    make: Callable[[int, bool, str, datetime], tuple[Row, Said | None]]
    """Called with a number, whether the user speaks, the text and the time."""
    messages: Mapping[str, Any]
    """The proposed group `[messages]`, without the collection."""
    asks: bool = False
    """Whether two readings fit, of which the first is right."""
    not_read: Sequence[str] = field(default=())
    listed: Callable[[int, list[Row]], Row] | None = None
    """Makes the document of a session from its number and its messages; None: each message is a document."""
    dated: bool = True
    """Whether its messages say when they were written."""
    of_session: Callable[[int, list[Row]], Row] | None = None
    """Makes the document beside the messages that describes a session; None: there is none, or it is not known."""
    sessions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The proposed group `[sessions]`, without the collection."""

    def documents(self) -> list[Row]:
        """Return four sessions of ten messages, in which user and agent take turns."""
        rows = [row for row, _ in self._made()]
        if self.listed is None:
            return rows
        starts = range(0, len(rows), EACH)
        return [self.listed(number, rows[start : start + EACH]) for number, start in enumerate(starts)]

    def described(self) -> list[Row]:
        """Return the documents of the sessions."""
        rows, starts = [row for row, _ in self._made()], range(0, SESSIONS * EACH, EACH)
        if self.of_session is None:
            return []
        return [self.of_session(number, rows[start : start + EACH]) for number, start in enumerate(starts)]

    def said(self) -> list[Said | None]:
        """Return what is to become of each document; None: nothing."""
        return [said for _, said in self._made()]

    def _made(self) -> list[tuple[Row, Said | None]]:
        return [
            self.make(
                number,
                number % 2 == 0,
                f"The boat number {number} is due in March.",
                moment_of_number(number),
            )
            for number in range(SESSIONS * EACH)
        ]


def moment_of_number(number: int) -> datetime:
    """Return when a message was written."""
    return BEGAN + timedelta(seconds=number)


def _object_id(number: int) -> ObjectId:
    return ObjectId(f"{int(moment_of_number(number).timestamp()):08x}{number:016x}")


def _user(number: int) -> str:
    return USERS[number // EACH % len(USERS)]


def _librechat(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    user = f"6650000000000000000000{USERS.index(_user(number)):02}"
    content: Row = {
        "content": [
            {"type": "think", "think": "The user speaks of boats."},
            {"type": "tool_call", "tool_call": {"id": "call_1", "name": "calendar", "args": "{}"}},
            {"type": "text", "text": text},
        ]
    }
    said = text if users else f"{text}\n[call: calendar {{}}]"
    row = {
        "_id": _object_id(number),
        "messageId": str(UUID(int=number)),
        "conversationId": str(UUID(int=1_000 + number // EACH)),
        "parentMessageId": str(UUID(int=max(number - 1, 0))),
        "user": user,
        "endpoint": "openAI",
        "model": None if users else "gpt-5-mini",
        "sender": "User" if users else "GPT-5",
        "text": text if users else "",
        "isCreatedByUser": users,
        "isTemporary": False,
        "unfinished": False,
        "error": False,
        "tokenCount": 9,
        "createdAt": at,
        "updatedAt": at,
        "__v": 0,
        **({} if users else content),
    }
    return row, Said("user" if users else "assistant", f"s.{user}", said)


def _librechat_session(number: int, rows: list[Row]) -> Row:
    return {
        "_id": _object_id(number),
        "conversationId": rows[0]["conversationId"],
        "title": "About boats",
        "user": rows[0]["user"],
        "messages": [row["_id"] for row in rows],
        "isTemporary": number == 1,
        "expiredAt": BEGAN if number == 1 else None,
        "endpoint": "openAI",
        "tags": [],
        "createdAt": BEGAN,
        "updatedAt": BEGAN,
        "__v": 0,
    }


def _rocket_chat_subscription(number: int, rows: list[Row]) -> Row:
    """Rocket.Chat keeps one for each user of a room; here the bot has none."""
    return {
        "_id": f"rcSubscription{number:03}",
        "rid": rows[0]["rid"],
        "u": rows[0]["u"],
        "name": "boats",
        "fname": "Boats",
        "t": "c",
        "open": True,
        "alert": False,
        "unread": 0,
        "ls": BEGAN,
        "ts": BEGAN,
        "_updatedAt": BEGAN,
    }


def _vercel_chat(number: int, rows: list[Row]) -> Row:
    return {
        "_id": _object_id(number),
        "id": rows[0]["chatId"],
        "title": "About boats",
        "userId": _user(number * EACH),
        "visibility": "private",
        "createdAt": BEGAN,
    }


def _mastra_thread(number: int, rows: list[Row]) -> Row:
    return {
        "_id": _object_id(number),
        "id": rows[0]["thread_id"],
        "resourceId": rows[0]["resourceId"],
        "title": "About boats",
        "metadata": None,
        "createdAt": BEGAN,
        "updatedAt": BEGAN,
    }


def _rocket_chat(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said | None]:
    name = _user(number) if users else "boats.helper"
    row: Row = {
        "_id": f"rcMessage{number:08}",
        "rid": f"rcRoom{number // EACH:011}",
        "msg": text,
        "ts": at,
        "u": {"_id": f"{name}Id", "username": name, "name": name.title()},
        "_updatedAt": at,
        "urls": [],
        "mentions": [],
        "channels": [],
        **({} if users else {"bot": {"i": "js.SDK"}}),
    }
    if number == EACH + 2:
        return {**row, "t": "uj", "msg": name}, None
    if number == EACH + 4:
        return {**row, "t": "rm", "msg": ""}, None
    if number == EACH + 6:
        file = {"title": "keel.pdf", "type": "file", "description": "The drawing", "title_link": "/x"}
        drawing = {**row, "msg": "", "attachments": [file]}
        return drawing, Said("user", f"s.{name}Id", "[file: The drawing]")
    return row, Said("user" if users else "assistant", f"s.{name}Id", text)


def _vercel(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    parts: list[Row] = [
        {"type": "step-start"},
        {"type": "reasoning", "text": "The user speaks of boats."},
        {"type": "text", "text": text, "state": "done"},
    ]
    row: Row = {
        "_id": _object_id(number),
        "id": str(UUID(int=number)),
        "chatId": str(UUID(int=1_000 + number // EACH)),
        "role": "user" if users else "assistant",
        "parts": parts[2:] if users else parts,
        "attachments": [],
        "createdAt": at,
    }
    return row, Said(row["role"], None, text)


def _responses(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said | None]:
    row: Row = {
        "_id": f"msg_{number:04}",
        "conversation_id": f"conv_{number // EACH}",
        "created_at": int(at.timestamp()),
        "status": "completed",
    }
    if number % EACH == 1:
        call = {"type": "function_call", "call_id": "call_1", "name": "calendar", "arguments": "{}"}
        return {**row, **call}, Said("tool", None, "[call: calendar {}]")
    if number % EACH == 3:
        output = {"type": "function_call_output", "call_id": "call_1", "output": f"March, {number}."}
        return {**row, **output}, Said("tool", None, f"March, {number}.")
    part = {"type": "input_text" if users else "output_text", "text": text}
    role = "user" if users else "assistant"
    return {**row, "type": "message", "role": role, "content": [part]}, Said(role, None, text)


def _assistants(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    row: Row = {
        "_id": f"msg_{number:04}",
        "object": "thread.message",
        "created_at": int(at.timestamp()),
        "thread_id": f"thread_{number // EACH}",
        "role": "user" if users else "assistant",
        "content": [{"type": "text", "text": {"value": text, "annotations": []}}],
        "assistant_id": None if users else "asst_1",
        "run_id": None if users else "run_1",
        "attachments": [],
        "metadata": {"user_id": _user(number)} if users else {},
    }
    return row, Said(row["role"], f"s.{_user(number)}" if users else None, text)


def _discord(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    name = _user(number) if users else "helper"
    author = {"id": str(10**17 + len(name)), "username": name, "discriminator": "0", "avatar": None}
    file = {"id": "1", "filename": "keel.png", "content_type": "image/png", "url": "https://example.org/x"}
    said = {0: "[image: keel.png]", 1: f"{text}\n[image: keel.png]"}.get(number - EACH, text)
    row: Row = {
        "_id": _object_id(number),
        "id": str(2 * 10**17 + number),
        "channel_id": str(3 * 10**17 + number // EACH),
        "guild_id": "400000000000000000",
        "author": author if users else {**author, "bot": True},
        "content": "" if number == EACH else text,
        "timestamp": at.isoformat(),
        "edited_timestamp": None,
        "type": 0,
        "attachments": [] if said == text else [file],
        "embeds": [],
        "mentions": [],
        "pinned": False,
    }
    return row, Said("user" if users else "assistant", f"s.{author['id']}", said)


def _telegram(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    name = _user(number) if users else "boats_bot"
    person, chat = float(700_000_000 + len(name)), float(-100_000 - number // EACH)
    row: Row = {
        "_id": _object_id(number),
        "message_id": float(number),
        "from": {"id": person, "is_bot": not users, "first_name": name.title(), "username": name},
        "chat": {"id": chat, "type": "group", "title": "Boats"},
        "date": float(at.timestamp()),
        **({"caption": text, "photo": [{"file_id": "x"}]} if number == EACH else {"text": text}),
    }
    return row, Said("user" if users else "assistant", f"i.{int(person)}", text)


def _baileys(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    person = f"4917000000{number // EACH}@s.whatsapp.net"
    seconds = int(at.timestamp())
    texts: list[Row] = [
        {"conversation": text},
        {"extendedTextMessage": {"text": text, "contextInfo": {}}},
        {"imageMessage": {"caption": text, "mimetype": "image/jpeg", "url": "https://example.org/x"}},
    ]
    row: Row = {
        "_id": f"3EB0{number:012X}",
        "key": {"remoteJid": person, "fromMe": not users, "id": f"3EB0{number:012X}"},
        "message": texts[number % len(texts)],
        "messageTimestamp": {"low": seconds, "high": 0, "unsigned": True} if number % 3 else Int64(seconds),
        "pushName": _user(number).title() if users else None,
        "status": 3,
    }
    name = person.replace("@", "%40")
    return row, Said("user" if users else "assistant", f"s.{name}", text)


def _whatsapp_web(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    person, bot = f"4917000000{number // EACH}@c.us", "493012300@c.us"
    row: Row = {
        "_id": f"{not users}_{person}_{number}",
        "id": {"fromMe": not users, "remote": person, "id": f"{number}", "_serialized": f"x_{number}"},
        "fromMe": not users,
        "from": person if users else bot,
        "to": bot if users else person,
        "body": text,
        "type": "chat",
        "timestamp": int(at.timestamp()),
        "hasMedia": False,
    }
    return row, Said("user" if users else "assistant", f"s.{row['from'].replace('@', '%40')}", text)


def _mongoose(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    author = f"{(900 if not users else number // EACH):024x}"
    row: Row = {
        "_id": _object_id(number),
        "conversation": ObjectId(f"{number // EACH + 50:024x}"),
        "sender": ObjectId(author),
        "text": text,
        "createdAt": at,
        "updatedAt": at,
        "__v": 0,
    }
    return row, Said("user" if users else "assistant", f"o.{author}", text)


def _meteor(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    author = f"{_user(number):X<17}" if users else "bot"
    row: Row = {
        "_id": f"{number:Q>17}",
        "roomId": f"{number // EACH:R>17}",
        "userId": author,
        "text": text,
        "createdAt": at,
    }
    return row, Said("user" if users else "assistant", f"s.{author}", text)


BY_FLAG = {"true": "assistant", "false": "user"}
WHATSAPP = [
    "message.conversation",
    "message.extendedTextMessage.text",
    "message.imageMessage.caption",
]


def _plain_bot(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    role, user = "user" if users else "assistant", f"s.{_user(number)}"
    return {"role": role, "content": text, "ts": at}, Said(role, user, text)


def _plain_bots(number: int, rows: list[Row]) -> Row:
    user = _user(number * EACH)
    return {"_id": _object_id(number * EACH), "userId": user, "messages": rows, "updatedAt": BEGAN}


def _chat_ui(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said | None]:
    """In each session the first answer was made again, so that it and what followed on it are not shown."""
    role, first, place = "user" if users else "assistant", number // EACH * EACH, number % EACH
    replaced = place in (1, 2)
    before = range(place) if replaced or place == 0 else (0, *range(3, place))
    files = [{"type": "hash", "name": "keel.png", "value": "0f" * 32, "mime": "image/png"}]
    row: Row = {
        "id": str(UUID(int=number)),
        "from": role,
        "content": text,
        "createdAt": at,
        "updatedAt": at,
        "ancestors": [str(UUID(int=first + each)) for each in before],
        "children": [],
        **({"files": files if place == 4 else []} if users else {"updates": [], "interrupted": False}),
    }
    said = f"{text}\n[image: keel.png]" if place == 4 else text
    return row, None if replaced else Said(role, f"o.{_chat_ui_user(number)}", said)


def _chat_ui_user(number: int) -> ObjectId:
    return ObjectId(f"{700 + USERS.index(_user(number)):024x}")


def _chat_uis(number: int, rows: list[Row]) -> Row:
    return {
        "_id": _object_id(number * EACH),
        "title": "🚤 About boats",
        "model": "meta-llama/Llama-3.3-70B-Instruct",
        "preprompt": "",
        "rootMessageId": rows[0]["id"],
        "messages": rows,
        "userId": _chat_ui_user(number * EACH),
        "userAgent": "Mozilla/5.0",
        "createdAt": BEGAN,
        "updatedAt": BEGAN,
    }


def _langchain_js(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    data: Row = {"content": text, "additional_kwargs": {}, "response_metadata": {}}
    more: Row = {} if users else {"tool_calls": [], "invalid_tool_calls": []}
    row: Row = {"type": "human" if users else "ai", "data": {**data, **more}}
    return row, Said("user" if users else "assistant", None, text)


def _langchain_js_session(number: int, rows: list[Row]) -> Row:
    return {"_id": _object_id(number * EACH), "sessionId": f"session-{number}", "messages": rows}


def _langchain(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    kind = "human" if users else "ai"
    data: Row = {
        "content": text,
        "additional_kwargs": {},
        "response_metadata": {},
        "type": kind,
        "name": None,
    }
    history = json.dumps({"type": kind, "data": {**data, "id": None}})
    row = {"_id": _object_id(number), "SessionId": f"session-{number // EACH}", "History": history}
    return row, Said("user" if users else "assistant", None, text)


def _mastra(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    role, parts = "user" if users else "assistant", [{"type": "text", "text": text}]
    tool: Row = {
        "type": "tool-invocation",
        "toolInvocation": {"state": "result", "toolName": "tides", "args": {}},
    }
    content: Row = {"format": 2, "parts": parts if users else [{"type": "step-start"}, tool, *parts]}
    row: Row = {
        "_id": _object_id(number),
        "id": str(UUID(int=number)),
        "thread_id": f"thread-{number // EACH}",
        "content": json.dumps({**content, "content": text} if users else content),
        "role": role,
        "type": "v2",
        "createdAt": at,
        "resourceId": _user(number),
    }
    said = text if users else f"{text}\n[call: tides]"
    return row, Said(role, f"s.{_user(number)}", said)


def _agents_sdk(number: int, users: bool, text: str, at: datetime) -> tuple[Row, Said]:
    role = "user" if users else "assistant"
    part: Row = {"type": "output_text", "text": text, "annotations": []}
    item: Row = (
        {"role": "user", "content": text} if users else {"type": "message", "role": role, "content": [part]}
    )
    row: Row = {
        "_id": _object_id(number),
        "session_id": f"s{number // EACH}",
        "message_data": json.dumps(item),
    }
    return {**row, "created_at": at}, Said(role, None, text)


def exchange(number: int) -> Row:
    """Return a document that holds what two speakers said: question and answer."""
    texts = {
        "question": f"Is boat {number} ready for the trip?",
        "answer": f"It is due on {number + 1} March.",
    }
    session, at = f"s{number // 5}", BEGAN + timedelta(minutes=number)
    return {
        "_id": _object_id(number),
        "sessionId": session,
        "userId": _user(number),
        **texts,
        "createdAt": at,
    }


EXCHANGES = "Two speakers in a document (`{question, answer}`)"

STORED_CHATS = (
    StoredChat(
        "A bot's document with a list (`{_id, userId, messages: [{role, content, ts}]}`)",
        _plain_bot,
        {
            "list": "messages",
            "session_id": "_id",
            "role": "messages.role",
            "content": "messages.content",
            "user_id": "userId",
            "created_at": "messages.ts",
        },
        listed=_plain_bots,
    ),
    StoredChat(
        "HF chat-ui",
        _chat_ui,
        {
            "list": "messages",
            "session_id": "_id",
            "role": "messages.from",
            "content": "messages.content",
            "user_id": "userId",
            "created_at": "messages.createdAt",
        },
        not_read=("branches beside the newest message's; files' content",),
        listed=_chat_uis,
    ),
    StoredChat(
        "LangChain.js and n8n",
        _langchain_js,
        {
            "list": "messages",
            "session_id": "sessionId",
            "role": "messages.type",
            "content": "messages.data.content",
            "roles": {"ai": "assistant", "human": "user"},
        },
        not_read=(
            "the user: write the id into the document",
            "the time: existing messages count as written now",
        ),
        listed=_langchain_js_session,
        dated=False,
    ),
    StoredChat(
        "LangChain's `MongoDBChatMessageHistory` (JSON text)",
        _langchain,
        {
            "session_id": "SessionId",
            "role": "History::json.type",
            "content": "History::json.data.content",
            "created_at": "_id",
            "roles": {"ai": "assistant", "human": "user"},
        },
        not_read=("the user: write the id into the document",),
    ),
    StoredChat(
        "Mastra (JSON text)",
        _mastra,
        {
            "session_id": "thread_id",
            "role": "role",
            "content": ["content::json.parts", "content::json.content"],
            "user_id": "resourceId",
            "created_at": "createdAt",
        },
        not_read=("messages of version 1, which are no JSON",),
        of_session=_mastra_thread,
        sessions={"id": "id", "users": "resourceId", "title": "title"},
    ),
    StoredChat(
        "Items of the OpenAI Agents SDK as JSON text (`{session_id, message_data}`)",
        _agents_sdk,
        {
            "session_id": "session_id",
            "role": "message_data::json.role",
            "content": "message_data::json.content",
            "created_at": "created_at",
        },
        not_read=("the user: write the id with each item",),
    ),
    StoredChat(
        "LibreChat",
        _librechat,
        {
            "session_id": "conversationId",
            "role": "isCreatedByUser",
            "content": ["content", "text"],
            "user_id": "user",
            "created_at": "createdAt",
            "roles": {"true": "user", "false": "assistant"},
            "exclude": ["isTemporary", "error"],
        },
        not_read=("what was replaced on another branch, if memory was not formed of it yet",),
        of_session=_librechat_session,
        sessions={"id": "conversationId", "users": "user", "title": "title", "exclude": ["isTemporary"]},
    ),
    StoredChat(
        "Rocket.Chat",
        _rocket_chat,
        {
            "session_id": "rid",
            "role": "u._id",
            "content": "msg",
            "user_id": "u._id",
            "created_at": "ts",
            "roles": {"boats.helperId": "assistant", "*": "user"},
            "deleted": ["t=rm"],
            "exclude": ["t=uj"],
        },
        not_read=("files' content; encrypted messages (`e2e`)",),
        of_session=_rocket_chat_subscription,
        sessions={"id": "rid", "users": "u._id", "title": "name"},
    ),
    StoredChat(
        "Vercel AI SDK (`UIMessage`)",
        _vercel,
        {"session_id": "chatId", "role": "role", "content": "parts", "created_at": "createdAt"},
        of_session=_vercel_chat,
        sessions={"id": "id", "users": "userId", "title": "title"},
    ),
    StoredChat(
        "OpenAI Responses and Conversations, an item for each document",
        _responses,
        {
            "session_id": "conversation_id",
            "role": "role",
            "content": ["content", "output"],
            "created_at": "created_at",
            "roles": {"developer": "system", "false": "tool"},
        },
        not_read=("the user: write the id with each item", "`reasoning`, which is counted"),
    ),
    StoredChat(
        "OpenAI Assistants",
        _assistants,
        {
            "session_id": "thread_id",
            "role": "role",
            "content": "content",
            "user_id": "metadata.user_id",
            "created_at": "created_at",
        },
    ),
    StoredChat(
        "Discord",
        _discord,
        {
            "session_id": "channel_id",
            "role": "author.bot",
            "content": "content",
            "user_id": "author.id",
            "created_at": "timestamp",
            "roles": BY_FLAG,
        },
        not_read=("`embeds`; files' content",),
    ),
    StoredChat(
        "Telegram's Bot API",
        _telegram,
        {
            "session_id": "chat.id",
            "role": "from.is_bot",
            "content": "text",
            "user_id": "from.id",
            "created_at": "date",
            "roles": BY_FLAG,
        },
    ),
    StoredChat(
        "Baileys (WhatsApp)",
        _baileys,
        {
            "session_id": "key.remoteJid",
            "role": "key.fromMe",
            "content": WHATSAPP,
            "user_id": "key.remoteJid",
            "created_at": "messageTimestamp",
            "roles": BY_FLAG,
        },
        asks=True,
        not_read=("messages of other kinds",),
    ),
    StoredChat(
        "whatsapp-web.js",
        _whatsapp_web,
        {
            "session_id": "id.remote",
            "role": "fromMe",
            "content": "body",
            "user_id": "from",
            "created_at": "timestamp",
            "roles": BY_FLAG,
        },
        not_read=("media",),
    ),
    StoredChat(
        "mongoose models without a role",
        _mongoose,
        {
            "session_id": "conversation",
            "role": "sender",
            "content": "text",
            "user_id": "sender",
            "created_at": "createdAt",
            "roles": {f"{900:024x}": "assistant", "*": "user"},
        },
        asks=True,
    ),
    StoredChat(
        "Meteor collections without a role",
        _meteor,
        {
            "session_id": "roomId",
            "role": "userId",
            "content": "text",
            "user_id": "userId",
            "created_at": "createdAt",
            "roles": {"bot": "assistant", "*": "user"},
        },
    ),
)
