"""The application of the fault run: sessions of a few users that write, edit, delete, move and forget, and end.

Some sessions gain a second author, some are forgotten as they end, often while formation-trigger is paused. Every
operation is tried until a majority has acknowledged it, so what was written is known.
"""

import asyncio
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from bson import ObjectId

from eden_memory.names import Names
from eden_memory.processors.pipeline import FORMATION_TRIGGER
from eden_memory.stages.controls import MongoControls, Pause
from eden_memory.stages.publishing import partition_for
from tests.bench.chat_load import WORDS
from tests.chaos.application import PARTITIONS, client_of, surely
from tests.chaos.formation_script import marker_of
from tests.chaos.transactions import Transactions, bound_transactions

DATABASE = "chaos"
AT_ONCE = 12
"""Sessions open at the same time."""
POISON = ("POISON-SCHEMA", "POISON-ERROR")
"""What no question can be answered well that shows it: the model server has a rule for each."""
POISONED = 4
"""Messages of a poisoned session."""
CALM = "calm"
"""Who goes on when everybody else has ended."""
Fate = Literal["plain", "shared", "session forgotten", "user forgotten"]
FATES: tuple[Fate, ...] = "plain", "shared", "session forgotten", "user forgotten"
OFTEN = (64, 18, 10, 8)


@dataclass
class Message:
    """One message as it was written."""

    id: str
    session: str
    user: str
    content: str
    marker: str | None
    deleted: bool = False
    forgotten: bool = False
    sessions: set[str] = field(default_factory=set[str])
    """All that it has ever been in: a window of any of them may have it."""
    shared: Literal["no", "before", "after"] = "no"
    """Whether its session has, or will have, a second author: it stands before or after that one's first message."""

    @property
    def gone(self) -> bool:
        """Whether nothing is to be remembered from it."""
        return self.deleted or self.forgotten


