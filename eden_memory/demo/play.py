"""Run the demo from the first topic to the context, and the inspector on what it formed."""

import asyncio
import signal
import time
from asyncio import TaskGroup
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.demo.conversation import (
    PEOPLE,
    ApplicationWrite,
    Arrival,
    Arrivals,
    ChatApplication,
    Conversation,
    DeliveryLog,
    Summary,
)
from eden_memory.demo.judgement import QUESTION, Example, MemoryVerdict, example, verdict
from eden_memory.demo.system_process import SystemProcess, environment, own_settings, running_system
from eden_memory.errors import EdenError
from eden_memory.kafka.connection import admin_config
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topics import Topics, load_topics
from eden_memory.local import servers
from eden_memory.local.server import HOST, accepts, choose, is_free
from eden_memory.local.servers import Endpoints
from eden_memory.models.breaker import UNMEASURED
from eden_memory.models.catalogue import asked_for, is_url
from eden_memory.mongo.client import connect
from eden_memory.names import DEMO_DATABASE, Names
from eden_memory.observability.watching import FormationProgress, watching
from eden_memory.processors.pipeline import FACT_EXTRACTION, FORMATION_TRIGGER, REFLECTION_EXTRACTION, USAGE
from eden_memory.settings import Settings
from eden_memory.tasks import end

DATABASE, PREFIX = DEMO_DATABASE, "eden-demo."

READY_SECONDS, QUIET_SECONDS = 60.0, 20.0

"""Seconds to wait for the tailer to follow, and for a record when something is still missing."""

CAP_SECONDS = 0.25
"""Seconds between two checks of what the calls have cost."""


class DemoView(Protocol):
    """Shows the demo; called from one task."""

    def note(self, text: str) -> None:
        """Show a step of the preparation."""

    def arrived(self, arrival: Arrival, write: ApplicationWrite | None) -> None:
        """Show a record; `write` is the write that it shows for the first time."""

    def forming(self, progress: FormationProgress) -> None:
        """Show memory from here on."""

    def inspected(self, outcome: "DemoOutcome", address: str) -> None:
        """Show the result, and where the inspector is."""


@contextmanager
def running_servers(settings: Settings, *, keep: bool) -> Generator[Endpoints]:
    """Run MongoDB and Kafka for the block; stop those that it started, unless `keep`."""
    ours = [
        server
        for named, server in (
            (settings.mongodb.uri, servers.local_mongo),
            (settings.kafka.bootstrap, servers.local_kafka),
        )
        if not named and not server(settings).running
    ]
    try:
        servers.up(settings, stays=keep)
        yield servers.endpoints(settings)
    finally:
        for server in ours if not keep else ():
            server(settings).stop()


class ArrivalFollower:
    """Reads records as they come, and signals progress."""

    def __init__(self, journey: DeliveryLog, view: DemoView) -> None:
        self._journey, self._view = journey, view
        self.following = asyncio.Event()
        self._moved = asyncio.Event()

    async def read(self, arrivals: Arrivals) -> None:
        """Run until cancelled. The first watermark shows that the tailer follows the change stream."""
        async for record in arrivals:
            if isinstance(record, Arrival):
                self._view.arrived(record, self._journey.arrived(record))
                self._moved.set()
            else:
                self.following.set()

    async def moved(self, seconds: float) -> bool:
        """Return whether another message arrived within so many seconds."""
        self._moved.clear()
        try:
            async with asyncio.timeout(seconds):
                return await self._moved.wait()
        except TimeoutError:
            return False


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The result of the demo."""

    summary: Summary
    progress: FormationProgress
    finished: bool
    """Whether everything that was said is formed."""
    example: Example
    verdict: MemoryVerdict | None
    """Only for the demo's own conversation."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The conversation to play, at which rate, with which cap."""

    conversation: Conversation
    own: bool
    """Whether the conversation is the user's own, for which no expectations exist."""
    rate: float
    keep: bool
    cap_usd: float
    port: int | None = None
    """Where the inspector is served at the end, until Ctrl-C; None: the demo ends."""


