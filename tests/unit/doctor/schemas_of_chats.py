"""Messages as real applications store them: four schemas and what some leave out."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from bson import ObjectId

from eden_memory.settings import MessagesSettings

Row = dict[str, Any]
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = int(BEGAN.timestamp())
USERS = ("ana", "rui", "dora")


def langchain(number: int) -> Row:
    """A LangChain message with parts: `human` and `ai`, one text each in a list, a UUID for the session."""
    human = number % 2 == 0
    author: Row = {"user_id": USERS[number % 3]} if human else {}
    return {
        "_id": ObjectId(),
        "sessionId": UUID(int=number // 10),
        "type": "human" if human else "ai",
        "data": {
            "content": [{"type": "text", "text": f"The boat number {number} is due in March."}],
            "model_name": None if human else "gpt-5-mini",
            **author,
        },
        "createdAt": (BEGAN.replace(minute=number)).isoformat().replace("+00:00", "Z"),
        "updatedAt": BEGAN,
    }


def thread(number: int) -> Row:
    """A message of an OpenAI thread: seconds since 1970, the text within its part."""
    user = number % 2 == 0
    return {
        "_id": f"msg_{number:04}",
        "object": "thread.message",
        "created_at": EPOCH + number,
        "thread_id": f"thread_{number // 10}",
        "role": "user" if user else "assistant",
        "content": [{"type": "text", "text": {"value": f"Text number {number}.", "annotations": []}}],
        "assistant_id": None if user else "asst_1",
        "metadata": {"user_id": USERS[number % 3]} if user else {},
        "status": "completed",
    }


def nested(number: int) -> Row:
    """An application's own schema: everything nested, milliseconds since 1970, `Customer` and `Bot`."""
    customer = number % 3 != 0
    return {
        "_id": number,
        "conversation": {"id": number // 10, "title": f"About the boat {number // 10}"},
        "from": {
            "kind": "Customer" if customer else "Bot",
            "ref": {"id": 100 + number % 3},
            "name": "Ana Silva",
        },
        "payload": {"body": f"Message number {number} of a longer talk", "lang": "en"},
        "meta": {"sentAt": (EPOCH + number) * 1000, "editedAt": BEGAN},
        "tenant": {"id": "acme"},
    }


def rooms(number: int) -> Row:
    """A message of a room of several people: every sender has an id, and a flag tells the bot."""
    bot = number % 3 == 2
    return {
        "_id": ObjectId(),
        "roomId": ObjectId(f"{number // 10:024x}"),
        "senderId": ObjectId(f"{900 if bot else number % 3:024x}"),
        "content": [{"type": "text", "text": f"The boat number {number} is due in March."}],
        "ts": (EPOCH + number) * 1000,
        **({"isBot": True} if bot else {}),
    }


def history(number: int) -> Row:
    """What LangChain's MongoDBChatMessageHistory stores, the message as a document in place of its JSON."""
    human = number % 2 == 0
    data: Row = {
        "content": f"The boat number {number} is due in March.",
        "additional_kwargs": {},
        "response_metadata": {},
        "type": "human" if human else "ai",
        "name": None,
        "id": None if human else f"run--{UUID(int=number)}",
    }
    return {"SessionId": f"chat-{number // 10}", "History": {"type": data["type"], "data": data}}


BOT = "4930123@c.us"


def whatsapp(number: int) -> Row:
    """What a bot's own WhatsApp account exports: `fromMe` is the bot, whose number is the author of its answers."""
    bot, chat = number % 2 == 1, f"49170{number // 10}@c.us"
    return {
        "_id": f"wa-{number:03}",
        "chatId": chat,
        "fromMe": bot,
        "body": f"Your boat {number} is due." if bot else f"My PIN is {4710 + number}.",
        "author": BOT if bot else chat,
        "timestamp": EPOCH + number,
    }


def turns(number: int) -> Row:
    """A document for each session, with its turns in a list, and the newest text beside it."""
    said = [{"sender": "user", "text": "My PIN is 4711."}, {"sender": "bot", "text": f"Noted, {number}."}]
    return {
        "_id": ObjectId(),
        "chatId": f"chat-{number}",
        "userId": USERS[number % 3],
        "messages": said[: 1 + number % 2],
        "lastMessage": f"Noted, {number}.",
        "createdAt": BEGAN,
    }


def history_json(number: int) -> Row:
    """The same as LangChain stores it by itself."""
    row = history(number)
    return {**row, "History": json.dumps(row["History"])}


EXPECTED: dict[Any, MessagesSettings] = {
    langchain: MessagesSettings(
        session_id="sessionId",
        role="type",
        content="data.content",
        user_id="data.user_id",
        created_at="createdAt",
        roles={"human": "user", "ai": "assistant"},
    ),
    thread: MessagesSettings(
        session_id="thread_id",
        role="role",
        content="content",
        user_id="metadata.user_id",
        created_at="created_at",
    ),
    nested: MessagesSettings(
        session_id="conversation.id",
        role="from.kind",
        content="payload.body",
        user_id="from.ref.id",
        created_at="meta.sentAt",
        roles={"Customer": "user", "Bot": "assistant"},
    ),
    rooms: MessagesSettings(
        session_id="roomId",
        role="isBot",
        content="content",
        user_id="senderId",
        created_at="ts",
        roles={"true": "assistant", "false": "user"},
    ),
    history: MessagesSettings(
        session_id="SessionId",
        role="History.type",
        content="History.data.content",
        created_at="_id",
        roles={"human": "user", "ai": "assistant"},
    ),
}


def many(make: Any, count: int = 40) -> list[Row]:
    return [make(number) for number in range(count)]