@dataclass
class Session:
    """An open conversation; it ends after so many messages."""

    id: str
    user: str
    left: int
    fate: Fate = "plain"
    said: list[Message] = field(default_factory=list[Message])
    second: str | None = None
    """Its second author, once a majority has acknowledged his first message."""
    joins_at: int = 0


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
        self.moves = self.transactions = self.forgets = self.pauses = 0
        self.left: set[str] = set()
        """Sessions whose user is forgotten: their windows form nothing of his own, whoever else wrote there."""
        self.joined: list[Session] = []
        self.alone: list[Session] = []
        """Sessions of one user, open or not: those may show his own memory."""
        self._transactions = Transactions(self._client, self.database["messages"])
        self._controls = MongoControls(self.database, Names("memory_"))
        self._resuming: set[asyncio.Task[None]] = set()
        self._open = [self._new() for _ in range(AT_ONCE)]

    async def create(self) -> None:
        """The collection, with pre-images, and the index that the tailer wishes."""
        await self.database.create_collection("messages", changeStreamPreAndPostImages={"enabled": True})
        await self.database["messages"].create_index([("created_at", 1), ("_id", 1)])
        await self.database["messages"].create_index([("session_id", 1), ("user_id", 1)])
        await surely(lambda: bound_transactions(self._client))

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
            await self._close(session)
        await asyncio.gather(*self._resuming)

    async def go_on(self) -> None:
        """One more good session: that others succeed tells what always fails from a provider that is away."""
        session = self._new(user=CALM)
        for _ in range(4):
            await self._say(session)
        await self._end(session)

    async def close(self) -> None:
        """Disconnect."""
        await self._client.close()

    async def _tick(self) -> None:
        place = self._chance.randrange(AT_ONCE)
        session, drawn = self._open[place], self._chance.random()
        standing = [one for one in session.said[-6:] if not one.gone]
        if standing and drawn < 0.05:
            await self._edit(self._chance.choice(standing))
        elif standing and drawn < 0.075:
            await self._delete(self._chance.choice(standing))
        elif standing and drawn < 0.10:
            await self._forget_message(self._chance.choice(standing))
        elif standing and drawn < 0.14:
            await self._move(session, self._chance.choice(standing))
        elif session.left:
            await self._say(session)
        else:
            await self._close(session)
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
        if session.fate != "plain":
            return None
        found = [
            one
            for one in self.messages.values()
            if one.user == session.user
            and session.id not in one.sessions
            and one.marker
            and not one.gone
            and one.shared == "no"
        ]
        return self._chance.choice(found[-30:]) if found else None

    async def _write(self, session: Session, content: str, marker: str | None, *, by_user: bool) -> None:
        name, author = f"m{len(self.messages)}", self._author(session)
        message = Message(name, session.id, author, content, marker, sessions={session.id})
        if session.fate == "shared":
            message.shared = "before" if author == session.user and session.second is None else "after"
        self.messages[name] = message
        document: dict[str, Any] = {
            "_id": name,
            "session_id": session.id,
            "role": "user" if by_user else "assistant",
            "content": content,
            "user_id": author if by_user else None,
            "created_at": datetime.now(UTC),
        }
        if self._chance.random() < 0.15:
            await self._in_transaction(session, message, document)
        else:
            await surely(lambda: self.database["messages"].insert_one(document))
        session.said.append(message)
        if by_user and author != session.user and session.second is None:
            session.second = author
            self.joined.append(session)
            self.alone.remove(session)

    def _author(self, session: Session) -> str:
        """The second one from halfway on, in turn with the first."""
        if session.fate != "shared" or session.left >= session.joins_at:
            return session.user
        turn = len(session.said) // 2 % 2
        return f"{session.user}-guest" if turn else session.user

    async def _in_transaction(self, session: Session, message: Message, document: dict[str, Any]) -> None:
        """Several changes at one cluster time, of which this document is left."""
        self.transactions += 1
        change, other = self._chance.randrange(4), self._beside(session)
        draft = self._chance.choice(["", "draft " + " ".join(self._chance.choices(WORDS, k=8))])
        if change >= 2 and other is not None:
            message.sessions.add(other.id)
            way = [other.id] if change == 2 else [session.id, other.id]
            await surely(lambda: self._transactions.insert_and_move(document, *way))
        elif change % 2:
            await surely(lambda: self._transactions.insert_delete_and_insert(document, draft))
        else:
            drafted = {**document, "content": draft}
            await surely(lambda: self._transactions.insert_and_update(drafted, document["content"]))

    def _beside(self, session: Session) -> Session | None:
        """Another open session of the same user, and of nobody else; one of the same partition rather than not."""
        others = [one for one in self._open if one.user == session.user and one is not session]
        plain = [one for one in others if one.fate == session.fate == "plain"]
        near = [one for one in plain if _partition(one) == _partition(session)]
        chosen = near if near and self._chance.random() < 0.5 else plain
        return self._chance.choice(chosen) if chosen else None

    async def _move(self, session: Session, message: Message) -> None:
        other = self._beside(session)
        if other is None:
            return
        self.moves += 1
        session.said.remove(message)
        other.said.append(message)
        message.session = other.id
        message.sessions.add(other.id)
        change = {"$set": {"session_id": other.id}}
        await surely(lambda: self.database["messages"].update_one({"_id": message.id}, change))

    async def _close(self, session: Session) -> None:
        """Let it end, or have it or its user forgotten, while formation-trigger may be paused."""
        if session.fate in ("plain", "shared"):
            await self._end(session)
            return
        if not self._resuming and self._chance.random() < 0.5:
            await self._pause()
            for _ in range(3):
                await self._say(session)
        whole = session.fate == "session forgotten"
        for one in session.said:
            one.forgotten |= whole or one.marker is not None
        self.left |= set() if whole else {session.id}
        await self._forget(*(("session", session.id) if whole else ("user", session.user)))
        if self._chance.random() < 0.5:
            await self._edit(self._chance.choice(session.said[-4:]))
        if not whole or self._chance.random() < 0.5:
            await self._end(session)

    async def _forget_message(self, message: Message) -> None:
        message.forgotten = True
        await self._forget("message", message.id)
        if self._chance.random() < 0.3:
            await self._edit(message)

    async def _forget(self, what: str, target: str) -> None:
        self.forgets += 1
        asked = {"_id": ObjectId(), "kind": "forget", "what": what, "target": target}
        await surely(lambda: self.database["memory_inbox"].insert_one(asked))

    async def _pause(self) -> None:
        """Have formation-trigger stand still for some seconds."""
        self.pauses += 1
        pause = Pause(FORMATION_TRIGGER, "hand", "the fault run asks for it", datetime.now(UTC))
        await surely(lambda: self._controls.pause(pause))
        task = asyncio.create_task(self._resume(self._chance.uniform(1.0, 5.0)))
        self._resuming.add(task)
        task.add_done_callback(self._resuming.discard)

    async def _resume(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await surely(lambda: self._controls.resume(FORMATION_TRIGGER, "hand"))

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
        session = Session(f"session-{self._sessions}", named, self._chance.randint(6, 30))
        if user is None:
            session.fate = self._chance.choices(FATES, OFTEN)[0]
            session.joins_at = self._chance.randint(3, session.left)
            if session.fate == "user forgotten":  # nobody else's memory goes with him
                session.user = f"leaver-{self._sessions}"
            self.alone.append(session)
        return session

    def _marker(self) -> str:
        self._number += 1
        return marker_of(self._number)


def _partition(session: Session) -> int:
    return partition_for(f"s.{session.id}".encode(), PARTITIONS)
