"""Imports and a mirror under kills: `eden import`, `eden mirror` and `eden run` are killed; each item is there once.

`python -m tests.chaos.imports --faults 50 --seed 1 [--folder F]` prints a table and one JSON object, and ends with 1
when a text is lost or doubled, a further import takes anything, or a rebuilt memory differs. Half of the kills strike
imports of a growing file, the other half a mirror whose file and whose user's memory change meanwhile. Every fourth
kill strikes `eden run` as well.
"""

import asyncio
import json
import random
import sys
import time
from asyncio.subprocess import Process
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from pydantic import SecretStr

from eden_memory.api.service import MemoryService
from eden_memory.files.mirror_folder import MirrorFolder
from eden_memory.files.mirror_page import parsed
from eden_memory.mongo.client import connect
from eden_memory.settings import KafkaSettings, LocalSettings, MongoSettings, Settings
from tests.chaos.command import parser, run_and_show
from tests.chaos.report import Outcome
from tests.integration.system.commands import eden, kill, start
from tests.integration.system.mirror_kit import Mirror
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, prepare, until
from tests.model_server.serving import serving
from tests.servers import TestServers, running_servers

BLOCK = 400
"""Items that a file gains whenever all before them were imported."""
SOONEST, LATEST = 0.5, 5.0
"""Seconds from a command's start to its end."""
SECONDS = 240.0
USERS = ("ana", "ben", "cleo")


@dataclass
class Run:
    """What a run works with."""

    system: System
    folder: Path
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter[str])
    violations: dict[str, list[str]] = field(
        default_factory=lambda: {"lost or doubled": [], "taken again": []}
    )
    stages: Process | None = None

    async def start(self, *command: str) -> Process:
        """A command whose output goes to a file named after it."""
        return await start(self.system.settings, self.folder / f"{command[0]}.log", *command)

    async def run_stages(self) -> None:
        """`eden run`, in place of the one before, which is killed."""
        if self.stages is not None:
            self.counts["eden run killed"] += 1
            await kill(self.stages)
        self.stages = await self.start("run")

    async def kill_some_time(self, process: Process) -> bool:
        """Kill a command at a moment that nobody chooses; False if it had ended by itself."""
        await asyncio.sleep(self.chance.uniform(SOONEST, LATEST))
        killed = process.returncode is None
        await kill(process)
        if killed and self.chance.random() < 0.25:
            await self.run_stages()
        return killed

    async def holds(self, user: str, texts: set[str]) -> None:
        """Wait until a user's active facts are these; what is lost or doubled in the end is a violation."""

        async def so() -> bool:
            return await self.system.facts(user) == sorted(texts)

        try:
            await until(so, f"the facts of {user}", SECONDS)
        except AssertionError:
            found = Counter(await self.system.facts(user))
            wrong = [text for text in {*found, *texts} if found[text] != (text in texts)]
            self.violations["lost or doubled"] += [
                f"{user}: {text}: {found[text]} times" for text in sorted(wrong)
            ]


