"""Canaries with `kill -9` between the steps, a seed each: `make canaries SEEDS=20`."""

import os
from asyncio.subprocess import Process
from pathlib import Path
from random import Random

import pytest

from eden_memory.settings import Settings
from tests.integration.system.canary_scans import nothing_left_after_compaction, until_erased
from tests.integration.system.commands import kill, start
from tests.integration.system.running_system import System, fast, system
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
SEEDS = range(int(os.environ.get("EDEN_TEST_CANARY_SEEDS", "0")))
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Killed:
    """`eden run`, killed and started again before a step, or not."""

    def __init__(self, settings: Settings, log: Path, dice: Random) -> None:
        self._settings, self._log, self._dice = settings, log, dice
        self.process: Process | None = None

    async def perhaps(self) -> None:
        """Kill it in about half of the cases, and see to it that it runs."""
        if self.process is not None and self._dice.random() < 0.5:
            await kill(self.process)
            self.process = None
        if self.process is None:
            self.process = await start(self._settings, self._log, "run")


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_canary_is_left_whatever_was_killed(
    settings: Settings, shared_models: Serving, tmp_path: Path, seed: int
) -> None:
    dice, log = Random(seed), tmp_path / "eden.log"
    word = "Zan" + "".join(dice.choices(LETTERS, k=12))
    settings = fast(settings, shared_models, tailer={"lease_seconds": 2.0})
    async with system(settings, shared_models, run=False) as running:
        killed = Killed(settings, log, dice)
        try:
            await _live(running, killed, dice, word)
            await until_erased(running, word.encode())
        finally:
            if killed.process is not None:
                await kill(killed.process)
        await nothing_left_after_compaction(running, word.encode())
    assert word.encode() not in log.read_bytes()


async def _live(running: System, killed: Killed, dice: Random, word: str) -> None:
    """Say the word through every door, form, merge, consolidate, search and export it, and forget it."""
    await killed.perhaps()
    session, other = await running.session("xan"), await running.session("xan")
    said = [
        f"fact user: Xan digs at {word} same-dig.",
        *(f"note user: Xan likes {word} {n}." for n in range(4)),
    ]
    names = await running.told(session, "xan", *said)
    await killed.perhaps()
    await running.told(other, "xan", "fact user: Xan digs for gold same-dig.")
    await running.service.add(f"fact user: Xan wrote of {word}.", session=session, user="xan")
    await running.service.add(f"Xan said {word}.", session=session, user="xan", verbatim=True)
    await running.form(session)
    await killed.perhaps()
    await running.shows(session, "xan", word, f"Xan said {word}.", f"Xan wrote of {word}.", "<Consolidated>")
    await running.service.search_facts([f"Xan digs at {word}"], session=session, user="xan")
    await running.service.memory.export_user("xan")
    if dice.random() < 0.3:
        await running.source["messages"].delete_many({"_id": {"$in": names}})
        await killed.perhaps()
    await running.forget(*dice.choice([("session", session), ("user", "xan")]))
    await killed.perhaps()
