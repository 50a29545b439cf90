"""`eden run` killed in the middle of its work: nothing is lost, and no answer that had arrived is asked for again."""

import math
import re
from asyncio.subprocess import Process
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from eden_memory.settings import Settings
from tests.integration.system.commands import kill, start
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, system, until
from tests.model_server.script import Asked, Fault, Said
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
MARK = re.compile(r"Mark-\d+")
KINDS = {"fact-extraction": "facts", "reflection-extraction": "reflections"}
SESSIONS, KILLS, ANSWERS = 16, 2, 12


class Kept:
    """A model that remembers what it was asked: (kind, the mark of the session), and answers so often as it may."""

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, str]] = Counter()
        self.may = 0.0

    def __call__(self, asked: Asked) -> Said:
        if (mark := MARK.search(asked.user)) and asked.kind in KINDS.values():
            self.asked[asked.kind, mark[0]] += 1
            self.may -= 1
            if self.may < 0:
                return Fault("hang")
        return obey(asked)


async def stored(running: System) -> set[tuple[str, str]]:
    """The questions whose answers have arrived and are kept, as the model knows them."""
    rows = await running.memory("answers").find({"text": {"$ne": None}, "invalid": None}).to_list()
    return {
        (KINDS[name], mark[0])
        for row in rows
        if (name := (row["prompt"] or "").partition("/")[0]) in KINDS and (mark := MARK.search(row["text"]))
    }


async def test_killed_again_and_again_it_forms_all_and_pays_for_no_answer_twice(
    settings: Settings, tmp_path: Path
) -> None:
    model, log = Kept(), tmp_path / "eden.log"
    async with serving(model) as models:
        quick = fast(settings, models, tailer={"lease_seconds": 2.0})
        async with system(quick, models, run=False) as running:
            said: list[str] = []
            for n in range(SESSIONS):
                session = await running.session(f"u{n}")
                said += await running.write(
                    session, f"u{n}", f"fact user: Mark-{n} lies here.", f"note session: Mark-{n} matters."
                )
                await running.form(session)
            before, asked = set[tuple[str, str]](), Counter[tuple[str, str]]()
            for round_ in range(KILLS):
                model.may = ANSWERS
                process = await start(quick, log, "run")
                try:
                    wanted = (round_ + 1) * ANSWERS
                    kept = partial(_at_least, running, wanted, process, log)
                    await until(kept, f"{wanted} answers are kept")
                finally:
                    await kill(process)
                assert not {one for one in before if model.asked[one] > asked[one]}, "asked again"
                before, asked = await stored(running), Counter(model.asked)
                assert len(before) == wanted < 2 * SESSIONS, "in the middle"
            model.may = math.inf
            process = await start(quick, log, "run")
            try:
                await running.formed(said, 2 * SESSIONS)
                assert not {one for one in before if model.asked[one] > asked[one]}, "asked again"
                for n in range(SESSIONS):
                    assert await running.facts(f"u{n}") == [f"Mark-{n} lies here."]
                assert await running.dead() == []
            finally:
                await kill(process)


async def _at_least(running: System, count: int, process: Process, log: Path) -> bool:
    assert process.returncode is None, log.read_text()[-3_000:]  # noqa: ASYNC240 - when it has failed
    return len(await stored(running)) >= count
