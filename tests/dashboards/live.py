"""The system as it is deployed, in processes of its own, watched by a real Prometheus; and a day's worth of chat."""

import asyncio
import json
import os
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from eden_memory.settings import Settings
from eden_memory.tasks import end
from tests.dashboards.export import VARIABLES
from tests.dashboards.panels import RATE
from tests.dashboards.prometheus import Prometheus, fetch, free_port, prometheus
from tests.integration.system.commands import EDEN, environment
from tests.integration.system.obedient_model import WORD, obey
from tests.integration.system.running_system import System, prepare, system, until
from tests.model_server.chat_upstream import ChatUpstream, served
from tests.model_server.serving import Serving, serving

UNPRICED = "openai:a-model-without-a-price"
MESSAGES = 4
STOP_SECONDS, FRESH = 30.0, 5.0
READERS = 'consumergroup!~".*[.]formation-trigger"'
CLIENT = {"name": "tests", "version": "1"}


def filled(expr: str, namespace: str, rate: str = "5m") -> str:
    """A panel's query with its variables: one namespace, all stages and agents."""
    for name in VARIABLES:
        expr = expr.replace(f"${name}", namespace if name == "namespace" else ".*")
    return expr.replace(RATE, rate)


class Live:
    """A system that runs, and what watches it."""

    def __init__(self, running: System, prom: Prometheus, doors: str, metrics: str, models: Serving) -> None:
        self.system, self.prom, self.doors, self.metrics, self.models = running, prom, doors, metrics, models
        self.written, self.doors_rounds = 0, 0

    @property
    def settings(self) -> Settings:
        """Of its namespace."""
        return self.system.settings

    async def ask(self, expr: str, rate: str = "5m") -> Any:
        """A panel's query."""
        return await self.prom.query(filled(expr, self.settings.mongodb.database, rate))

    async def chat(self, user: str, *texts: str, items: int) -> str:
        """A session of messages, formed; returns once `items` facts and reflections rest on them."""
        session = await self.system.session(user)
        names = await self.write(session, user, *texts)
        await self.system.form(session)
        await self.system.formed(names, items)
        return session

    async def write(self, session: str, user: str, *texts: str) -> list[str]:
        """Messages, counted."""
        self.written += len(texts)
        return await self.system.write(session, user, *texts)

    async def day(self) -> None:
        """Facts of all decisions, reflections, a blob, things that cannot be read, doors that are used."""
        for turn in range(3):
            said = [f"note user: Likes same-thing-{turn} very much.", f"note session: Turn {turn}."]
            fact = f"fact user: The berth same-{'ab'[turn % 2]} is {'moreover ' * (turn == 2)}number {turn}."
            session = await self.chat("una", fact, *said, "Good.", items=3)
            await self.doors_used(session)
            await self.scraped()
        await self.chat(
            "una",
            "note user: Sails.",
            "note user: Rows.",
            "note agent: The company cares for boats.",
            items=3,
        )
        await self.unreadable()

    async def doors_used(self, session: str) -> None:
        """Context, search, a chat through the gateway, and a question to the MCP door."""
        where = f"{self.doors}/v1/agents/helper"
        for _ in range(2):
            await fetch(f"{where}/context?session={session}&user=una")
        asked = json.dumps({"queries": ["Which berth?"]}).encode()
        as_json = {"content-type": "application/json"}
        await fetch(f"{where}/search?session={session}&user=una", asked, as_json)
        chat = {
            "model": "m",
            "messages": [{"role": "user", "content": "Hello"}],
            "memory_id": "chat-1",
            "user": "una",
        }
        await fetch(
            f"{self.doors}/v1/chat/completions",
            json.dumps(chat).encode(),
            {**as_json, "authorization": "Bearer sk-own"},
        )
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}
        greeting = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        either = {**as_json, "accept": "application/json, text/event-stream"}
        await fetch(f"{self.doors}/mcp", json.dumps(greeting).encode(), either)
        self.doors_rounds += 1

    async def scraped(self) -> None:
        """Wait for a scrape of both processes: what rises twice between two scrapes has no rate."""
        now = time.time()

        async def newer() -> bool:
            found = await self.prom.query('min(timestamp(up{job="eden"}))')
            return bool(found) and found[0][1] > now

        await until(newer, "a scrape")

    async def unreadable(self) -> None:
        """A window whose facts nobody can read, and bytes that are no event: two dead letters."""
        session = await self.system.session("una")
        await self.write(session, "una", f"fact user: Una is {WORD}.", "Yes.", "No.", "Well.")
        await self.system.form(session)
        await self.chat(
            "otto", "fact user: The cabin is dry.", items=1
        )  # others can be read: it is not the model
        producer: Any = AIOKafkaProducer(**self.system.client)
        await producer.start()
        try:
            topic = self.settings.kafka.topic_prefix + "memory.candidates"
            await producer.send_and_wait(topic, b"no event", key=b"k", partition=0)
        finally:
            await producer.stop()

        async def given_up() -> bool:
            return len(await self.system.dead()) == 2

        await until(given_up, "both to be given up")

    async def talk(self) -> None:
        """A conversation of four messages a second, each formed at once, without end."""
        for number in range(10_000):
            user = f"user-{number}"
            session = await self.system.session(user)
            told = f"fact user: Berth {number} is free.", f"note user: Likes {number}."
            await self.write(session, user, *told, "note session: Berths.", "Yes.")
            await self.system.form(session)
            await asyncio.sleep(1)

    async def ends(self, topic: str, partitions: int) -> dict[int, int]:
        """Ends of a topic's partitions, asked of the broker."""
        consumer: Any = AIOKafkaConsumer(**self.system.client)
        await consumer.start()
        try:
            wanted = [TopicPartition(topic, number) for number in range(partitions)]
            return {tp.partition: end for tp, end in (await consumer.end_offsets(wanted)).items()}
        finally:
            await consumer.stop()

    async def quiet(self) -> None:
        """Until every group has read everything, and Prometheus has seen it.

        Watermarks never end: of those formation-trigger has always some before it.
        """

        async def done() -> bool:
            lag = await self.prom.query(f"sum(kafka_consumergroup_lag_sum{{{READERS}}})")
            behind = await self.prom.query("max(kafka_consumergroup_lag_seconds)")
            age = await self.prom.query("time() - max(eden_lag_read_timestamp_seconds)")
            spent = await self.prom.query("sum(eden_spent_usd)")
            if not (lag and behind and age and spent):
                return False
            return lag[0][1] <= 0 and behind[0][1] < FRESH and age[0][1] < FRESH

        await until(done, "all groups to be at their ends")


