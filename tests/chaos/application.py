"""A chat application under faults: sessions that write, edit, delete and move messages, and ask through the inbox.

Every operation is tried until it is acknowledged by a majority, so what was written is known; what stands at the
end is read from MongoDB.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError

from eden_memory.mongo.ids import encode_id
from eden_memory.stages.publishing import partition_for
from tests.chaos.transactions import Transactions, bound_transactions
from tests.chaos.verdict import Truth

DATABASE, MESSAGES, INBOX = "chaos", "messages", "memory_inbox"
PARTITIONS = 6
WORDS = [
    "tea",
    "rain",
    "harbour",
    "violin",
    "quarter",
    "ledger",
    "maple",
    "orbit",
    "salt",
    "window",
    "train",
    "copper",
]
EXISTS = 48
OPERATIONS = {
    "write": 50,
    "edit": 18,
    "touch": 8,
    "replace": 4,
    "delete": 9,
    "move": 8,
    "placeholder": 3,
    "ask": 4,
    "insert and update": 5,
    "insert and delete": 2,
    "delete and insert": 5,
    "there and back": 5,
}
Step = Callable[[], Awaitable[Any]]


def client_of(uri: str) -> AsyncMongoClient[dict[str, Any]]:
    """A connection that notices a dead or frozen server within seconds."""
    return AsyncMongoClient(
        uri,
        w="majority",
        journal=True,
        serverSelectionTimeoutMS=2_000,
        connectTimeoutMS=2_000,
        socketTimeoutMS=5_000,
        uuidRepresentation="standard",
        tz_aware=True,
    )


def text_of(content: Any) -> str:
    """The text of content as the sessions write it: itself, or its parts' texts."""
    if isinstance(content, str):
        return content
    parts: list[dict[str, str]] = content or []
    return "\n".join(part["text"] for part in parts)


@dataclass
class Session:
    """One session's own messages, its clock and its dice."""

    number: int
    id: Any
    chance: random.Random
    alive: dict[Any, datetime] = field(default_factory=dict[Any, datetime])
    """`_id`s of its messages that it has not deleted, and when they were created."""
    order: list[str] = field(default_factory=list[str])
    """Typed ids of messages and controls in the order of writing, but for those without text at any time."""
    asked: int = 0
    clock: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        """The application's time: never the same twice in a session."""
        self.clock = max(datetime.now(UTC), self.clock + timedelta(milliseconds=1))
        return self.clock

    def words(self, revision: str) -> str:
        """A text that no other message has."""
        return f"{self.number} {revision} {self.asked} " + " ".join(self.chance.choices(WORDS, k=12))


