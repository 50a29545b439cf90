"""The application of the fault run: sessions of a few users that write, edit, delete, say things again, and end.

Every operation is tried until a majority has acknowledged it, so what was written is known.
"""

import asyncio
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId

from tests.bench.chat_load import WORDS
from tests.chaos.application import client_of, surely
from tests.chaos.formation_script import marker_of

DATABASE = "chaos"
AT_ONCE = 12
"""Sessions open at the same time."""
POISON = ("POISON-SCHEMA", "POISON-ERROR")
"""What no question can be answered well that shows it: the model server has a rule for each."""
POISONED = 4
"""Messages of a poisoned session."""


@dataclass
class Message:
    """One message as it was written."""

    id: str
    session: str
    user: str
    content: str
    marker: str | None
    deleted: bool = False


@dataclass
class Session:
    """An open conversation; it ends after so many messages."""

    id: str
    user: str
    left: int
    said: list[Message] = field(default_factory=list[Message])


class Chat:
    """`pace`: messages a second; `users` of whom each has several sessions."""

    def __init__(self, uri: str, seed: int, *, users: int = 5, pace: float = 8.0, poisoned: int = 4) -> None:
        self._client = client_of(uri)
        self.database = self._client[DATABASE]
        self._chance = random.Random(f"{seed}/chat")
        self._users, self._pace, self._poisoned = users, pace, poisoned
        self._sessions, self._number = 0, 0
        self.messages: dict[str, Message] = {}
        self.poisoned: set[str] = set()
        """Sessions in which nothing can be formed."""
        self.edits = self.deletions = self.repeats = 0
        self._open = [self._new() for _ in range(AT_ONCE)]

    async def create(self) -> None:
        """The collection, with pre-images, and the index that the tailer wishes."""
        await self.database.create_collection("messages", changeStreamPreAndPostImages={"enabled": True})
        await self.database["messages"].create_index([("created_at", 1), ("_id", 1)])

    async def talk(self, over: asyncio.Event) -> None:
        """Until told to stop; then every session ends."""
        ticks = 0
        while not over.is_set():
            ticks += 1
            await self._tick()
            if ticks % 60 == 10 and len(self.poisoned) < self._poisoned:
                await self._poison()
            await asyncio.sleep(1 / self._pace)
        for session in self._open:
            await self._end(session)

    async def close(self) -> None:
        """Disconnect."""
        await self._client.close()

    async def _tick(self) -> None:
        place = self._chance.randrange(AT_ONCE)
        session, drawn = self._open[place], self._chance.random()
        standing = [one for one in session.said[-6:] if not one.deleted]
        if standing and drawn < 0.05:
            await self._edit(self._chance.choice(standing))
        elif standing and drawn < 0.08:
            await self._delete(self._chance.choice(standing))
        elif session.left:
            await self._say(session)
        else:
            await self._end(session)
            self._open[place] = self._new()

    async def _say(self, session: Session) -> None:
        session.left -= 1
        by_user = len(session.said) % 2 == 0
        earlier = self._earlier(session) if by_user and self._chance.random() < 0.12 else None
        if earlier is not None:
            self.repeats += 1
            await self._write(session, earlier.content, earlier.marker, by_user=True)
            return
        words = self._chance.choices(WORDS, k=self._chance.randint(16, 34))
        marker = self._marker() if by_user else None
        await self._write(session, " ".join([marker, *words] if marker else words), marker, by_user=by_user)

    def _earlier(self, session: Session) -> Message | None:
        """Something that the same user has said in another session, and that was never changed."""
        found = [
            one
            for one in self.messages.values()
            if one.user == session.user and one.session != session.id and one.marker and not one.deleted
        ]
        return self._chance.choice(found[-30:]) if found else None

    async def _write(self, session: Session, content: str, marker: str | None, *, by_user: bool) -> None:
        name = f"m{len(self.messages)}"
        message = Message(name, session.id, session.user, content, marker)
        self.messages[name] = message
        document: dict[str, Any] = {
            "_id": name,
            "session_id": session.id,
            "role": "user" if by_user else "assistant",
            "content": content,
            "user_id": session.user if by_user else None,
            "created_at": datetime.now(UTC),
        }
        await surely(lambda: self.database["messages"].insert_one(document))
        session.said.append(message)

    async def _edit(self, message: Message) -> None:
        """Behind the words that its fact quotes."""
        self.edits += 1
        message.content += " and more"
        change = {"$set": {"content": message.content}}
        await surely(lambda: self.database["messages"].update_one({"_id": message.id}, change))

    async def _delete(self, message: Message) -> None:
        self.deletions += 1
        message.deleted = True
        await surely(lambda: self.database["messages"].delete_one({"_id": message.id}))

    async def _poison(self) -> None:
        """A whole session about which no question can be answered."""
        session = self._new(user=f"poison-{len(self.poisoned)}")
        kind = POISON[len(self.poisoned) % len(POISON)]
        self.poisoned.add(session.id)
        for number in range(POISONED):
            await self._write(session, f"{kind} says nothing {number}", None, by_user=number % 2 == 0)
        await self._end(session)

    async def _end(self, session: Session) -> None:
        asked = {"_id": ObjectId(), "kind": "session_ended", "session_id": session.id}
        await surely(lambda: self.database["memory_inbox"].insert_one(asked))

    def _new(self, user: str | None = None) -> Session:
        self._sessions += 1
        named = user or f"user-{self._chance.randrange(self._users)}"
        return Session(f"session-{self._sessions}", named, self._chance.randint(6, 30))

    def _marker(self) -> str:
        self._number += 1
        return marker_of(self._number)