async def play(settings: Settings, found: Endpoints, plan: DemoPlan, view: DemoView) -> DemoOutcome:
    """Write the conversation, follow it into memory and return the result; clean up unless `keep`."""
    mapped = [name for name in PEOPLE if plan.conversation.people[name]]
    here = own_settings(settings, found, DATABASE, PREFIX, mapped)
    topics, journey, progress = load_topics(here.kafka), DeliveryLog(), FormationProgress()
    told = environment(found, here)

    def kept() -> bool:
        return plan.keep or not _servers_run(settings)

    try:
        async with (
            _application(here, found, plan, journey, kept) as application,
            _applied(here, found, topics, view, kept),
            running_system(told, log_of(settings)) as system,
        ):
            async with (
                Arrivals(here.kafka, found.kafka, topics.name("chat.messages")) as arrivals,
                watching(here, progress),
            ):
                play = partial(application.play, plan.conversation, plan.rate)
                following = follow(play, arrivals, system, journey, view)
                if finished := await within(following, progress, plan.cap_usd):
                    view.note("all sessions end; what is left is formed")
                    view.forming(progress)
                    await application.end_sessions(plan.conversation)
                    finished = await _formed(here, plan, progress, system)
            if not finished:
                await system.stop()
            outcome = await _outcome(here, plan, journey.summary(), progress, finished=finished)
            if plan.port is not None:
                await _inspect(settings, told, plan.port, system, outcome, view)
            return outcome
    except* EdenError as errors:
        raise _first(errors) from None
    raise AssertionError("unreachable")


async def _inspect(
    settings: Settings,
    told: dict[str, str],
    port: int,
    system: SystemProcess,
    outcome: DemoOutcome,
    view: DemoView,
) -> None:
    """Serve the inspector until Ctrl-C, or until somebody stops the local servers (`eden down`)."""
    served = {"EDEN_SERVE_HOST": HOST, "EDEN_SERVE_PORT": str(port), "EDEN_SERVE_REQUIRE_KEY": "false"}
    if settings.http.port is not None:
        served["EDEN_HTTP_PORT"] = str(choose())  # the port itself belongs to `eden run`
    log, stopped, loop = log_of(settings).with_name("serve.log"), asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stopped.set)
    try:
        async with running_system(told | served, log, serve=True) as server, TaskGroup() as tasks:
            watches = [tasks.create_task(process.watch()) for process in (server, system) if process.runs]
            watches.append(tasks.create_task(_announce(port, outcome, view)))
            while not stopped.is_set() and await asyncio.to_thread(_servers_run, settings):
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), 1.0)
            for task in watches:
                task.cancel()
    finally:
        loop.remove_signal_handler(signal.SIGINT)  # a second Ctrl-C ends at once


async def _announce(port: int, outcome: DemoOutcome, view: DemoView) -> None:
    """Show the result and the inspector's address as soon as the inspector answers."""
    while True:
        if await asyncio.to_thread(accepts, port):
            return view.inspected(outcome, f"http://{HOST}:{port}/ui")
        await asyncio.sleep(0.1)


def free_port(wanted: int) -> int:
    """Return the port, or any free one if another program listens there."""
    return wanted if wanted and is_free(wanted) else choose()


def _servers_run(settings: Settings) -> bool:
    """Return whether no local server has been stopped since the demo began."""
    return all(report.running is not False for report in servers.status(settings))


def _first(errors: BaseExceptionGroup[EdenError]) -> EdenError:
    """Return the first error that explains the failure, from nested groups."""
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _formed(here: Settings, plan: DemoPlan, progress: FormationProgress, system: SystemProcess) -> bool:
    sessions = len({message.session for message in plan.conversation.messages})
    async with connect(endpoints_of(here)) as client, TaskGroup() as tasks:
        watch = tasks.create_task(system.watch())
        database = client[DATABASE]
        finished = await formed(database, here.names, sessions, progress, plan.cap_usd, longest_call(here))
        watch.cancel()
    return finished


async def within(work: Coroutine[Any, Any, None], progress: FormationProgress, cap_usd: float) -> bool:
    """Do the work, or cancel it and return False when the calls have cost more than the cap."""
    task = asyncio.create_task(work)
    try:
        while not task.done():
            if float(progress.total.cost) > cap_usd:
                return False
            await asyncio.wait((task,), timeout=CAP_SECONDS)
        await task
        return True
    finally:
        await end((task,))


async def _outcome(
    here: Settings, plan: DemoPlan, summary: Summary, progress: FormationProgress, *, finished: bool
) -> DemoOutcome:
    shown = await example(here, plan.conversation, None if plan.own else QUESTION)
    judged = None
    if not plan.own:
        async with connect(endpoints_of(here)) as client:
            judged = await verdict(client[DATABASE], here.names)
    return DemoOutcome(summary, progress, finished, shown, judged)


def endpoints_of(here: Settings) -> str:
    """MongoDB's address, as the demo's settings have it."""
    assert here.mongodb.uri is not None
    return here.mongodb.uri.get_secret_value()


def log_of(settings: Settings) -> Path:
    """Where the demo's system writes its log."""
    return settings.local.folder / "demo.log"


