"""The runtime under faults: workers and servers are killed, frozen and restarted while questions and chat flow.

`python -m tests.chaos.stages --faults 100 --seed 1 [--folder F]` prints a table and one JSON object, and ends with 1
when anything was lost, doubled, reordered or asked again. The same seed draws the same faults and inputs; how they
interleave is up to the machine.
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.mongo.client import connect
from eden_memory.stages.publishing import Publisher, new_producer
from tests.chaos import stages_verdict as verdict
from tests.chaos.command import parser, run_and_show
from tests.chaos.report import Outcome, Violations
from tests.chaos.servers import Servers, private_servers
from tests.chaos.stages_events import IN, KEPT, OUT, PARTITIONS
from tests.chaos.stages_faults import RESTARTS, Faults, plan
from tests.chaos.stages_inputs import CHAT, Chat, Questions
from tests.chaos.stages_process import Place
from tests.chaos.stages_reader import Arrivals, Arrived, diaries
from tests.chaos.stages_workers import Workers
from tests.chaos.waiting import NotInTime, cancelled, until

FORMATIONS = "memory.formations"
SESSION_MS = 3_000
COMPACTED = (IN, KEPT, CHAT, FORMATIONS)
"""Not `OUT`: a repeat that was published after its followers outlives the first copy, so a reader that lags behind
the cleaner meets the followers first (docs/fault-runs.md, stages)."""
QUIET_SECONDS = 60.0
LONGEST_SECONDS = 300.0


@dataclass(frozen=True)
class Options:
    """One run."""

    faults: int
    seed: int
    workers: int = 3
    sessions: int = 60


@dataclass(frozen=True)
class Scene:
    """Everything that runs."""

    options: Options
    place: Place
    questions: Questions
    chat: Chat
    arrivals: Arrivals
    workers: Workers
    faults: Faults


async def run(options: Options, folder: Path, jars: Path) -> Outcome:
    """Set the scene, strike, wait for quiet, and judge; `folder` keeps data, logs and diaries."""
    violations: Violations = {}
    began = time.monotonic()
    async with scene(options, folder, jars) as on:
        try:
            await _storm(on)
            await _quiet(on)
        except NotInTime as error:
            violations["never quiet"] = [str(error)]
        await on.workers.abandon()
        violations["processes"] = on.workers.violations
        found, figures = await _judge(on)
        seconds = {"seed": options.seed, "seconds": round(time.monotonic() - began)}
        return Outcome(violations | found, {**seconds, **figures}, dict(on.faults.counts))


@asynccontextmanager
async def scene(options: Options, folder: Path, jars: Path) -> AsyncGenerator[Scene]:
    """Servers, topics, inputs, reader and workers; all gone after the block."""
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(_servers(folder, jars))
        place = Place(options.seed, servers.mongo.endpoint, servers.kafka.endpoint, folder, SESSION_MS)
        await _create_topics(place)
        client = client_kwargs(place.settings.kafka, place.kafka)
        publisher = Publisher(lambda: new_producer(client))
        await publisher.start()
        stack.push_async_callback(publisher.stop)
        questions = Questions(options.seed, publisher, sessions=options.sessions)
        chat = Chat(options.seed, publisher)
        arrivals = Arrivals(place.kafka, dict.fromkeys((OUT, KEPT, FORMATIONS), PARTITIONS))
        stack.push_async_callback(cancelled, asyncio.create_task(arrivals.follow()))
        workers = Workers(place, options.workers)
        stack.push_async_callback(workers.abandon)
        await workers.start()
        await workers.all_run()

        async def flows() -> None:
            before = {topic: len(ones) for topic, ones in arrivals.of.items()}
            await until(
                lambda: all(len(arrivals.of[topic]) > before[topic] + 10 for topic in (OUT, KEPT)),
                "records come out after a fault",
            )

        faults = Faults(options.seed, servers, workers, COMPACTED, flows, SESSION_MS / 1_000)
        yield Scene(options, place, questions, chat, arrivals, workers, faults)


@asynccontextmanager
async def _servers(folder: Path, jars: Path) -> AsyncGenerator[Servers]:
    """Kafka lets members be missed sooner than by default."""
    properties = {"group.min.session.timeout.ms": "1000"}
    async with private_servers(folder, jars, replica_set=False, properties=properties) as servers:
        yield servers


async def _storm(on: Scene) -> None:
    """Questions and chat flow while the faults strike."""
    names = plan(on.options.seed, on.options.faults)
    over = asyncio.Event()
    flowing = [asyncio.create_task(on.questions.ask(over)), asyncio.create_task(on.chat.talk(over))]
    try:
        for number, name in enumerate(names):
            sys.stderr.write(f"{number + 1}/{len(names)} {name}\n")
            await on.faults.strike(name)
    finally:
        await on.faults.calm()
        over.set()
        await asyncio.gather(*flowing)


async def _quiet(on: Scene) -> None:
    """Until everything put in has come out; then the workers end."""
    keys = on.arrivals.keys
    letters = on.questions.poisoned | on.questions.junk
    wanted = set(on.questions.keys)
    over = asyncio.Event()
    trickling = asyncio.create_task(on.questions.trickle(over))
    try:
        await _come(on, lambda: wanted <= keys[OUT], "every question has an outcome")
        await _until_given_up(on, letters)
    finally:
        over.set()
        await trickling
    await _come(on, lambda: keys[OUT].issuperset(on.questions.keys), "the last questions have an outcome")
    await _come(on, lambda: not _unkept(on), "every outcome is kept")
    await on.chat.watermark()
    await _come(on, lambda: not _unformed(on), "every message is in a window")
    await on.workers.stop()


async def _until_given_up(on: Scene, wanted: Collection[str]) -> None:
    end = time.monotonic() + LONGEST_SECONDS
    while missing := set(wanted) - {letter.key for letter in await letters_of(on.place)}:
        if time.monotonic() > end:
            raise NotInTime(f"no dead letter of {sorted(missing)[:5]}")
        await asyncio.sleep(1.0)


async def letters_of(place: Place) -> list[verdict.Letter]:
    """The stored dead letters."""
    settings = place.settings
    async with connect(place.mongodb) as client:
        rows = client[settings.mongodb.database][settings.names["dead_letters"]].find()
        return [verdict.Letter(row["topic"], row["key"].decode()) async for row in rows]


async def _come(on: Scene, condition: Callable[[], bool], what: str) -> None:
    """Until it holds, as long as anything comes out."""
    size = -1
    while not condition():
        if size == (size := sum(map(len, on.arrivals.of.values()))):
            raise NotInTime(f"nothing came out for {QUIET_SECONDS:.0f} s, and still not: {what}")
        with suppress(NotInTime):
            await until(condition, what, QUIET_SECONDS)


def _unkept(on: Scene) -> Sequence[str]:
    texts = _texts(on.arrivals.of[OUT])
    return verdict.versions(on.arrivals.of[KEPT], texts)["lost"]


def _unformed(on: Scene) -> Sequence[str]:
    return verdict.windows(on.arrivals.of[FORMATIONS], {}, _living(on))["lost"]


def _living(on: Scene) -> dict[str, set[str]]:
    return {one.id: one.sessions for one in on.chat.messages.values() if not one.deleted}


def _texts(out: Sequence[Arrived]) -> dict[str, str]:
    return {one.key: verdict.text_of(one) for one in verdict.first_arrivals(out)}


async def _judge(on: Scene) -> tuple[Violations, dict[str, object]]:
    of, questions = on.arrivals.of, on.questions
    decided, stored = await _stored(on.place)
    calls = verdict.calls(diaries(on.place.folder))
    hop = verdict.versions(of[KEPT], _texts(of[OUT]))
    formed = verdict.windows(of[FORMATIONS], stored, _living(on))
    given_up = await letters_of(on.place)
    letters = [letter for letter in given_up if letter.topic == IN]
    strays = [f"{letter.topic}: {letter.key}" for letter in given_up if letter.topic != IN]
    violations: Violations = {
        "lost": verdict.lost(questions.keys, of[OUT]),
        "doubled outcomes": verdict.doubled([*of[OUT], *of[KEPT]]),
        "published, not stored": verdict.unlike_the_ledger([*of[OUT], *of[KEPT]], decided),
        "misjudged": verdict.misjudged(of[OUT], questions.poisoned),
        "reordered": verdict.reordered(of[OUT]),
        **{f"second hop, {name}": lines for name, lines in hop.items()},
        "dead letters": [*verdict.dead_letters(letters, questions.poisoned, questions.junk), *strays],
        "asked again after the answer": calls.after_the_answer,
        "asked again after the outcome": calls.after_the_outcome,
        **{f"windows, {name}": lines for name, lines in formed.items()},
        "windows published twice and differently": verdict.doubled(of[FORMATIONS]),
    }
    return violations, _figures(on, calls, letters)


def _figures(on: Scene, calls: verdict.Calls, letters: Sequence[verdict.Letter]) -> dict[str, object]:
    of = on.arrivals.of
    return {
        "faults": sum(on.faults.counts.values()),
        "server restarts": sum(on.faults.counts[name] for name in RESTARTS),
        "questions": len(on.questions.keys),
        "records of the second hop": len(verdict.first_arrivals(of[KEPT])),
        "messages": len(on.chat.messages),
        "edits, deletions, controls": f"{on.chat.edits}, {on.chat.deletions}, {on.chat.controls}",
        "moves, transactions": f"{on.chat.moves}, {on.chat.transactions}",
        "windows": len(verdict.first_arrivals(of[FORMATIONS])),
        "repeats: answers": len(of[OUT]) - len(verdict.first_arrivals(of[OUT])),
        "repeats: second hop": len(of[KEPT]) - len(verdict.first_arrivals(of[KEPT])),
        "repeats: windows": len(of[FORMATIONS]) - len(verdict.first_arrivals(of[FORMATIONS])),
        "dead letters expected": len(on.questions.poisoned | on.questions.junk),
        "dead letters": len(letters),
        "calls": calls.asked,
        "calls that failed": calls.failed,
        "calls repeated, in flight at a fault": calls.repeated,
        "of these answered, not yet stored": calls.on_their_way,
        "workers started": on.workers.started,
        "gave up starting, a server was away": on.workers.gave_up_starting,
        "longest stop, s": round(max(on.workers.stop_seconds, default=0.0), 2),
    }


async def _stored(place: Place) -> tuple[dict[str, bytes], dict[str, list[str]]]:
    """The ledger's records by key, and the messages of the stored windows by formation."""
    settings = place.settings
    names = settings.names
    async with connect(place.mongodb) as client:
        database = client[settings.mongodb.database]
        outcomes = await database[names["outcomes"]].find({}, {"records": 1}).to_list()
        rows = await database[names["windows"]].find({}, {"messages.message_id": 1}).to_list()
    records = [record for one in outcomes for record in one["records"]]
    windows = {row["_id"]: [one["message_id"] for one in row["messages"]] for row in rows}
    return {record["k"].decode(): record["v"] for record in records}, windows


async def _create_topics(place: Place) -> None:
    settings = place.settings.kafka.model_copy(update={"partitions": PARTITIONS})
    await asyncio.to_thread(apply_topics, admin_config(settings, place.kafka), load_topics(settings))
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=place.kafka)
    await admin.start()
    compact = {"cleanup.policy": "compact"}
    try:
        own = [NewTopic(name, PARTITIONS, 1, topic_configs=compact) for name in (IN, OUT, KEPT)]
        await admin.create_topics(own)
    finally:
        await admin.close()


def main(arguments: list[str]) -> int:
    """One run, shown; 0 when nothing was violated."""
    given = parser("stages", __doc__, faults=200).parse_args(arguments)
    options = Options(given.faults, given.seed)
    return run_and_show("stages", given.folder, lambda folder, jars: run(options, folder, jars))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
