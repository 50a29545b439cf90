"""The functions of ours between an entry and the driver's call, counted on real servers.

`python -m tests.bench.walks [--names]`: how many there are (and which, in order), one JSON object as the last line.

Five things happen in a running system, and each is followed from where it comes in to where it leaves us: a change of
MongoDB to Kafka's producer, a closed window to the provider's SDK, a memory record to MongoDB, a search over HTTP to
MongoDB, and `eden rebuild` to Kafka's consumer (its records then go the writer's way). What is on the stack at the
driver's call counts, and where a task was started, the stack that started it. A function counts once; comprehensions
do not count.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast
from unittest.mock import patch
from uuid import uuid4
from weakref import WeakKeyDictionary

import httpx2
import openai
import uvicorn
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from pydantic import SecretStr
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.pool import AsyncConnection
from typer.testing import CliRunner

from eden_memory.access.admission_store import ApiKeys, RequestAdmission
from eden_memory.api.http.serving import create_app
from eden_memory.api.service import Memory
from eden_memory.cli.main import app as commands
from eden_memory.settings import KafkaSettings, LocalSettings, MongoSettings, Settings
from tests.conftest import _drop_databases, _drop_kafka  # pyright: ignore[reportPrivateUsage]
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, system
from tests.model_server.serving import Quiet, bound_socket, serving, until
from tests.servers import Namespace, TestServers, running_servers

MOST = 14
ROOT = Path(__file__).parents[2]
OURS = tuple(f"{(ROOT / folder).resolve()}/" for folder in ("eden_memory", "processors", "schemas"))
Chain = tuple[CodeType, ...]


class Stacks:
    """Follows tasks to their creators, and what runs when a task is done to who asked for it."""

    def __init__(self) -> None:
        self._created: WeakKeyDictionary[asyncio.Task[Any], Chain] = WeakKeyDictionary()
        self._callback: Chain = ()

    def now(self) -> Chain:
        """Our functions that led here, the outermost first."""
        frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        found: list[CodeType] = []
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(OURS) and not code.co_name.endswith(("comp>", "genexpr>")):
                found.append(code)
            frame = frame.f_back
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        before = self._created.get(task, ()) if task is not None else self._callback
        return (*before, *reversed(found))

    def factory(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        """A task factory that notes what creates each task."""
        task = FollowedTask(coro, loop=loop, **options)
        task.stacks = self
        self._created[task] = self.now()
        return task

    def following(self, callback: Callable[..., object]) -> Callable[..., object]:
        """The callback, which knows what led to it."""
        asked = self.now()

        def called(*args: Any) -> object:
            self._callback = asked
            try:
                return callback(*args)
            finally:
                self._callback = ()

        return called


class FollowedTask(asyncio.Task[Any]):
    """A task whose callbacks are followed as well."""

    stacks: Stacks

    def add_done_callback(self, callback: Callable[..., object], /, **options: Any) -> None:
        super().add_done_callback(self.stacks.following(callback), **options)


@contextmanager
def watched(
    stacks: Stacks, owner: type, name: str, see: Callable[[Chain, tuple[Any, ...]], None]
) -> Generator[None]:
    """See every call of a driver's method: our functions that led there, and its arguments."""
    real = getattr(owner, name)

    def call(*args: Any, **named: Any) -> Any:
        see(stacks.now(), (*args, *named.values()))
        return real(*args, **named)

    with patch.object(owner, name, call):
        yield


def between(entry: Chain, call: Chain) -> list[str]:
    """What led from where a record was read to the driver's call: from the last function that both share."""
    shared = [at for at, code in enumerate(call) if code in entry]
    return named(call[shared[-1] :] if shared else call)


def named(chain: Sequence[CodeType]) -> list[str]:
    """Distinct functions, as `file.py function`."""
    return list(dict.fromkeys(f"{Path(code.co_filename).name} {code.co_qualname}" for code in chain))


def _commands(call: tuple[Any, ...]) -> dict[str, Any]:
    found = [cast("dict[str, Any]", part) for part in call if isinstance(part, Mapping)]
    return found[0] if found else {}


async def walks(settings: Settings) -> dict[str, list[str]]:
    """All five, in a namespace of their own."""
    stacks, found = Stacks(), dict[str, list[str]]()
    asyncio.get_running_loop().set_task_factory(stacks.factory)  # pyright: ignore[reportArgumentType]
    async with serving(obey) as models:
        settings = fast(settings, models)
        async with system(settings, models) as running:
            async for name, walk in _live(stacks, running):
                found[name] = walk
            found["a search over HTTP → MongoDB"] = await _search(stacks, running)
        found["`eden rebuild` → Kafka's consumer"] = await asyncio.to_thread(_rebuild, stacks, settings)
    return found


