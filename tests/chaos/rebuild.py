"""Rebuilding under kills: `eden rebuild` killed again and again beside live formation; equal to live after them all.

`python -m tests.chaos.rebuild --kills 200 --seed 1 [--folder F]` prints a table and one JSON object, and ends with 1
when a rebuilt memory differs, a message is in two windows, or a process ended by itself. Rounds of kills while chats
go on and some of it is deleted, rounds in the quiet, `--from-nothing` after every collection of ours was dropped, and
a last rebuild once the topics have been fully compacted.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from eden_memory.kafka.topics import load_topics
from eden_memory.memory.memory_batch import fact_hash
from eden_memory.replay.installation import installation
from eden_memory.replay.namespaces.dropping import drop
from eden_memory.replay.rebuild.document_comparing import MemoryComparison
from eden_memory.replay.rebuild.namespace_rebuild import RebuildVerdict, filling, verify
from eden_memory.schemas.events import FactChanged, FormationRequested, ScopeConsolidated, decode
from eden_memory.settings import Settings
from eden_memory.stages.patience import until_done
from eden_memory.stages.stage import Delivery
from tests.chaos import formation
from tests.chaos.command import parser, run_and_show
from tests.chaos.formation import PARTITIONS, Scene, environment, quiet
from tests.chaos.formation_rebuild import compacted
from tests.chaos.rebuild_killer import Killer
from tests.chaos.report import Outcome
from tests.chaos.waiting import NotInTime
from tests.integration.replay.replay_kit import told
from tests.integration.stages_on_servers import OnServers, on_servers

SESSION_MS = 1_500
ROUND = 25
"""Kills of one namespace at most, before it is finished and compared: earlier where it has caught up."""
NOTHING = 0.2
"""The share of kills that strike `--from-nothing`."""
EMBEDDINGS = "test-embedding"
SCOPES = 120
"""Of histories that are there from the beginning, so that there is much to write."""
KEPT = ("memory_inbox",)
FORMED = ("messages", "windows")
LOOKED_AT = ("_id", "session_id", "version", "formation_id", "deleted", "opted_out", "seq")


@dataclass(frozen=True)
class Options:
    """One run."""

    kills: int
    seed: int
    scopes: int = SCOPES
    pace: float = 6.0


@dataclass
class Run:
    """What a run works with."""

    on: Scene
    killer: Killer
    violations: dict[str, list[str]]
    compared: int = 0

    @property
    def database(self) -> Any:
        """Ours."""
        return self.on.chat.database

    async def written(self, name: str | None) -> int:
        """Documents of memory, in a namespace or in live."""
        prefix = "memory_" if name is None else f"memory_ns_{name}_"
        counts = [
            await self.database[prefix + one].estimated_document_count() for one in ("facts", "reflections")
        ]
        return sum(counts)


async def run(options: Options, folder: Path, jars: Path) -> Outcome:
    """Set the scene, kill, compare; `folder` keeps data and logs."""
    began = time.monotonic()
    given = formation.Options(0, options.seed, workers=1, pace=options.pace, poisoned=0)
    async with formation.scene(given, folder, jars) as on:
        given_to = environment(on.servers, on.models)
        killer = Killer(options.seed, on.servers, given_to, folder, SESSION_MS)
        state = Run(on, killer, {"differs": [], "windows": [], "never quiet": []})
        try:
            await _all(state, options)
        except NotInTime as error:
            state.violations["never quiet"].append(str(error))
        await on.workers.abandon()
        figures: dict[str, object] = {
            "seed": options.seed,
            "seconds": round(time.monotonic() - began),
            "messages": len(on.chat.messages),
            "deleted meanwhile": on.chat.deletions,
            "comparisons": state.compared,
            "documents compared last": await state.written(None),
        }
        found = {**state.violations, "rebuilds": killer.violations, "processes": on.workers.violations}
        return Outcome(found, figures, dict(killer.counts))


async def _all(run: Run, options: Options) -> None:
    await _histories(run, options)
    from_nothing = round(options.kills * NOTHING)
    left, number = options.kills - from_nothing, 0
    while left > 0:
        left -= await _round(run, f"r{number}", min(ROUND, left), talking=number % 2 == 0)
        number += 1
        differing = len(run.violations["differs"])
        sys.stderr.write(f"{options.kills - from_nothing - left} killed, {differing} differences\n")
    await quiet(run.on)
    await _from_nothing(run, from_nothing)
    await _goes_on(run)
    await _compacted(run)


async def _histories(run: Run, options: Options) -> None:
    """Facts and reflections of many scopes, each twice, and tombstones of some; live formation makes their blobs."""
    rows, gone = (
        [_ours(one) for one in some if one.envelope.name != ScopeConsolidated.NAME]
        for some in told(options.scopes, options.seed)
    )
    settings = _partitioned(run.on.settings)
    async with on_servers(OnServers, settings, prepare=False) as kit:
        await kit.put([*rows, *rows, *gone])


def _ours(one: Delivery) -> Delivery:
    """Vectors are of the model that live formation uses, and no two facts say the same.

    It would retire one of two under the version that the history gives to its next words: two records of one key.
    """
    event = one.event
    if not isinstance(event, FactChanged):
        return one
    text = f"{event.text} Of {event.fact_id}."
    changes: dict[str, object] = {"text": text, "hash": fact_hash(text)}
    if event.embedding is not None:
        changes["embedding"] = event.embedding.model_copy(update={"model": EMBEDDINGS})
    return one._replace(event=event.model_copy(update=changes))


def _partitioned(settings: Settings) -> Settings:
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": PARTITIONS})})


async def _round(run: Run, name: str, most: int, *, talking: bool) -> int:
    """A namespace that is killed while it is filled, finished, and compared with live memory; how many kills."""
    kills = 0
    over = asyncio.Event()
    chat = asyncio.create_task(run.on.chat.talk(over)) if talking else None
    try:
        while kills < most and not (kills and await _is_full(run, name)):
            await run.killer.kill(name, 1, lambda: run.written(name))
            kills += 1
    finally:
        over.set()
        if chat is not None:
            await chat
    verdict = await _finished(run, name)
    run.compared += 1
    differs = [f"{name}: {one}" for one in verdict.differences]
    if verdict.differing and not differs:
        differs.append(f"{name}: {verdict.differing} documents")
    run.violations["differs"] += differs
    sys.stderr.write("".join(f"{one}\n" for one in differs))
    await _forget(run, name)
    return kills


async def _is_full(run: Run, name: str) -> bool:
    """Whether there is nothing left to be killed at."""
    found = await run.database["memory_namespaces"].find_one({"_id": name}, {"state": 1})
    return found is not None and found["state"] != "filling"


async def _finished(run: Run, name: str) -> RebuildVerdict:
    """The same command once more, in this process, until it is equal or is not."""
    found: list[RebuildVerdict] = []
    async with installation(run.on.settings) as at, filling(at, name, lambda _: None) as work:

        async def once_in() -> None:
            found.append(await verify(at, work))

        await work.run(once_in, follow=False)
    return found[0]


async def _forget(run: Run, name: str) -> None:
    """Dropped, so that nobody writes it beside live any more."""
    async with installation(run.on.settings) as at:
        await drop(at, name)


async def _from_nothing(run: Run, kills: int) -> None:
    """Everything of ours is dropped, and restored by a command that is killed until it is done; then once more."""
    await run.on.workers.stop()
    before = await _state(run.database)
    for name in await _ours_now(run):
        await (await run.database[name].aggregate([{"$out": f"copy_{name}"}])).to_list()
    await asyncio.sleep(2 * SESSION_MS / 1_000 + formation.SESSION_MS / 1_000)
    while kills > 0:
        for name in await _ours_now(run):
            # a transaction that a killed process has left open may hold it for longer than a command waits
            await until_done(partial(run.database.drop_collection, name))
        kills -= max(1, await run.killer.kill(None, kills, lambda: run.written(None)))
        await run.killer.to_the_end(None)
        await _compare_restored(run, before)


async def _ours_now(run: Run) -> list[str]:
    return [
        name
        for name in await run.database.list_collection_names()
        if name.startswith("memory_") and name not in KEPT
    ]


async def _compare_restored(run: Run, before: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    comparing = MemoryComparison(run.database, "copy_memory_", "memory_")
    found = (await comparing.whole()).differing.values()
    run.compared += 1
    run.violations["differs"] += [f"from nothing: {one}" for one in found]
    after = await _state(run.database)
    for name, rows in before.items():
        wrong = [one for one in {*rows, *after[name]} if rows.get(one) != after[name].get(one)]
        run.violations["differs"] += [
            f"from nothing: {name} {one}: {rows.get(one)} is {after[name].get(one)}" for one in wrong[:20]
        ]


async def _state(database: Any) -> dict[str, dict[str, Mapping[str, Any]]]:
    """What formation-trigger keeps of messages and windows, without what only orders those that wait."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name in FORMED:
        rows = await database[f"memory_{name}"].find({}, dict.fromkeys(LOOKED_AT, 1)).to_list()
        found[name] = {row["_id"]: row for row in rows}
    return found


