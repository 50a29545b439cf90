"""Our own memory under evaluation: the whole system as a process, fed by an application's writes to MongoDB.

Each pair of sessions and settings has a database of its own, which stays: forming goes on where it was stopped, and
new questions are asked of memory that is there.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from hashlib import sha256
from typing import Any

from bson import Decimal128
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.demo.conversation import (
    MARKER,
    PEOPLE,
    ApplicationWrite,
    Arrival,
    Arrivals,
    ChatApplication,
    Conversation,
    DeliveryLog,
    PlayedMessage,
)
from eden_memory.demo.judgement import FormedMemory, formed_memory
from eden_memory.demo.play import DemoOutcome, follow, formed, longest_call, within
from eden_memory.demo.system_process import SystemProcess, environment, own_settings, running_system
from eden_memory.errors import CapReached, EdenError
from eden_memory.evals.compared_systems import NamespaceReading, prefixed
from eden_memory.evals.dataset import DecisionLine, EvalConversation, Outcome, QuestionLine
from eden_memory.evals.spending import Spent
from eden_memory.evals.systems import EvalSetup, MemoryItem, counted
from eden_memory.kafka.connection import admin_config
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import Endpoints
from eden_memory.mongo.client import connect
from eden_memory.names import EVAL_DATABASES
from eden_memory.observability.watching import FormationProgress, watching
from eden_memory.schemas.documents import Answer, DeadLetter, Fact, InboxFactCommand
from eden_memory.schemas.ids import encode
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings

PREFIXES = "eden-eval-"
"""Begins the name of the topics of each evaluation."""
TELL_SECONDS = 10.0
RATE = 100_000.0
"""Messages a second: as fast as MongoDB takes them."""
MAPPED = ("sessions", "agents", "users")
Database = AsyncDatabase[dict[str, Any]]


@dataclass
class FormedRecord:
    """Memory that was formed, apart from what questions retrieve."""

    memory: dict[str, list[FormedMemory]] = field(default_factory=dict[str, list[FormedMemory]])
    """By conversation, with the dataset's own ids."""
    decisions: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    """By `conversation/decision`."""
    spent: Spent = field(default_factory=Spent)


class EdenMemory:
    """A MemorySystem; `formed` is filled by `ingest`."""

    def __init__(self, here: Settings, found: Endpoints, setup: EvalSetup, variables: dict[str, str]) -> None:
        self._here, self._found, self._setup = here, found, setup
        self._variables = variables
        self._reading: NamespaceReading | None = None
        self.formed = FormedRecord()

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            await self._reading.__aexit__()

    async def ingest(self, conversations: Sequence[EvalConversation]) -> None:
        """Write every message as a chat application, and wait until memory is formed; CapReached, EdenError."""
        async with connect(self._found.mongodb) as client:
            database = client[self._here.mongodb.database]
            forming = _Forming(self._here, self._found, self._setup, database)
            if not await forming.done("formed"):
                await forming.form(conversations, self._variables)
            for conversation in conversations:
                self.formed.memory[conversation.id] = await _memory(database, self._here, conversation)
            self.formed.decisions = await _outcomes(database, self._here, conversations)
            self.formed.spent = await forming.spent()
        self._reading = await NamespaceReading(self._here, prefixed=True).__aenter__()

    async def retrieve(self, conversation: EvalConversation, question: QuestionLine) -> Sequence[MemoryItem]:
        """Return what an agent would find."""
        assert self._reading is not None
        return await self._reading.retrieve(conversation, question)


@asynccontextmanager
async def eden_memory(
    settings: Settings, found: Endpoints, setup: EvalSetup, variables: dict[str, str], digest: str
) -> AsyncGenerator[EdenMemory]:
    """Our memory by these settings, which `variables` give to its process; `digest`: of sessions and settings."""
    here = own_settings(settings, found, f"{EVAL_DATABASES}{digest}", f"{PREFIXES}{digest}.", MAPPED)
    memory = EdenMemory(here, found, setup, variables)
    try:
        yield memory
    finally:
        await memory.close()


async def clear(settings: Settings, found: Endpoints) -> int:
    """Drop the databases and topics of all evaluations; return how many databases there were."""
    admin = TopicAdmin(admin_config(settings.kafka, found.kafka))
    await asyncio.to_thread(lambda: admin.delete(admin.names(PREFIXES)))
    async with connect(found.mongodb) as client:
        names = [name for name in await client.list_database_names() if name.startswith(EVAL_DATABASES)]
        for name in names:
            await client.drop_database(name)
    return len(names)