async def _live(stacks: Stacks, running: System) -> AsyncGenerator[tuple[str, list[str]]]:
    reads: dict[str, Chain] = {}
    sent: dict[str, Chain] = {}

    def command(chain: Chain, call: tuple[Any, ...]) -> None:
        if _commands(call).get("getMore") and any("leadership" in code.co_filename for code in chain):
            reads["change"] = chain

    def batch(chain: Chain, call: tuple[Any, ...]) -> None:
        watermark = any(code.co_name == "_publish_watermarks" for code in chain)
        if str(call[2]).endswith("chat.messages") and not watermark:
            sent["message"] = max(sent.get("message", ()), chain, key=len)

    def poll(chain: Chain, _: tuple[Any, ...]) -> None:
        reads["window"] = chain

    def post(chain: Chain, call: tuple[Any, ...]) -> None:
        if "/chat/completions" in call and any("fact_extraction" in code.co_filename for code in chain):
            sent["call"] = chain

    def write(chain: Chain, call: tuple[Any, ...]) -> None:
        if call[0].name.endswith("facts"):
            sent["document"] = max(sent.get("document", ()), chain, key=len)

    session = await running.session("ada")
    await running.told(
        session, "ada", "fact user: Ada sails."
    )  # read in when the tailer starts, not as a change
    with (
        watched(stacks, AsyncConnection, "command", command),
        watched(stacks, AIOKafkaProducer, "send_batch", batch),
        watched(stacks, AIOKafkaConsumer, "getmany", poll),
        watched(stacks, openai.AsyncOpenAI, "post", post),
        watched(stacks, AsyncCollection, "bulk_write", write),
    ):
        await running.told(session, "ada", "fact user: Ada keeps bees.")
    yield "a change of MongoDB → Kafka's producer", between(reads["change"], sent["message"])
    yield "a closed window → the provider's SDK", between(reads["window"], sent["call"])
    yield "a memory record → MongoDB", between(reads["window"], sent["document"])


async def _search(stacks: Stacks, running: System) -> list[str]:
    longest: list[Chain] = [()]

    def find(chain: Chain, call: tuple[Any, ...]) -> None:
        if call[0].name.endswith("facts"):
            longest[0] = max(longest[0], chain, key=lambda walk: len(named(walk)))

    async with _http(running.settings) as http:
        with (
            watched(stacks, AsyncCollection, "find", find),
            watched(stacks, AsyncCollection, "find_raw_batches", find),
        ):
            answer = await http.post("/v1/agents/helper/search?user=ada", json={"queries": ["sails"]})
        assert answer.status_code == 200, answer.text
    return named(longest[0])


@asynccontextmanager
async def _http(settings: Settings) -> AsyncGenerator[httpx2.AsyncClient]:
    async with Memory(settings) as memory:
        keys = ApiKeys(memory.database, settings.names)
        app = create_app(memory, keys, RequestAdmission(keys, settings.serve))
        server = Quiet(uvicorn.Config(app, log_level="critical", lifespan="on", ws="none"))
        with bound_socket() as bound:
            task = asyncio.create_task(server.serve([bound]))
            await until(lambda: server.started or task.done())
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}") as http:
                yield http
            app.state.doors.stopping.set()
            server.should_exit = True
            await task


def _rebuild(stacks: Stacks, settings: Settings) -> list[str]:
    longest: list[Chain] = [()]

    def poll(chain: Chain, _: tuple[Any, ...]) -> None:
        longest[0] = max(longest[0], chain, key=lambda walk: len(named(walk)))

    def followed(work: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner() as runner:
            runner.get_loop().set_task_factory(stacks.factory)  # pyright: ignore[reportArgumentType]
            return runner.run(work)

    assert settings.mongodb.uri is not None
    environment = {
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "EDEN_KAFKA_BOOTSTRAP": str(settings.kafka.bootstrap),
        "EDEN_KAFKA_TOPIC_PREFIX": settings.kafka.topic_prefix,
        "EDEN_KAFKA_GROUP_PREFIX": settings.kafka.group_prefix,
        "EDEN_KAFKA_PARTITIONS": str(settings.kafka.partitions),
    }
    with (
        patch.dict(os.environ, environment),
        patch("uvloop.run", followed),
        watched(stacks, AIOKafkaConsumer, "getmany", poll),
    ):
        result = CliRunner().invoke(commands, ["rebuild", "anew"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return named(longest[0])


def _settings(servers: TestServers, mine: Namespace, folder: Path) -> Settings:
    return Settings(
        mongodb=MongoSettings(uri=SecretStr(servers.mongodb_uri), database=mine.database),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(  # pyright: ignore[reportCallIssue]
            bootstrap=servers.kafka_bootstrap, topic_prefix=mine.topic_prefix, group_prefix=mine.group_prefix
        ),
        local=LocalSettings(folder=folder / "eden"),  # pyright: ignore[reportCallIssue]
    )


def main() -> None:
    """Print all walks."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--names", action="store_true", help="print each walk's functions")
    asked = options.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
    ):
        mine = Namespace(f"walks{uuid4().hex[:8]}")
        try:
            found = asyncio.run(walks(_settings(servers, mine, Path(folder))))
        finally:
            _drop_databases(servers, mine)
            _drop_kafka(servers, mine)
    for name, walk in found.items():
        sys.stdout.write(f"{len(walk):3} {name}\n")
        for function in walk if asked.names else ():
            sys.stdout.write(f"      {function}\n")
    sys.stdout.write(json.dumps({name: len(walk) for name, walk in found.items()}) + "\n")


if __name__ == "__main__":
    main()