@asynccontextmanager
async def live(settings: Settings, folder: Path) -> AsyncGenerator[Live]:
    """Every stage and the doors in two processes, models and a chat provider of the tests', Prometheus."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - once, before anything runs
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(serving(obey, dimensions=1_536))
        upstream = await stack.enter_async_context(served(ChatUpstream()))
        here = _changed(settings)
        running = await stack.enter_async_context(system(here, models, run=False))
        await prepare(here)
        ports = [free_port(), free_port()]
        told = {**_environment(here, models, upstream), "EDEN_SERVE_PORT": str(ports[1])}
        await _eden(told, "budget", "set", "100")
        targets = [f"127.0.0.1:{port}" for port in ports]
        prom = await stack.enter_async_context(prometheus(targets, folder / "prometheus"))
        for arguments in (("run",), ("serve",)):
            more = {"EDEN_HTTP_PORT": str(ports[0])} if arguments == ("run",) else {}
            await stack.enter_async_context(_process({**told, **more}, folder, *arguments))
        await until(partial(_scraped, prom, len(targets)), f"{targets} to be scraped")
        await stack.enter_async_context(_another_programs_group(running))
        yield Live(running, prom, f"http://{targets[1]}", f"http://{targets[0]}/metrics", models)


@asynccontextmanager
async def _another_programs_group(running: System) -> AsyncGenerator[None]:
    """A consumer of somebody else's that keeps up with the facts."""
    prefix = running.settings.kafka.topic_prefix
    consumer: Any = AIOKafkaConsumer(
        f"{prefix}memory.facts",
        **running.client,
        group_id=f"{prefix}billing",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
    )
    await consumer.start()

    async def read() -> None:
        async for _ in consumer:
            pass

    reading = asyncio.create_task(read())
    try:
        yield
    finally:
        await end([reading])
        await consumer.stop()


def _changed(settings: Settings) -> Settings:
    groups: dict[str, dict[str, Any]] = {
        "kafka": {"partitions": 2},
        "sessions": {"collection": "sessions"},
        "users": {"collection": "users"},
        "tailer": {"watermark_seconds": 0.5, "commit_seconds": 1.0},
    }
    changes: dict[str, Any] = {
        name: getattr(settings, name).model_copy(update=new) for name, new in groups.items()
    }
    return settings.model_copy(update={**changes, "llm": "openai", "embedder": "openai"})


def _environment(settings: Settings, models: Serving, upstream: str) -> dict[str, str]:
    return {
        **environment(settings),
        "OPENAI_API_KEY": "sk-of-the-tests",
        "OPENAI_BASE_URL": models.openai_url,
        "EDEN_MODELS_REFLECTIONS": UNPRICED,
        "EDEN_MODELS_TIMEOUT_SECONDS": "20",
        "EDEN_GATEWAY_UPSTREAM": f"{upstream}/v1",
        "EDEN_AGENTS_DEFAULT": "s.helper",
        "EDEN_GATEWAY_MEMORY_SECONDS": "0.001",
        "EDEN_RUN_DRAIN_SECONDS": "5",
    }


async def _scraped(prom: Prometheus, targets: int) -> bool:
    """Prometheus looks at its targets some seconds after its start; from then on nothing is missed."""
    up = await prom.query('sum(up{job="eden"})')
    return bool(up) and up[0][1] == targets


async def _eden(told: dict[str, str], *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *EDEN,
        *arguments,
        env={**os.environ, **told},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


@asynccontextmanager
async def _process(told: dict[str, str], folder: Path, *arguments: str) -> AsyncGenerator[Process]:
    with (folder / f"{arguments[0]}.log").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *EDEN, *arguments, env={**os.environ, **told}, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
