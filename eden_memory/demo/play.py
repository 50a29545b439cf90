"""The demo from the first topic to the last record read."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol

from eden_memory.demo.application import ChatApplication
from eden_memory.demo.arrivals import Arrivals
from eden_memory.demo.conversation import Conversation
from eden_memory.demo.journey import Arrival, Journey, Summary, Written
from eden_memory.demo.tailer_process import TailerProcess, environment, running_tailer
from eden_memory.domain.errors import EdenError
from eden_memory.local import servers
from eden_memory.local.servers import Endpoints
from eden_memory.mongo.client import connect
from eden_memory.runtime.kafka import admin_config
from eden_memory.runtime.topic_admin import TopicAdmin
from eden_memory.runtime.topics import Topics, load_topics
from eden_memory.settings import Settings

DATABASE, PREFIX = "eden_demo", "eden-demo."
READY_SECONDS, QUIET_SECONDS = 60.0, 20.0
"""How long to wait for the tailer to follow, and for a record when something is still missing."""


class View(Protocol):
    """Shows the demo; called from one task."""

    def note(self, text: str) -> None:
        """A step of the preparation."""

    def arrived(self, arrival: Arrival, write: Written | None) -> None:
        """A record was read; `write` is what it shows for the first time."""


@contextmanager
def running_servers(settings: Settings, *, keep: bool) -> Generator[Endpoints]:
    """MongoDB and Kafka for the block; those that did not run before are stopped after it, unless `keep`."""
    ours = [
        server
        for named, server in (
            (settings.mongodb.uri, servers.local_mongo),
            (settings.kafka.bootstrap, servers.local_kafka),
        )
        if not named and not server(settings).running
    ]
    try:
        servers.up(settings)
        yield servers.endpoints(settings)
    finally:
        for server in ours if not keep else ():
            server(settings).stop()


class Follower:
    """Reads records as they come, and says when something has."""

    def __init__(self, journey: Journey, view: View) -> None:
        self._journey, self._view = journey, view
        self.following = asyncio.Event()
        self._moved = asyncio.Event()

    async def read(self, arrivals: Arrivals) -> None:
        """Until cancelled. The first watermark says that the tailer follows the change stream."""
        async for record in arrivals:
            if isinstance(record, Arrival):
                self._view.arrived(record, self._journey.arrived(record))
                self._moved.set()
            else:
                self.following.set()

    async def moved(self, seconds: float) -> bool:
        """Whether another message arrived within so many seconds."""
        self._moved.clear()
        try:
            async with asyncio.timeout(seconds):
                return await self._moved.wait()
        except TimeoutError:
            return False


async def play(
    settings: Settings, found: Endpoints, conversation: Conversation, view: View, *, rate: float, keep: bool
) -> Summary:
    """Write the conversation, follow it to Kafka, say how it went; leaves nothing behind unless `keep`."""
    topics = load_topics(settings.kafka.model_copy(update={"topic_prefix": PREFIX}))
    journey = Journey()
    try:
        async with (
            _application(settings, found, conversation, journey, keep=keep) as application,
            _applied(settings, found, topics, view, keep=keep),
            Arrivals(settings.kafka, found.kafka, topics.name("chat.messages")) as arrivals,
            running_tailer(environment(found, DATABASE, PREFIX), log_of(settings)) as tailer,
        ):
            await _follow(lambda: application.play(conversation, rate), arrivals, tailer, journey, view)
    except* EdenError as errors:
        raise errors.exceptions[0] from None
    return journey.summary()


def log_of(settings: Settings) -> Path:
    """Where the demo's tailer writes its log."""
    return settings.local.folder / "demo-tailer.log"


async def _follow(
    write: Callable[[], Awaitable[None]],
    arrivals: Arrivals,
    tailer: TailerProcess,
    journey: Journey,
    view: View,
) -> None:
    """Write once the tailer follows, then read until nothing is missing or nothing comes any more."""
    follower = Follower(journey, view)
    async with asyncio.TaskGroup() as tasks:
        others = [tasks.create_task(follower.read(arrivals)), tasks.create_task(tailer.watch())]
        view.note("the tailer starts")
        await _ready(follower, tailer)
        view.note("the tailer follows the change stream; the application writes")
        await write()
        while journey.missing() and await follower.moved(QUIET_SECONDS):
            pass
        for task in others:
            task.cancel()


async def _ready(follower: Follower, tailer: TailerProcess) -> None:
    try:
        async with asyncio.timeout(READY_SECONDS):
            await follower.following.wait()
    except TimeoutError:
        what = f"the tailer did not follow the change stream within {READY_SECONDS:.0f} s:\n{tailer.said()}"
        raise EdenError(what, f"Its whole log is {tailer.log}.") from None


@asynccontextmanager
async def _application(
    settings: Settings, found: Endpoints, conversation: Conversation, journey: Journey, *, keep: bool
) -> AsyncGenerator[ChatApplication]:
    client = connect(settings.mongodb, found.mongodb)
    application = ChatApplication(client, DATABASE, journey, settings.tailer.text_limit)
    try:
        await application.prepare(conversation)
        try:
            yield application
        finally:
            if not keep:
                await application.remove()
    finally:
        await client.close()


@asynccontextmanager
async def _applied(
    settings: Settings, found: Endpoints, topics: Topics, view: View, *, keep: bool
) -> AsyncGenerator[None]:
    admin = TopicAdmin(admin_config(settings.kafka, found.kafka))
    report = await asyncio.to_thread(admin.apply, topics)
    view.note(f"{len(report.changeable)} topics made" if report.changeable else "the topics are there")
    try:
        yield
    finally:
        if not keep:
            await asyncio.to_thread(admin.delete, admin.names(PREFIX))
