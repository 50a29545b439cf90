"""`eden run` killed while an edit or a deletion is under way: the old text goes, and nothing is paid for twice."""

import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.settings import Settings
from tests.integration.system import commands
from tests.integration.system.canary_scans import until_erased
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import Row, System, fast, system, until
from tests.model_server.script import Asked, Said
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
NEVER, AT_ONCE = 3_600, 1
"""Seconds for which the text of an edited message has to be still: a process is killed before, or forms it."""
LONG, SHORT = 600.0, 5.0
TEA = "fact user: Una likes tea."
HISTORY = "fact user: Ivo keeps bees.", "fact user: Ivo owns a boat."
RUN = """
from datetime import timedelta
from eden_memory.windows import session_state
session_state.STILL = timedelta(seconds={still})
from eden_memory.cli.main import main
main()
"""


class Counted:
    """An obedient model that counts its questions."""

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, str]] = Counter()

    def __call__(self, asked: Asked) -> Said:
        self.asked[asked.kind, asked.user] += 1
        return obey(asked)


async def test_a_kill_loses_no_edit_and_no_deletion_and_pays_for_nothing_twice(
    settings: Settings, tmp_path: Path
) -> None:
    model, log = Counted(), tmp_path / "eden.log"

    @asynccontextmanager
    async def running_until_killed(still: int, grace: float) -> AsyncGenerator[None]:
        changed = fast(
            settings, models, tailer={"lease_seconds": 2.0}, messages={"delete_grace_seconds": grace}
        )
        program = (sys.executable, "-c", RUN.format(still=still))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commands, "EDEN", program)
            process = await commands.start(changed, log, "run")
        try:
            yield
            assert process.returncode is None, log.read_text()[-3_000:]
        finally:
            await commands.kill(process)

    async with serving(model) as models, system(fast(settings, models), models, run=False) as running:
        messages = running.source["messages"]
        una, ivo, ulf = [await running.session(user) for user in ("una", "ivo", "ulf")]
        async with running_until_killed(NEVER, LONG):
            (edited,) = await running.told(una, "una", f"fact user: Una hides Zanzibar.\n{TEA}")
            firsts = await running.told(ivo, "ivo", *HISTORY)
            old = await running.told(ulf, "ulf", "fact user: Ulf hides Timbuktu.", "fact user: Ulf plays go.")
            await until(lambda: _reflected(running, 3), "nothing is under way")
            paid = Counter(model.asked)
            await messages.update_one({"_id": edited}, {"$set": {"content": TEA}})
            await messages.delete_many({"session_id": ivo})
            await until(lambda: _are(running, "una"), "the earlier text is forgotten")
            await until(lambda: _deleted(running, ivo, 2), "the deletions wait")
        assert model.asked == paid, "killed before the new text is formed"

        again = await running.write(ivo, "ivo", *HISTORY)
        async with running_until_killed(AT_ONCE, SHORT):
            await until(lambda: _are(running, "una", "Una likes tea."), "the new text is formed")
            await until(lambda: _reflected(running, 4), "nothing is under way")
            await running.shows(ivo, "ivo", "keeps bees", "owns a boat")
            assert await _firsts(running, again) == [encode_id(name) for name in firsts]
            assert {one: model.asked[one] for one in paid} == paid, "what was formed is not asked again"
            paid = Counter(model.asked)
            await messages.delete_many({"session_id": ivo})
            third = await running.write(ivo, "ivo", *HISTORY, "fact user: Ivo sails.")
            await messages.delete_one({"_id": old[0]})
            await until(lambda: _deleted(running, ulf, 1), "the deletion waits")
            await running.shows(ulf, "ulf", "plays go", without=["Timbuktu"])
        assert model.asked == paid

        async with running_until_killed(AT_ONCE, SHORT):
            await until(lambda: _are(running, "ulf", "Ulf plays go."), "what was not written again is erased")
            await running.form(ivo)
            wanted = ["Ivo keeps bees.", "Ivo owns a boat.", "Ivo sails."]
            await until(lambda: _are(running, "ivo", *wanted), "what was written again is remembered")
            assert await _firsts(running, third) == [*(encode_id(name) for name in firsts), None]
            await running.shows(ivo, "ivo", *wanted)
            for word, session, user in (("Zanzibar", una, "una"), ("Timbuktu", ulf, "ulf")):
                await until_erased(running, word.encode())
                assert word not in await _doors(running, session, user, word)
            assert await running.memory("windows").count_documents({"closed.because": "edited"}) == 1
            assert await running.facts("una") == ["Una likes tea."]
            assert await running.dead() == []
            assert {one: model.asked[one] for one in paid} == paid, "what was formed is not asked again"
            asked = [prompt for kind, prompt in model.asked if kind == "facts"]
            assert len(asked) == 5, "three first windows, one edit, one new message"


async def _are(running: System, user: str, *wanted: str) -> bool:
    return await running.facts(user) == list(wanted)


async def _reflected(running: System, windows: int) -> bool:
    """Whether all stages that ask about a window's conversation are done with so many windows."""
    done: Row = {"stage": "reflection-extraction"}
    return await running.memory("outcomes").count_documents(done) == windows


async def _deleted(running: System, session: str, wanted: int) -> bool:
    row: Row = await running.memory("sessions").find_one({"_id": encode_id(session)}) or {}
    return len(row.get("deletions") or ()) == wanted


async def _firsts(running: System, names: list[str]) -> list[str | None]:
    """The first id of each message that was written again."""
    ids = [encode_id(name) for name in names]
    rows: dict[str, Any] = {
        row["_id"]: row async for row in running.memory("messages").find({"_id": {"$in": ids}})
    }
    return [rows[name].get("alias_of") for name in ids]


async def _doors(running: System, session: str, user: str, word: str) -> str:
    """What the doors say of a word, without the question."""
    service = running.service
    found: list[object] = [
        await service.get_memory_context(session, user),
        await service.list_facts(session=session, user=user, active=None),
        [
            fact.content
            for fact in await service.search_facts([word], session=session, user=user, include_retired=True)
        ],
        [(one.content, one.because) for one in await service.why(word, user=user)],
    ]
    return str(found)