class Application:
    """Twenty sessions over one collection; `pace` is the mean pause of a session in seconds."""

    def __init__(self, uri: str, seed: int, *, sessions: int = 20, pace: float = 0.7) -> None:
        self._client = client_of(uri)
        self.database = self._client[DATABASE]
        self.messages, self.inbox = self.database[MESSAGES], self.database[INBOX]
        self._pace = pace
        self._transactions = Transactions(self._client, self.messages)
        self.sessions = [_session(seed, number) for number in range(sessions)]
        self.counts: Counter[str] = Counter()
        self.written: set[str] = set()
        self.added: dict[str, tuple[str, str]] = {}
        self.began: list[tuple[float, str]] = []
        """When the writing of a message began (monotonic), and its typed id."""

    async def create(self, *, pre_images: bool) -> None:
        """The collection and its index, as the tailer wishes it."""
        images: dict[str, Any] = {"changeStreamPreAndPostImages": {"enabled": pre_images}}
        try:
            await surely(lambda: self.database.command("create", MESSAGES))
        except OperationFailure as error:
            if error.code != EXISTS:  # a session that goes on writing makes it as well
                raise
        await surely(lambda: self.database.command("collMod", MESSAGES, **images))
        await surely(lambda: self.messages.create_index([("created_at", 1), ("_id", 1)]))
        await surely(lambda: bound_transactions(self._client))

    async def close(self) -> None:
        """Disconnect."""
        await self._client.close()

    async def chat(self, stopping: asyncio.Event) -> None:
        """All sessions, until told to stop; returns when the last operation is acknowledged."""
        async with asyncio.TaskGroup() as group:
            for session in self.sessions:
                group.create_task(self._talk(session, stopping))

    async def history(self, messages: int) -> None:
        """Messages that every session has before any tailer runs."""
        for session in self.sessions:
            for _ in range(messages):
                await self._write(session)

    async def farewell(self) -> list[str]:
        """One last message in every session; their typed ids."""
        for session in self.sessions:
            await self._write(session)
        return [session.order[-1] for session in self.sessions]

    async def cluster_time(self) -> str:
        """The server's cluster time now, as a version."""
        reply = await surely(lambda: self.database.command("ping"))
        moment = reply["operationTime"]
        return f"{moment.time:08x}{moment.inc:08x}"

    async def truth(self, partitions: int) -> Truth:
        """What stands in MongoDB now."""
        found: list[dict[str, Any]] = await surely(lambda: self.messages.find().to_list())
        waiting: list[dict[str, Any]] = await surely(lambda: self.inbox.find().to_list())
        documents = {
            encode_id(one["_id"]): (encode_id(one["session_id"]), text_of(one["content"])) for one in found
        }
        return Truth(
            partitions=partitions,
            documents=documents,
            added=dict(self.added),
            written=frozenset(self.written),
            order={encode_id(session.id): list(session.order) for session in self.sessions},
            left_in_inbox=[f"{one['_id']}: {one['kind']}" for one in waiting],
        )

    async def _talk(self, session: Session, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            name = session.chance.choices([*OPERATIONS], [*OPERATIONS.values()])[0]
            await self._operate(session, name)
            await asyncio.sleep(session.chance.uniform(0.2, 1.8) * self._pace)

    async def _operate(self, session: Session, name: str) -> None:
        if name in ("write", "placeholder"):
            await self._write(session, empty=name == "placeholder")
        elif name in ("insert and update", "insert and delete"):
            await self._insert(session, stays=name == "insert and update")
            self.counts[name] += 1
        elif name == "ask":
            await self._ask(session)
        elif session.alive:
            chosen = session.chance.choice([*session.alive])
            self.counts[name] += 1
            await surely(
                {
                    "delete": self._delete,
                    "replace": self._replace,
                    "delete and insert": self._replace,
                    "there and back": self._there_and_back,
                }.get(name, self._change)(session, chosen, name)
            )

    async def _write(self, session: Session, *, empty: bool = False) -> None:
        session.asked += 1
        document = self._document(session, _message_id(session), "" if empty else session.words("said"))
        key = encode_id(document["_id"])
        self.written.add(key)
        self.began.append((time.monotonic(), key))
        await surely(lambda: self.messages.insert_one(document))
        self.counts["write"] += 1
        session.alive[document["_id"]] = document["created_at"]
        if not empty:
            session.order.append(key)

    def _document(self, session: Session, identity: Any, text: str) -> dict[str, Any]:
        parts = [{"type": "text", "text": part} for part in text.split(" tea ")]
        return {
            "_id": identity,
            "session_id": session.id,
            "role": session.chance.choice(["user", "assistant"]),
            "content": parts if session.chance.random() < 0.2 and text else text,
            "user_id": f"user-{session.number % 5}",
            "created_at": session.now(),
            "likes": 0,
        }

    def _change(self, session: Session, chosen: Any, name: str) -> Step:
        if name == "move":
            fields = {"session_id": self._elsewhere(session)}
        elif name == "touch":
            fields = {"likes": session.chance.randint(1, 9)}
        else:
            session.asked += 1
            empty = session.chance.random() < 0.05
            fields = {"content": "" if empty else session.words("edited")}
            if empty and (key := encode_id(chosen)) in session.order:
                session.order.remove(key)  # read in while it is empty, it comes when it has text again
        return lambda: self.messages.update_one({"_id": chosen}, {"$set": fields})

    def _replace(self, session: Session, chosen: Any, name: str) -> Step:
        session.asked += 1
        document = self._document(session, chosen, session.words("replaced"))
        document["created_at"] = session.alive[chosen]
        if name == "delete and insert":
            return lambda: self._transactions.delete_and_insert(document)
        return lambda: self.messages.replace_one({"_id": chosen}, document)

    def _there_and_back(self, session: Session, chosen: Any, name: str) -> Step:
        other = self._elsewhere(session)
        return lambda: self._transactions.there_and_back(chosen, other)

    def _elsewhere(self, session: Session) -> Any:
        """Another session; every second time one of the same partition."""
        others = [one for one in self.sessions if one is not session]
        beside = [one for one in others if _partition(one) == _partition(session)]
        return session.chance.choice(beside if beside and session.chance.random() < 0.5 else others).id

    async def _insert(self, session: Session, *, stays: bool) -> None:
        """A new message, changed or deleted again in its own transaction."""
        session.asked += 1
        text = "" if stays and session.chance.random() < 0.5 else session.words("said")
        document = self._document(session, _message_id(session), text)
        key, content = encode_id(document["_id"]), session.words("said at once")
        self.written.add(key)
        if not stays:
            await surely(lambda: self._transactions.insert_and_delete(document))
            return
        self.began.append((time.monotonic(), key))
        await surely(lambda: self._transactions.insert_and_update(document, content))
        session.alive[document["_id"]] = document["created_at"]
        if text:  # else it never comes where it is deleted before the update's document is looked up
            session.order.append(key)

    def _delete(self, session: Session, chosen: Any, name: str) -> Step:
        del session.alive[chosen]
        return lambda: self.messages.delete_one({"_id": chosen})

    async def _ask(self, session: Session) -> None:
        session.asked += 1
        kind = session.chance.choice(["session_ended", "form_now", "added_text"])
        document: dict[str, Any] = {"_id": ObjectId(), "kind": kind, "session_id": session.id}
        key = encode_id(document["_id"])
        if kind == "added_text":
            document["text"] = session.words("added")
            self.added[key] = encode_id(session.id), document["text"]
        await surely(lambda: self.inbox.insert_one(document))
        self.counts["ask"] += 1
        if kind != "added_text":
            session.order.append(key)


async def surely(step: Step) -> Any:
    """Until the servers acknowledge it; steps may be repeated without harm."""
    while True:
        try:
            return await step()
        except DuplicateKeyError:
            return None  # an earlier attempt, whose answer was lost, did it
        except OperationFailure as error:
            if not _passes(error):
                raise
        except PyMongoError:
            pass
        await asyncio.sleep(0.1)


def _passes(error: OperationFailure) -> bool:
    """Whether it is the servers' state and not the question that was refused."""
    states = {11600, 11602, 10107, 13435, 13436, 189, 91, 64, 112, 7, 6, 89, 9001, 262, 10058, 211, 134}
    labels = "RetryableWriteError", "TransientTransactionError", "UnknownTransactionCommitResult"
    return error.code in states or any(map(error.has_error_label, labels))


def _partition(session: Session) -> int:
    return partition_for(encode_id(session.id).encode(), PARTITIONS)


def _session(seed: int, number: int) -> Session:
    chance = random.Random(f"{seed}/{number}")
    ids: Sequence[Callable[[], Any]] = (
        lambda: f"session {number}",
        lambda: number,
        lambda: ObjectId(f"{number:024x}"),
        lambda: UUID(int=number),
    )
    return Session(number, ids[number % len(ids)](), chance)


def _message_id(session: Session) -> Any:
    """Of several types, all unlike one another."""
    number = session.number * 1_000_000 + session.asked
    return (ObjectId(), f"message {number}", number)[session.asked % 3]
