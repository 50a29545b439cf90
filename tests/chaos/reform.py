"""Reforms under kills: `eden reform` killed again and again and given again, beside live formation.

`python -m tests.chaos.reform --kills 200 --seed 1 [--folder F]` prints a table and one JSON object, and ends with 1
when anything was violated. Each round forms all there is with another prompt, one window at a time, killed at moments
that nobody chooses until it is done. Then: every window of live formation is formed, each once; no answer that was
kept is paid again; the same reform once more, never killed, finds every answer and forms the same memory, document by
document. In every second round people go on talking, and facts alone are compared: windows came in another order.
"""

import asyncio
import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eden_memory.replay.installation import installation
from eden_memory.replay.namespaces.dropping import drop
from eden_memory.replay.reform.namespace_reform import ReformRequest
from eden_memory.settings import Settings
from tests.bench.reform import settings_for
from tests.chaos import reform_process
from tests.chaos.command import parser, run_and_show
from tests.chaos.reform_process import FORMED, Place
from tests.chaos.report import Outcome
from tests.chaos.servers import private_servers
from tests.chaos.stages_process import SERVER_AWAY
from tests.chaos.stages_workers import Forked
from tests.integration.replay.reform_kit import live_through, memory, placed, quiet, reform
from tests.integration.system.commands import environment
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, stages, system
from tests.model_server.serving import serving
from tests.servers import TestServers

USERS, WINDOWS = ("ana", "bob"), 5
SESSION_MS, LEASE_SECONDS = 1_500, 5.0
CALL_SECONDS = 0.4
SOONEST, LATEST, AFTER, GETS_ON_SECONDS = 0.2, 3.0, 1.5, 30.0
"""Every fourth process is killed SOONEST to LATEST seconds after its start, the others within AFTER of getting on."""
LOOK_SECONDS = 0.05
PROPERTIES = {"group.min.session.timeout.ms": "1000"}
IN_FLIGHT = 4
"""Calls that one process has under way with one window at a time, at most: those of a kill may be paid again."""
EXTRACTED = "fact-extraction:formation/"
GROWS = ("messages", "outcomes", "facts", "reflections", "blobs")


@dataclass(frozen=True)
class Options:
    """One run."""

    kills: int
    seed: int
    windows: int = WINDOWS


@dataclass
class Run:
    """What a run works with."""

    on: System
    folder: Path
    chance: random.Random
    windows: int
    place: Place
    counts: Counter[str] = field(default_factory=Counter[str])
    violations: dict[str, list[str]] = field(
        default_factory=lambda: {"windows": [], "paid twice": [], "differs": [], "processes": []}
    )
    compared: int = 0
    started: int = 0
    talked: int = 0

    def given(self, number: int) -> ReformRequest:
        """The same options each time; another prompt for every round."""
        file = self.folder / f"streams-{number}.json"
        row = {"_id": "s.helper/user", "agent_id": "s.helper", "scope": "user"}
        file.write_text(json.dumps([{**row, "extraction_guidance": f"Round {number}: say it plainly."}]))
        return ReformRequest(streams=file, at_once=1)

    async def got(self, name: str) -> int:
        """How much a reform has written."""
        names = [f"memory_ns_{name}_{one}" for one in GROWS]
        return sum([await self.on.database[one].estimated_document_count() for one in names])


async def run(options: Options, folder: Path, jars: Path) -> Outcome:
    """Live through, kill, compare; servers of its own in the folder."""
    async with private_servers(folder, jars, replica_set=False, properties=PROPERTIES) as servers:
        endpoints = TestServers(servers.mongo.endpoint, servers.kafka.endpoint)
        return await _run(options, settings_for(endpoints, f"chaos{options.seed}"), folder)


async def _run(options: Options, settings: Settings, folder: Path) -> Outcome:
    began = time.monotonic()
    async with serving(obey, base_seconds=CALL_SECONDS) as models:
        lived = fast(settings, models)
        async with system(lived, models, run=False) as on:
            place = Place(environment(on.settings), SESSION_MS, LEASE_SECONDS)
            state = Run(on, folder, random.Random(f"{options.seed}/reform"), options.windows, place)
            async with stages(lived):
                await live_through(on, USERS, options.windows)
                left, number = options.kills, 0
                while left > 0:
                    left -= await _round(state, number, left)
                    number += 1
                    sys.stderr.write(f"{options.kills - left} killed: {state.violations}\n")
                windows = await on.memory("windows").count_documents({})
    figures: dict[str, object] = {
        "seed": options.seed,
        "seconds": round(time.monotonic() - began),
        "reforms": number,
        "windows": windows,
        "comparisons": state.compared,
        "calls paid again of those in flight": state.counts.pop("paid again", 0),
    }
    return Outcome(state.violations, figures, dict(state.counts))


async def _round(run: Run, number: int, most: int) -> int:
    """One reform, killed at most so often, then to its end; how many kills."""
    name, talking = f"killed-{number}", number % 2 == 1
    given, kills, done = run.given(number), 0, False
    before = dict(_answered(run))
    while kills < most and not done:
        done = not await _killed(run, name, given)
        kills += not done
        if talking and not done:
            await _talk(run)
    if not done:
        await _to_the_end(run, name, given)
    await quiet(run.on)
    if talking:  # what came last is in it too
        await _to_the_end(run, name, given)
    await _judge(run, name, before, kills)
    await _once_more(run, name, number, given, exactly=not talking)
    return max(kills, 1)


