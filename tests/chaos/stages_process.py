"""One process of the fault run: both stages of its own and formation-trigger, as `eden run` would run them.

It writes what happens to its calls, a JSON object a line, so that the verdict knows which were in flight and which
had been answered whatever happens to the process.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

import orjson
from pydantic import SecretStr
from pymongo import AsyncMongoClient

from eden_memory.assembly.handlers import stage_handlers
from eden_memory.cli.structured_logs import configure
from eden_memory.errors import PermanentError, ProviderError
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.topics import load_topics
from eden_memory.mongo.client import connect
from eden_memory.names import Names
from eden_memory.processors import pipeline
from eden_memory.schemas import events
from eden_memory.settings import KafkaSettings, MemorySettings, MongoSettings, Settings, WindowsSettings
from eden_memory.stages import membership as consuming
from eden_memory.stages import process
from eden_memory.stages.controls import MongoControls, MongoGroupNotes
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.failure_decisions import Kind, classify
from eden_memory.stages.lanes import Slots
from eden_memory.stages.outcome import StageOutcome
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.patience import until_done
from eden_memory.stages.publishing import Publisher, new_producer
from eden_memory.stages.stage import Decision, Delivery, Emitted, RetryPolicy, Stage
from eden_memory.stages.worker import Bounds, Surroundings, Worker
from eden_memory.tasks import claim_process
from tests.chaos.stages_events import CALL_TIMEOUT, REGISTRY, TOPICS, Fate, Kept, fate
from tests.integration.stages.harness import Answered, Asked, Unanswered

DRAIN_SECONDS = 6.0
SERVER_AWAY = 75
"""Exit code of a process that could not start because a server was away: a supervisor would start it again."""
QUICK = RetryPolicy(first=0.05, cap=1.0, attempts=6)


@dataclass(frozen=True)
class Place:
    """Where everything is; `session_ms` is how long a silent member stays in its groups."""

    seed: int
    mongodb: str
    kafka: str
    folder: Path
    session_ms: int

    @property
    def settings(self) -> Settings:
        """Windows are small, so that there are many."""
        return Settings(
            mongodb=MongoSettings(uri=SecretStr(self.mongodb), database="chaos"),  # pyright: ignore[reportCallIssue]
            kafka=KafkaSettings(bootstrap=self.kafka, group_prefix="chaos."),  # pyright: ignore[reportCallIssue]
            memory=MemorySettings(sharing="team"),
            windows=WindowsSettings(messages=8, tokens=150, least=3),
        )


class Diary:
    """Lines about calls; each is with the system before the next step is taken."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def note(self, what: str, key: str, **more: float) -> None:
        """`at` is monotonic: one clock for all processes of the machine."""
        line = {"what": what, "key": key, "at": time.monotonic(), **more}
        self._file.write(orjson.dumps(line).decode() + "\n")


class WatchedLedger(MongoLedger):
    """Notes when a member was looked up, and when its outcome was acknowledged."""

    def __init__(self, database: Any, names: Names, diary: Diary) -> None:
        super().__init__(database, names)
        self._diary = diary
        self.looked: dict[str, float] = {}

    async def find(self, stage: str, members: Sequence[str]) -> Mapping[str, StageOutcome]:
        """As the ledger does."""
        now = time.monotonic()
        found = await super().find(stage, members)
        if stage == "answering":
            self.looked.update(dict.fromkeys(members, now))
        return found

    async def store(self, outcome: StageOutcome) -> StageOutcome:
        """As the ledger does."""
        stored = await super().store(outcome)
        if outcome.stage == "answering":
            for member in stored.members:
                self._diary.note("decided", member)
        return stored


class Answering:
    """A slow paid call for each question; its answer is stored the moment it arrives, and not asked for again."""

    def __init__(self, seed: int, answers: Any, ledger: WatchedLedger, diary: Diary) -> None:
        self._seed, self._answers, self._ledger, self._diary = seed, answers, ledger, diary

    async def __call__(self, deliveries: Sequence[Delivery]) -> list[Emitted]:
        """One question."""
        (one,) = deliveries
        assert isinstance(one.event, Asked)
        looked = time.monotonic()
        stored = await until_done(lambda: self._answers.find_one({"_id": one.id}))
        if stored is None:
            text = await self._call(one, looked)
            await until_done(partial(self._keep, one.id, text))
            self._diary.note("stored", one.id)
        else:
            text = stored["text"]
        return [Answered(session=one.event.session, number=one.event.number, text=text)]

    async def _call(self, one: Delivery, looked: float) -> str:
        self._diary.note("asked", one.id, looked=looked, found=self._ledger.looked.get(one.id, 0.0))
        what = fate(self._seed, one.id)
        try:
            await _provider(what, one.attempt)
        except BaseException as error:
            cut = isinstance(error, asyncio.CancelledError) and not (what.hangs and one.attempt == 1)
            self._diary.note("cut" if cut else "failed", one.id)
            raise
        self._diary.note("answered", one.id)
        return uuid4().hex

    async def _keep(self, key: str, text: str) -> None:
        await self._answers.update_one({"_id": key}, {"$setOnInsert": {"text": text}}, upsert=True)