async def follow(
    write: Callable[[], Awaitable[None]],
    arrivals: Arrivals,
    system: SystemProcess,
    journey: DeliveryLog,
    view: DemoView,
) -> None:
    """Write when the tailer follows, then read until nothing is missing or nothing more comes."""
    follower = ArrivalFollower(journey, view)
    async with asyncio.TaskGroup() as tasks:
        others = [tasks.create_task(follower.read(arrivals)), tasks.create_task(system.watch())]
        view.note("tailer and stages start")
        await _ready(follower, system)
        view.note("the tailer follows the change stream; the application writes")
        await write()
        while journey.missing() and await follower.moved(QUIET_SECONDS):
            pass
        for task in others:
            task.cancel()


async def _ready(follower: ArrivalFollower, system: SystemProcess) -> None:
    try:
        async with asyncio.timeout(READY_SECONDS):
            await follower.following.wait()
    except TimeoutError:
        what = f"the tailer did not follow the change stream within {READY_SECONDS:.0f} s:\n{system.said()}"
        raise EdenError(what, f"Its whole log is {system.log}.") from None


@asynccontextmanager
async def _application(
    here: Settings, found: Endpoints, plan: DemoPlan, journey: DeliveryLog, kept: Callable[[], bool]
) -> AsyncGenerator[ChatApplication]:
    client = connect(found.mongodb)
    application = ChatApplication(client, here, journey)
    try:
        await application.prepare(plan.conversation)
        await set_up(client[DATABASE], here.names)
        try:
            yield application
        finally:
            if not kept():
                await application.remove()
    finally:
        await client.close()


@asynccontextmanager
async def _applied(
    settings: Settings, found: Endpoints, topics: Topics, view: DemoView, kept: Callable[[], bool]
) -> AsyncGenerator[None]:
    admin = TopicAdmin(admin_config(settings.kafka, found.kafka))
    if earlier := await asyncio.to_thread(admin.names, PREFIX):
        view.note(f"what an earlier demo left is removed: its database and {len(earlier)} topics")
        await asyncio.to_thread(admin.delete, earlier)
    report = await asyncio.to_thread(admin.apply, topics)
    view.note(f"{len(report.changeable)} topics made")
    try:
        yield
    finally:
        if not kept():
            await asyncio.to_thread(admin.delete, admin.names(PREFIX))


FORMED_QUIET_SECONDS = 120.0
"""Seconds without anything new after which the demo shows what there is."""

SETTLED_SECONDS = 2.5
"""Seconds for which nothing may be left: offsets are committed, and lag is read, every second."""

Database = AsyncDatabase[dict[str, object]]


def longest_call(settings: Settings) -> float:
    """Return the seconds that a first call to a model may take; 0 where only rules are used."""
    asked = asked_for(settings)
    times = UNMEASURED if any(map(is_url, asked)) else 1
    return settings.models.timeout_seconds * times if asked else 0.0


async def formed(
    database: Database,
    names: Names,
    sessions: int,
    progress: FormationProgress,
    cap_usd: float,
    call_seconds: float = 0.0,
) -> bool:
    """Return True when all is formed; False if progress stops or the calls cost more than the cap.

    `call_seconds`: what one call to a model may take, during which nothing comes.
    """
    quiet = max(FORMED_QUIET_SECONDS, call_seconds)
    moved, settled_since, before = time.monotonic(), 0.0, ""
    while time.monotonic() - moved < quiet:
        if float(progress.total.cost) > cap_usd:
            return False
        now = _state(progress)
        if now != before:
            moved, before = time.monotonic(), now
        if not await _done(database, names, sessions, progress):
            settled_since = 0.0
        elif not settled_since:
            settled_since = time.monotonic()
        elif time.monotonic() - settled_since > SETTLED_SECONDS:
            return True
        await asyncio.sleep(0.25)
    return False


async def _done(database: Database, names: Names, sessions: int, progress: FormationProgress) -> bool:
    windows, outcomes = database[names["windows"]], database[names["outcomes"]]
    if await windows.count_documents({"closed.because": "ended"}) < sessions:
        return False
    count = await windows.count_documents({})
    for stage in (FACT_EXTRACTION, REFLECTION_EXTRACTION):
        if await outcomes.count_documents({"stage": stage}) < count:
            return False
    # Watermarks keep coming: formation-trigger is never quite at the end of its topic.
    return not any(_lag(progress, FORMATION_TRIGGER).values())


def _state(progress: FormationProgress) -> str:
    """Return what changes while memory forms: not a Watermark, nor a failed call, which usage counts."""
    counts = progress.messages, progress.windows, progress.decisions.total(), progress.reflections.total()
    answered = progress.total.calls - progress.total.failed
    return f"{counts} {progress.blobs} {_lag(progress, FORMATION_TRIGGER, USAGE)} {answered}"


def _lag(progress: FormationProgress, *without: str) -> dict[str, int]:
    return {group: lag for group, lag in progress.lag.items() if group not in without}