@dataclass(frozen=True, slots=True)
class _Forming:
    """The steps of one ingestion; each finished step is noted in the database, and not repeated."""

    here: Settings
    found: Endpoints
    setup: EvalSetup
    database: Database

    async def done(self, step: str) -> bool:
        """Return whether a step was done, now or in an earlier run."""
        return await self.database[MARKER].find_one({"_id": step}) is not None

    async def form(self, conversations: Sequence[EvalConversation], variables: dict[str, str]) -> None:
        """Do all steps; EdenError if the system ends or makes no progress."""
        said, journey, progress = _conversation(conversations), DeliveryLog(), FormationProgress()
        application = ChatApplication(self.database.client, self.here, journey)
        if not await self.done("prepared"):
            await application.prepare(said)
            await set_up(self.database, self.here.names)
            await self._note("prepared")
        admin = TopicAdmin(admin_config(self.here.kafka, self.found.kafka))
        topics = load_topics(self.here.kafka)
        await asyncio.to_thread(admin.apply, topics)
        told = environment(self.found, self.here)
        own = {"EDEN_MEMORY_SHARING": self.here.memory.sharing or "private", **variables}
        began = time.monotonic()
        try:
            async with (
                Arrivals(self.here.kafka, self.found.kafka, topics.name("chat.messages")) as arrivals,
                watching(self.here, progress),
                running_system(told | own, self._log) as system,
            ):
                await self._write(application, said, arrivals, system, journey, progress)
                await self._decide(system, conversations, len(said.people["sessions"]), progress)
        except* (EdenError, CapReached) as errors:
            raise _first(errors) from None
        finally:
            self._pay(progress)
            await self._note("seconds", {"$inc": {"seconds": time.monotonic() - began}})
        await self._note("formed")
        await self._tell_of_dead_letters()
        prefix = self.here.kafka.topic_prefix
        await asyncio.to_thread(lambda: admin.delete(admin.names(prefix)))

    async def spent(self) -> Spent:
        """Return the cost of formation, over all runs."""
        answers = self.database[self.here.names[Answer.COLLECTION]]
        total = {"tokens_in": "$input_tokens", "tokens_out": "$output_tokens", "usd": "$cost_usd"}
        sums = {name: {"$sum": of} for name, of in total.items()}
        group: dict[str, Any] = {"_id": None, "calls": {"$sum": "$requests"}, **sums}
        rows = await (await answers.aggregate([{"$group": group}])).to_list()
        seconds = await self.database[MARKER].find_one({"_id": "seconds"})
        found = rows[0] if rows else dict.fromkeys(group, 0)
        usd = found["usd"]
        return Spent(
            found["tokens_in"],
            found["tokens_out"],
            usd.to_decimal() if isinstance(usd, Decimal128) else Decimal(usd),
            (seconds or {}).get("seconds", 0.0),
            found["calls"],
        )

    async def _note(self, step: str, change: dict[str, Any] | None = None) -> None:
        at = {"$set": {"at": datetime.now(UTC)}}
        await self.database[MARKER].update_one({"_id": step}, change or at, upsert=True)

    def _pay(self, progress: FormationProgress) -> None:
        self.setup.models.cap.paid += progress.total.cost
        self.setup.models.cap.unpriced += progress.total.unpriced

    @property
    def _log(self) -> Any:
        return self.here.local.folder / "eval.log"

    @property
    def _cap(self) -> float:
        return float(self.setup.models.cap.left)

    async def _write(
        self,
        application: ChatApplication,
        said: Conversation,
        arrivals: Arrivals,
        system: SystemProcess,
        journey: DeliveryLog,
        progress: FormationProgress,
    ) -> None:
        """Write what no earlier run has written, and end every session."""
        known = {row["_id"] async for row in self.database["messages"].find({}, {"_id": 1})}
        left = [message for message in said.messages if message.id not in known]
        play = partial(application.play, Conversation(left, [], said.people), RATE)
        following = follow(play, arrivals, system, journey, _Quiet(self.setup))
        self._demand(progress, done=await within(following, progress, self._cap))
        if said.messages and not await self.done("ended"):
            await application.end_sessions(said)
            await self._note("ended")
        await self._settled(system, len(said.people["sessions"]), progress)

    async def _settled(self, system: SystemProcess, sessions: int, progress: FormationProgress) -> None:
        """Wait until everything is formed; say now and then how far it is."""
        seconds, names = longest_call(self.here), self.here.names
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(system.watch()), tasks.create_task(self._tell(progress))]
            done = await formed(self.database, names, sessions, progress, self._cap, seconds)
            for task in others:
                task.cancel()
        self._demand(progress, done=done)

    async def _tell(self, progress: FormationProgress) -> None:
        told = ""
        while True:
            await asyncio.sleep(TELL_SECONDS)
            if (text := _so_far(progress)) != told:
                told = text
                self.setup.note(text)

    async def _tell_of_dead_letters(self) -> None:
        letters = self.database[self.here.names[DeadLetter.COLLECTION]]
        if number := await letters.count_documents({"state": "dead"}):
            self.setup.note(
                f"{counted(number, 'dead letter')}: this memory lacks what they held. See {self._log}; "
                "`eden eval --clear` lets it be formed again"
            )

    def _demand(self, progress: FormationProgress, *, done: bool) -> None:
        if not done and float(progress.total.cost) > self._cap:
            raise CapReached("the cap leaves no room for forming memory")
        if not done:
            raise EdenError(
                "formation makes no progress", f"See {self._log}, then run the same command again."
            )

    async def _decide(
        self,
        system: SystemProcess,
        conversations: Sequence[EvalConversation],
        sessions: int,
        progress: FormationProgress,
    ) -> None:
        """Add the known facts, then the new ones, each case in the memory of its own user."""
        cases = [(where, case) for where in conversations for case in where.decisions]
        now = datetime.now(UTC)
        known = [
            _command(where, case, text, now - timedelta(days=2))
            for where, case in cases
            for text in case.known
        ]
        new = [_command(where, case, case.new, now, decide=True) for where, case in cases]
        for step, commands in (("known", known), ("decided", new)):
            if commands and not await self.done(step):
                await self.database[self.here.names[InboxFactCommand.COLLECTION]].insert_many(commands)
                await self._note(step)
            if commands:
                await self._settled(system, sessions, progress)