async def _killed(run: Run, name: str, given: ReformRequest) -> bool:
    """Whether it goes on; a process that has ended by itself has to have formed everything."""
    process, log = _start(run, name, given)
    before = await run.got(name)
    try:
        if run.started % 4 == 0:
            await asyncio.sleep(run.chance.uniform(SOONEST, LATEST))
        else:
            for _ in range(round(GETS_ON_SECONDS / LOOK_SECONDS)):
                if process.exitcode is not None or await run.got(name) != before:
                    break
                await asyncio.sleep(LOOK_SECONDS)
            await asyncio.sleep(run.chance.uniform(0, AFTER))
    finally:
        ended = process.exitcode
        process.kill()
        await Forked(process).wait()
    if ended is None:
        run.counts["killed"] += 1
        run.counts["killed after it had written"] += await run.got(name) != before
        return True
    run.counts["ended before it could be killed"] += 1
    if ended not in (FORMED, SERVER_AWAY):
        run.violations["processes"].append(f"{log.name} ended with {ended}: {_tail(log)}")
    return ended != FORMED


async def _to_the_end(run: Run, name: str, given: ReformRequest) -> None:
    code, log = SERVER_AWAY, run.folder
    while code == SERVER_AWAY:
        process, log = _start(run, name, given)
        code = await Forked(process).wait()
    if code != FORMED:
        run.violations["processes"].append(f"{log.name} ended with {code}: {_tail(log)}")


def _start(run: Run, name: str, given: ReformRequest) -> tuple[Any, Path]:
    run.started += 1
    log = run.folder / f"reform-{run.started:04}.log"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([reform_process.__name__])
    arguments = (run.place, name, given, log)
    process = context.Process(target=reform_process.main, args=arguments, daemon=True)
    process.start()
    return process, log


async def _talk(run: Run) -> None:
    """A window more, formed by live."""
    run.talked += 1
    user = USERS[run.talked % len(USERS)]
    session = await run.on.session(user)
    await run.on.told(session, user, f"fact user: {user} has said extra{run.talked} meanwhile.")


def _answered(run: Run) -> Counter[str]:
    return Counter({prompt: one.answered for prompt, one in run.on.models.tally.prompts.items()})


async def _judge(run: Run, name: str, before: dict[str, int], kills: int) -> None:
    """Every window once, and nothing paid twice but what was in flight at a kill."""
    wanted = {
        row["_id"] async for row in run.on.memory("windows").find({"requested": {"$ne": None}}, {"_id": 1})
    }
    outcomes = run.on.database[f"memory_ns_{name}_outcomes"]
    for stage in ("fact-extraction", "reflection-extraction"):
        formed = Counter(
            [
                row["formation_id"]
                async for row in run.on.database["memory_calls"].find(
                    {"namespace": name, "stage": stage, "outcome": "answered"}, {"formation_id": 1}
                )
            ]
        )
        again = [
            f"{name}: {stage} of {one} counted {times} times" for one, times in formed.items() if times > 1
        ]
        run.violations["paid twice"] += again
        run.violations["windows"] += [f"{name}: {stage} of {one}" for one in set(formed) - wanted]
    found = [
        member.removeprefix(EXTRACTED)
        async for row in outcomes.find(
            {"members": {"$gt": EXTRACTED, "$lt": EXTRACTED + "~"}}, {"members": 1}
        )
        for member in row["members"]
    ]
    run.violations["windows"] += [f"{name}: {one} was left out" for one in sorted(wanted - set(found))]
    run.violations["windows"] += [
        f"{name}: {one} was formed {times} times" for one, times in Counter(found).items() if times > 1
    ]
    again = sum(max(0, times - max(1, before.get(prompt, 0))) for prompt, times in _answered(run).items())
    run.counts["paid again"] += again
    if again > IN_FLIGHT * kills:
        run.violations["paid twice"].append(f"{name}: {again} calls answered again, {kills} kills")


async def _once_more(run: Run, name: str, number: int, given: ReformRequest, *, exactly: bool) -> None:
    """The same reform, never killed: every answer is there, and the same comes of them."""
    other = f"whole-{number}"
    ended, said = await reform(run.on.settings, other, streams=given.streams, at_once=1)
    if ended != "formed":
        run.violations["processes"].append(said[-500:])
    paid = await run.on.database["memory_calls"].count_documents({"namespace": other})
    first, second = await _remembered(run, name), await _remembered(run, other)
    if exactly:
        run.violations["paid twice"] += [f"{other} paid {paid} calls anew"] if paid else []
        kinds: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
            kind: (first[kind], second[kind]) for kind in first
        }
    else:
        kinds = {"texts": (_texts(first), _texts(second))}
    for kind, (one, two) in kinds.items():
        differing = [key for key in sorted({*one, *two}) if one.get(key) != two.get(key)]
        run.violations["differs"] += [f"{name}: {kind} {key}" for key in differing]
    run.compared += 1
    for namespace in (name, other):
        async with installation(run.on.settings) as at:
            await drop(at, namespace)


async def _remembered(run: Run, name: str) -> dict[str, dict[str, Any]]:
    return await memory(run.on.database, placed(run.on.settings, name))


def _texts(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Active facts alone, by what they say."""
    return {row["content"]: row["scope_key"] for row in found["facts"].values() if row["active"]}


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1_500:]


def main(arguments: list[str]) -> int:
    """One run, shown; 0 when nothing was violated."""
    made = parser("reform", __doc__, faults=200)
    made.add_argument("--kills", type=int, help="the same as --faults")
    made.add_argument("--windows", type=int, default=WINDOWS, help="of each of two users, at the beginning")
    given = made.parse_args(arguments)
    options = Options(given.kills or given.faults, given.seed, given.windows)
    return run_and_show("reform", given.folder, lambda folder, jars: run(options, folder, jars))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
