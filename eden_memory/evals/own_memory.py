"""Our own memory under evaluation: the whole system as a process, fed by an application's writes to MongoDB."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from bson import ObjectId
from pydantic import SecretStr
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.demo.application import ChatApplication
from eden_memory.demo.completion import formed
from eden_memory.demo.conversation import PEOPLE, Conversation, PlayedMessage
from eden_memory.demo.journey import ApplicationWrite, Arrival, Arrivals, DeliveryLog
from eden_memory.demo.judgement import FormedMemory, formed_memory
from eden_memory.demo.play import applied_topics, follow, within
from eden_memory.demo.system_process import SHOWN_DAYS, SystemProcess, environment, running_system
from eden_memory.errors import EdenError
from eden_memory.evals.dataset import DecisionLine, EvalConversation, Outcome, QuestionLine
from eden_memory.evals.namespace_reading import NamespaceReading, prefixed
from eden_memory.evals.spending import Spent
from eden_memory.evals.systems import EvalSetup, MemoryItem
from eden_memory.failures import CapReached
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import Endpoints
from eden_memory.models.providers.catalogue import asked_for
from eden_memory.mongo.client import connect
from eden_memory.observability.formation_progress import FormationProgress
from eden_memory.observability.watching import watching
from eden_memory.placement import Placement
from eden_memory.replay.namespaces.namespace_names import prefix_of
from eden_memory.replay.namespaces.namespace_store import MongoLive, MongoNamespaces
from eden_memory.schemas.documents import Answer, Fact, InboxFactCommand, Namespace
from eden_memory.schemas.ids import encode
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings, SourceSettings

DATABASE, KEPT, PREFIX = "eden_eval", "eden_eval_kept", "eden-eval."
RATE = 100_000.0
"""Messages a second: as fast as MongoDB takes them."""
HERE = Placement("eval", "eval")
"""In any namespace but the first, an answer is found by what was asked, whichever run asked it."""
CARRIED = (Answer.COLLECTION, "installation")
"""Collections that outlive a run; the installation's secret stands in prompts."""
Database = AsyncDatabase[dict[str, Any]]


@dataclass
class FormedRecord:
    """What was formed, beside what questions retrieve."""

    memory: dict[str, list[FormedMemory]] = field(default_factory=dict[str, list[FormedMemory]])
    """By conversation, with the dataset's own ids."""
    decisions: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    """By `conversation/decision`."""
    spent: Spent = field(default_factory=Spent)


class EdenMemory:
    """A MemorySystem; `formed` is filled by `ingest`."""

    def __init__(
        self, here: Settings, found: Endpoints, setup: EvalSetup, environment: dict[str, str]
    ) -> None:
        self._here, self._found, self._setup = here, found, setup
        self._environment = environment
        self._reading: NamespaceReading | None = None
        self.formed = FormedRecord()

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            await self._reading.__aexit__()

    async def ingest(self, conversations: Sequence[EvalConversation]) -> None:
        """Write every message as a chat application, and wait until memory is formed; CapReached, EdenError."""
        progress, began = FormationProgress(), time.perf_counter()
        async with connect(self._here.mongodb, self._found.mongodb) as client:
            run = _Forming(self._here, self._found, self._setup, client[DATABASE], progress)
            try:
                await run.form(conversations, self._environment)
            finally:
                total = progress.total
                self._setup.models.cap.paid += total.cost
                self._setup.models.cap.unpriced += total.unpriced
            for conversation in conversations:
                self.formed.memory[conversation.id] = await _memory(
                    client[DATABASE], self._here, conversation
                )
            self.formed.decisions = await _outcomes(client[DATABASE], self._here, conversations)
        seconds = time.perf_counter() - began
        self.formed.spent = Spent(total.tokens_in, total.tokens_out, total.cost, seconds, total.calls)
        self._reading = await NamespaceReading(self._here, prefixed=True).__aenter__()

    async def retrieve(self, conversation: EvalConversation, question: QuestionLine) -> Sequence[MemoryItem]:
        """Return what an agent would find."""
        assert self._reading is not None
        return await self._reading.retrieve(conversation, question)


@asynccontextmanager
async def eden_memory(
    settings: Settings, found: Endpoints, setup: EvalSetup, variables: dict[str, str]
) -> AsyncGenerator[EdenMemory]:
    """Our memory by these settings, which `variables` give to its process; its database goes afterwards."""
    here = _here(settings, found)
    told = environment(found, DATABASE, PREFIX, ("sessions", "agents", "users"), settings.llm)
    own = {"EDEN_MEMORY_SHARING": settings.memory.sharing or "private", **variables}
    async with connect(here.mongodb, found.mongodb) as client:
        application = ChatApplication(client, DATABASE, DeliveryLog(), here.tailer.text_limit)
        topics = load_topics(here.kafka, here.placement)
        async with applied_topics(here, found, topics, lambda _: None, keep=False):
            memory = EdenMemory(here, found, setup, told | own)
            try:
                yield memory
            finally:
                await memory.close()
                await _carry(client[DATABASE], client[KEPT], here)
                await application.remove()