async def _provider(what: Fate, attempt: int) -> None:
    await asyncio.sleep(3_600 if what.hangs and attempt == 1 else what.seconds)
    match what.poison:
        case "permanent":
            raise PermanentError("refused")
        case "bug":
            raise ValueError("a defect")
        case "transient":
            raise ConnectionError("always away")
        case _:
            pass
    if what.flaky and attempt == 1:
        raise ProviderError("busy", retry_after=0.2)


def unanswered(one: Delivery, reason: str) -> Sequence[Emitted]:
    """Stands in place of an answer."""
    assert isinstance(one.event, Asked)
    del reason
    return [Unanswered(session=one.event.session, number=one.event.number)]


class Keeping:
    """The next version of a session out of what was decided so far: two workers at once mean the same one."""

    def __init__(self, outcomes: Any) -> None:
        self._outcomes = outcomes

    async def __call__(self, deliveries: Sequence[Delivery]) -> Decision:
        """Several questions of one session."""
        events = [one.event for one in deliveries]
        first = events[0]
        assert isinstance(first, Asked)
        version = await self._newest(first.session) + 1
        await asyncio.sleep(random.uniform(0.0, 0.1))
        kept = Kept(
            session=first.session,
            version=version,
            numbers=tuple(one.number for one in events if isinstance(one, Asked)),
            texts=tuple(one.text if isinstance(one, Answered) else "" for one in events),
        )
        return Decision([kept], writes=(f"kept:{kept.key()}",))

    async def _newest(self, session: str) -> int:
        start, end = f"kept:{session}@", f"kept:{session}@~"
        found = self._outcomes.find({"writes": {"$elemMatch": {"$gte": start, "$lt": end}}}, {"writes": 1})
        async for row in found.sort("writes", -1).limit(1):
            return int(row["writes"][0].rpartition("@")[2])
        return 0


def stages_of(answering: Answering, keeping: Keeping) -> tuple[Stage, ...]:
    """The two hops."""
    return (
        Stage(
            "answering",
            answering,
            reads=(Asked,),
            writes=(Answered, Unanswered),
            at_once=60,
            timeout=CALL_TIMEOUT,
            retry=QUICK,
            on_dead=unanswered,
            dead_share=0.5,
        ),
        Stage("keeping", keeping, reads=(Answered, Unanswered), writes=(Kept,), together=8, retry=QUICK),
    )


@asynccontextmanager
async def parts(place: Place, diary: Diary) -> AsyncGenerator[list[Worker]]:
    """The three stages, ready to run."""
    settings = place.settings
    async with connect(place.mongodb) as client:
        kafka = client_kwargs(settings.kafka, place.kafka)
        publisher = Publisher(lambda: new_producer(kafka))
        await publisher.start()
        try:
            around = await _surroundings(settings, client, kafka, publisher, diary)
            own, trigger = around, replace(around, topic_of=load_topics(settings.kafka).topic_of)
            trigger = replace(trigger, registry=events.REGISTRY)
            workers = [Worker(stage, own) for stage in _own_stages(place, settings, client, around, diary)]
            names = {pipeline.FORMATION_TRIGGER}
            async with stage_handlers(settings, client, names) as handlers:
                rows = pipeline.stages(handlers)
                yield [*workers, *(Worker(replace(row, batch=25), trigger) for row in rows)]
        finally:
            await publisher.stop()


def _own_stages(
    place: Place, settings: Settings, client: Any, around: Surroundings, diary: Diary
) -> tuple[Stage, ...]:
    database, ledger = client[settings.mongodb.database], around.ledger
    assert isinstance(ledger, WatchedLedger)
    answering = Answering(place.seed, database["answers"], ledger, diary)
    return stages_of(answering, Keeping(database[settings.names["outcomes"]]))


async def _surroundings(
    settings: Settings,
    client: AsyncMongoClient[dict[str, Any]],
    kafka: dict[str, Any],
    publisher: Publisher,
    diary: Diary,
) -> Surroundings:
    database, names = client[settings.mongodb.database], settings.names
    ledger = WatchedLedger(database, names, diary)
    await ledger.prepare()
    return Surroundings(
        kafka=kafka,
        topic_of=lambda event: TOPICS[event],
        group_of=lambda name: settings.kafka.group_prefix + name,
        registry=REGISTRY,
        publisher=publisher,
        ledger=ledger,
        notes=MongoGroupNotes(database, names),
        controls=MongoControls(database, names),
        slots=Slots(200),
        letters=DeadLetters(database, names, MongoForgetting(database, names)),
        bounds=Bounds(commit_seconds=0.5, stop_seconds=DRAIN_SECONDS),
        clock=lambda: datetime.now(UTC),
    )


async def _run(place: Place, name: str, signals: process.Signals) -> None:
    with (place.folder / f"{name}.calls").open("a", buffering=1) as file:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, process.say_where_tasks_stand, loop)
        async with parts(place, Diary(file)) as running:
            await process.Process(running, signals, DRAIN_SECONDS + consuming.LEAVE_SECONDS + 5).run()


def main(place: Place, log: Path) -> None:
    """Run until SIGTERM; what it says goes to the log."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    claim_process()
    configure()
    consuming.SESSION_MS, consuming.HEARTBEAT_MS = place.session_ms, 300
    try:
        process.run_until_signal(partial(_run, place, log.stem))
    except Exception as error:
        if classify(error) not in (Kind.AWAY, Kind.TRANSIENT):
            raise
        sys.stderr.write(f"a server is away: {type(error).__name__}: {error}\n")
        sys.exit(SERVER_AWAY)