async def _goes_on(run: Run) -> None:
    """Formation goes on behind it: what is said now is formed, and no message is in two windows."""
    await run.on.workers.start()
    await run.on.workers.all_run()
    over = asyncio.Event()
    chat = asyncio.create_task(run.on.chat.talk(over))
    await asyncio.sleep(10.0)
    over.set()
    await chat
    await quiet(run.on)
    homes: dict[str, str] = {}
    topic = load_topics(run.on.settings.kafka).topic_of(FormationRequested)
    windows = {one.key: one for one in run.on.arrivals.of[topic]}
    for one in windows.values():
        event = decode(FormationRequested.NAME, FormationRequested.VERSION, one.value or b"")
        assert isinstance(event, FormationRequested)
        for ref in event.messages:
            home = homes.setdefault(ref.message_id, event.formation_id)
            if home != event.formation_id:
                run.violations["windows"].append(f"{ref.message_id} is in {home} and {event.formation_id}")
    left = [one for one in run.on.chat.messages.values() if f"s.{one.id}" not in homes and not one.gone]
    run.violations["windows"] += [f"{one.id} is in no window" for one in left]


async def _compacted(run: Run) -> None:
    """The topics as compaction leaves them at last, rebuilt and compared."""
    topics = load_topics(run.on.settings.kafka)
    await compacted(run.on.servers.kafka.endpoint, topics.read_by("atlas-writer"), PARTITIONS)
    verdict = await _finished(run, "compacted")
    run.compared += 1
    run.violations["differs"] += [f"compacted: {one}" for one in verdict.differences]
    run.killer.counts.update(Counter({"topics fully compacted": 1}))


def main(arguments: list[str]) -> int:
    """One run, shown; 0 when nothing was violated."""
    made = parser("rebuild", __doc__, faults=200)
    made.add_argument("--kills", type=int, help="the same as --faults")
    given = made.parse_args(arguments)
    options = Options(given.kills or given.faults, given.seed)
    return run_and_show("rebuild", given.folder, lambda folder, jars: run(options, folder, jars))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