class _Quiet:
    """Shows notes alone."""

    def __init__(self, setup: EvalSetup) -> None:
        self._setup = setup

    def note(self, text: str) -> None:
        self._setup.note(text)

    def arrived(self, arrival: Arrival, write: ApplicationWrite | None) -> None:
        del arrival, write

    def forming(self, progress: FormationProgress) -> None:
        del progress

    def inspected(self, outcome: DemoOutcome, address: str) -> None:
        del outcome, address


def _so_far(progress: FormationProgress) -> str:
    calls = progress.total
    failed = f", {calls.failed} of them failed" if calls.failed else ""
    return (
        f"in this run {counted(progress.decisions.total(), 'decision')} on facts, "
        f"{counted(progress.reflections.total(), 'reflection')}, {counted(calls.calls, 'call')}{failed}, "
        f"{calls.cost:.4f} USD"
    )


def _first(errors: BaseExceptionGroup[EdenError | CapReached]) -> EdenError | CapReached:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _conversation(conversations: Sequence[EvalConversation]) -> Conversation:
    """Everything as the application's documents; ids have the conversation's name before them."""
    people: dict[str, list[dict[str, Any]]] = {name: [] for name in PEOPLE}
    messages: list[PlayedMessage] = []
    for where in conversations:
        own = partial(prefixed, where.id)
        people["agents"].append({"_id": where.id, "name": where.id})
        users = dict.fromkeys(user for session in where.sessions for user in session.users)
        people["users"] += [{"_id": own(user), "name": user} for user in users]
        for session in sorted(where.sessions, key=lambda session: session.at):
            listed = [own(user) for user in session.users]
            people["sessions"].append({"_id": own(session.id), "agent_id": where.id, "users": listed})
            for number, said in enumerate(session.messages):
                author = said.user or (session.users[0] if said.role == "user" and session.users else None)
                messages.append(
                    PlayedMessage(
                        id=own(said.id),
                        session=own(session.id),
                        role=said.role,
                        content=said.text,
                        user=own(author) if author else None,
                        created_at=said.at or session.at + timedelta(seconds=number),
                    )
                )
    return Conversation(messages, [], people)


async def _memory(database: Database, here: Settings, conversation: EvalConversation) -> list[FormedMemory]:
    found = await formed_memory(database, here.names, agent_id=encode(conversation.id))
    return [_unprefixed(memory, conversation.id) for memory in found]


def _unprefixed(memory: FormedMemory, conversation: str) -> FormedMemory:
    kind, colon, name = memory.scope.partition(":")
    return FormedMemory(memory.kind, kind + colon + name.removeprefix(f"{conversation}-"), memory.text)


def _scope(where: EvalConversation, case: DecisionLine) -> Scope:
    return Scope.of_user(encode(where.id), encode(prefixed(where.id, f"decision-{case.id}")))


def _command(
    where: EvalConversation, case: DecisionLine, text: str, said_at: datetime, *, decide: bool = False
) -> dict[str, Any]:
    request = {
        "_id": sha256(f"{where.id}/{case.id}/{text}/{decide}".encode()).hexdigest(),
        "kind": "fact_command",
        "scope": _scope(where, case),
        "action": "add",
        "text": text,
        "by": "application",
        "said_at": said_at,
        "decide": decide,
        "asked_by": "eden eval",
    }
    return InboxFactCommand.model_validate(request).model_dump(exclude_none=True)


async def _outcomes(
    database: Database, here: Settings, conversations: Sequence[EvalConversation]
) -> dict[str, Outcome]:
    facts = database[here.names[Fact.COLLECTION]]
    found: dict[str, Outcome] = {}
    for where in conversations:
        for case in where.decisions:
            rows = await facts.find({"scope_key": _scope(where, case).key}).to_list()
            found[f"{where.id}/{case.id}"] = outcome(case, rows)
    return found


def outcome(case: DecisionLine, rows: Sequence[dict[str, Any]]) -> Outcome:
    """Return what became of the known facts and the new one, from the facts that are stored."""
    active = [row["content"] for row in rows if row["active"]]
    kept = [text for text in case.known if text in active]
    if case.new in active and len(kept) == len(case.known):
        return "ADD"
    retired = any(not row["active"] and row.get("retired_because") == "contradicted" for row in rows)
    if case.new in active and retired:
        return "DELETE"
    return "NONE" if len(kept) == len(case.known) else "UPDATE"