def _here(settings: Settings, found: Endpoints) -> Settings:
    kafka = {"bootstrap": found.kafka, "topic_prefix": PREFIX, "group_prefix": PREFIX}
    mongodb = {"uri": SecretStr(found.mongodb), "database": DATABASE}
    collections = ("sessions", "agents", "users")
    mapped = {name: getattr(settings, name).model_copy(update={"collection": name}) for name in collections}
    return settings.model_copy(
        update={
            "kafka": settings.kafka.model_copy(update=kafka),
            "mongodb": settings.mongodb.model_copy(update=mongodb),
            "source": SourceSettings(database=DATABASE),
            "memory": settings.memory.model_copy(update={"context_days": float(SHOWN_DAYS)}),
            **mapped,
        }
    ).placed(HERE)


async def _carry(source: Database, target: Database, here: Settings) -> None:
    """Copy what outlives a run; an answer's unit is of its run alone."""
    for name in (here.names[kept] for kept in CARRIED):
        into = {"db": target.name, "coll": name}
        merge = {"$merge": {"into": into, "whenMatched": "replace"}}
        stages = [{"$unset": "unit"}, merge] if name.endswith(Answer.COLLECTION) else [merge]
        await (await source[name].aggregate(stages)).to_list()


@dataclass(frozen=True, slots=True)
class _Forming:
    """The steps of one ingestion."""

    here: Settings
    found: Endpoints
    setup: EvalSetup
    database: Database
    progress: FormationProgress

    async def form(self, conversations: Sequence[EvalConversation], told: dict[str, str]) -> None:
        """All of it; EdenError if the system ends or stands still."""
        log, kafka = self.here.local.folder / "eval.log", self.found.kafka
        said, journey = _conversation(conversations), DeliveryLog()
        application = ChatApplication(self.database.client, DATABASE, journey, self.here.tailer.text_limit)
        await self._prepare(application, said)
        topic = load_topics(self.here.kafka, self.here.placement).name("chat.messages")
        try:
            async with (
                Arrivals(self.here.kafka, kafka, topic) as arrivals,
                watching(self.here, self.progress),
                running_system(told, log) as system,
            ):
                play = partial(application.play, said, RATE)
                following = follow(play, arrivals, system, journey, _Quiet(self.setup))
                self._demand(await within(following, self.progress, self._cap))
                if said.messages:
                    await application.end_sessions(said)
                await self._settled(system, len(said.people["sessions"]))
                await self._decide(system, conversations, len(said.people["sessions"]))
        except* EdenError as errors:
            raise _first(errors) from None

    @property
    def _cap(self) -> float:
        return float(self.setup.models.cap.left)

    async def _prepare(self, application: ChatApplication, said: Conversation) -> None:
        """An empty database with the answers of earlier runs, whose live namespace is not the first."""
        prefix, names = self.here.mongodb.prefix, self.here.names
        if await self.database.list_collection_names():  # an earlier run was killed
            await _carry(self.database, self.database.client[KEPT], self.here)
        await application.prepare(said)
        await set_up(self.database, names)
        await _carry(self.database.client[KEPT], self.database, self.here)
        topics = load_topics(self.here.kafka, HERE)
        await MongoNamespaces(self.database, prefix).made(
            Namespace(
                id=HERE.memory,
                kind="reform",
                prefix=prefix_of(prefix, HERE.memory),
                group=topics.group("atlas-writer"),
                source=prefix,
                pipeline=HERE.pipeline,
                places=(),
                state="caught_up",
                created_at=datetime.now(UTC),
            )
        )
        await MongoLive(self.database, prefix).switch(HERE, Placement())

    async def _settled(self, system: SystemProcess, sessions: int) -> None:
        """Wait until everything is formed."""
        seconds = self.here.models.timeout_seconds if asked_for(self.here) else 0.0
        names = self.here.names
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(system.watch())
            done = await formed(self.database, names, sessions, self.progress, self._cap, seconds)
            watch.cancel()
        self._demand(done)

    def _demand(self, done: bool) -> None:
        if not done and float(self.progress.total.cost) > self._cap:
            raise CapReached("the cap leaves no room for forming memory")
        if not done:
            raise EdenError("forming memory stands still", f"See {self.here.local.folder / 'eval.log'}.")

    async def _decide(
        self, system: SystemProcess, conversations: Sequence[EvalConversation], sessions: int
    ) -> None:
        """Tell the known facts, then the new ones, each case in the memory of a user of its own."""
        cases = [(where, case) for where in conversations for case in where.decisions]
        if not cases:
            return
        now = datetime.now(UTC)
        inbox = self.database[self.here.names[InboxFactCommand.COLLECTION]]
        known = [
            _command(where, case, text, now - timedelta(days=2))
            for where, case in cases
            for text in case.known
        ]
        await inbox.insert_many(known)
        await self._settled(system, sessions)
        await inbox.insert_many([_command(where, case, case.new, now, decide=True) for where, case in cases])
        await self._settled(system, sessions)


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


def _first(errors: BaseExceptionGroup[EdenError]) -> EdenError:
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
        "_id": ObjectId(),
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