async def run(kills: int, seed: int, servers: TestServers, folder: Path) -> Outcome:
    """Set up a namespace, kill, compare; `folder` keeps files and logs."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(serving(obey))
        settings = fast(_settings(servers, folder), models)
        await prepare(settings)
        mongo = await stack.enter_async_context(connect(servers.mongodb_uri))
        service = await stack.enter_async_context(MemoryService(AGENT, client=mongo, settings=settings))
        state = Run(System(settings, mongo, models, service), folder, random.Random(seed))
        await state.run_stages()
        try:
            items = await _imports(state, kills - kills // 2)
            edits = await _mirror(state, kills // 2)
            await eden(settings, "rebuild", "chaos", "--verify")
        finally:
            assert state.stages is not None
            await kill(state.stages)
    figures: dict[str, object] = {
        "seed": seed,
        "seconds": round(time.monotonic() - began),
        "items imported": items,
        "changes beside the mirror": edits,
    }
    return Outcome(state.violations, figures, dict(state.counts))


def _settings(servers: TestServers, folder: Path) -> Settings:
    name = f"chaos{uuid4().hex[:8]}"
    return Settings(
        mongodb=MongoSettings(uri=SecretStr(servers.mongodb_uri), database=name),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(  # pyright: ignore[reportCallIssue]
            bootstrap=servers.kafka_bootstrap, topic_prefix=f"{name}.", group_prefix=f"{name}."
        ),
        local=LocalSettings(folder=folder / "eden"),  # pyright: ignore[reportCallIssue]
    )


async def _imports(run: Run, kills: int) -> int:
    """Imports of one file that grows, each killed; the items in the end."""
    file, wanted = run.folder / "mem0.jsonl", {user: set[str]() for user in USERS}
    command = ("import", "mem0", str(file), "--agent", AGENT, "--yes")
    _grow(file, wanted, run.chance)
    while run.counts["eden import killed"] < kills:
        if await run.kill_some_time(await run.start(*command)):
            run.counts["eden import killed"] += 1
        else:
            _grow(file, wanted, run.chance)
    await eden(run.system.settings, *command)
    for user, texts in wanted.items():
        await run.holds(user, texts)
    said = await eden(run.system.settings, *command, "--json")
    taken = json.loads(said[said.index("{\n") :])["taken"]
    run.violations["taken again"] += [f"{count} {kind}" for kind, count in taken.items()]
    return sum(map(len, wanted.values()))


def _grow(file: Path, wanted: dict[str, set[str]], chance: random.Random) -> None:
    """Append items that nobody had before."""
    with file.open("a") as out:
        for _ in range(BLOCK):
            user, text = chance.choice(USERS), f"Bought a map, receipt {sum(map(len, wanted.values()))}."
            wanted[user].add(text)
            out.write(json.dumps({"id": text, "memory": text, "user_id": user}) + "\n")


async def _mirror(run: Run, kills: int) -> int:
    """A mirror that is killed while its file and the chat change; how many changes there were."""
    user, system, wanted = "mia", run.system, {"Began."}
    mirror = Mirror(system, run.folder / "notes", user)
    command = ("mirror", str(mirror.path), "--user", user, "--agent", AGENT)
    MirrorFolder(mirror.path, f"{system.settings.mongodb.database}, agent s.{AGENT}, user s.{user}").create()
    await system.told(await system.session(user), user, "fact user: Began.")
    for number in range(kills):
        process = await run.start(*command)
        session = await system.session(user)
        await system.write(session, user, f"fact user: Said {number}.")
        await system.form(session)
        wanted.add(f"Said {number}.")
        killing = asyncio.create_task(run.kill_some_time(process))
        await asyncio.sleep(run.chance.uniform(0.0, LATEST / 2))
        wanted |= _changed(mirror, run.chance, wanted, number)
        assert await killing, (run.folder / "mirror.log").read_text()[-2_000:]
        run.counts["eden mirror killed"] += 1
    process = await run.start(*command)
    try:
        await run.holds(user, wanted)
        await mirror.shows_facts(*wanted)
    finally:
        await kill(process)
    if mirror.conflicts.exists():
        run.violations["lost or doubled"].append(mirror.conflicts.read_text())
    return 2 * kills


def _changed(mirror: Mirror, chance: random.Random, wanted: set[str], number: int) -> set[str]:
    """Add a line to the file, or edit one that memory has taken (`wanted` loses the text before); the new text."""
    page = parsed(mirror.text())
    known = [line.text for line in page.lines if line.id and line.text in wanted] if page is not None else []
    text = f"Written {number}."
    if not mirror.file.exists():
        return set()
    if known and chance.random() < 0.5:
        old = chance.choice(known)
        mirror.edit(f"- {old}", f"- {text}")
        wanted.discard(old)
    else:
        mirror.add(text)
    return {text}


def main(arguments: list[str]) -> int:
    """One run, shown; 0 when nothing was violated."""
    given = parser("imports", __doc__, faults=50).parse_args(arguments)

    async def on_servers(folder: Path, jars: Path) -> Outcome:
        with running_servers({}, folder / "servers", jars) as servers:
            return await run(given.faults, given.seed, servers, folder)

    return run_and_show("imports", given.folder, on_servers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
