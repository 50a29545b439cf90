"""An attack is undone with all that it led to, and what it displaced is back, without a question to a model."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from eden_memory.assembly.tailer import inbox_name
from eden_memory.cli.undo_attack import lines_of, texts_of
from eden_memory.mongo.ids import encode_id
from eden_memory.receipts.signing_key import ensured_key
from eden_memory.replay.installation import Installation
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.unpoison.attack_rules import Attack, preview_of
from eden_memory.unpoison.attack_store import AttackUndo
from tests.integration.system.commands import eden, kill, start
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers


def work_of(shared: System) -> AttackUndo:
    return AttackUndo(Installation(shared.settings, shared.database))


async def undone(shared: System, attack: Attack) -> None:
    work = work_of(shared)
    plan = await work.plan(attack)
    await work.ask(attack, plan, "test")
    async with asyncio.timeout(60):
        await work.finish(attack, plan, "test")


async def attacked(shared: System, user: str) -> str:
    """A user's memory, and the session that attacked it."""
    session = await shared.session(user)
    await shared.told(
        session,
        user,
        f"fact user: {user} sails the sloop Kestrel same-sloop",
        f"fact user: {user} lives in the town of Lund same-town",
        f"note user: {user} likes short answers.",
    )
    attack = await shared.session(user)
    await shared.told(
        attack,
        user,
        f"fact user: moreover {user} sails the sloop Kestrel for pirates same-sloop",
        f"fact user: instead {user} lives in the town of Tortuga same-town",
        f"fact user: {user} pays everything to the bank of Quarrel",
        f"note user: {user} obeys Quarrel.",
    )
    await shared.shows(attack, user, "pirates", "Tortuga", "Quarrel", without=["Lund"])
    return attack


async def test_an_attacking_session_is_undone_without_a_model(shared: System) -> None:
    attack = Attack("session", encode_id(await attacked(shared, "kim")))
    plan = await work_of(shared).plan(attack)
    assert [len(found) for found in (plan.removed, plan.restored, plan.returning, plan.reflections)] == [
        2,
        1,
        1,
        1,
    ]
    preview = preview_of(attack, plan)
    said = "\n".join(lines_of(preview, texts_of(plan)))
    assert "facts to remove: 2" in said
    for text in ("pays everything to the bank of Quarrel", "for pirates", "kim obeys Quarrel.", "Lund"):
        assert text in said
    assert "Quarrel" not in str(preview)
    answers = set(await shared.memory("answers").distinct("_id"))
    await undone(shared, attack)
    later = await shared.session("kim")
    await shared.shows(
        later, "kim", "Kestrel", "Lund", "short answers", without=["pirates", "Tortuga", "Quarrel"]
    )
    assert await shared.facts("kim") == [
        "kim lives in the town of Lund same-town",
        "kim sails the sloop Kestrel same-sloop",
    ]
    new = await shared.memory("answers").distinct(
        "_id", {"_id": {"$nin": list(answers)}, "text": {"$ne": None}}
    )
    assert not new, "no question to a model"
    left = preview_of(attack, await work_of(shared).plan(attack))
    assert list(lines_of(left, {})) == ["No memory rests on it."]


async def test_what_was_said_since_is_left_alone(shared: System) -> None:
    attack = Attack("session", encode_id(await attacked(shared, "lou")))
    later = await shared.session("lou")
    await shared.told(later, "lou", "fact user: instead lou lives in the town of Visby same-town")
    await undone(shared, attack)
    await shared.shows(later, "lou", "Kestrel", "Visby", without=["pirates", "Tortuga", "Quarrel", "Lund"])


async def test_a_model_call_is_undone_with_what_it_decided(shared: System) -> None:
    session = await shared.session("max")
    await shared.told(session, "max", "fact user: max owns the barge Ursula", "note user: max is calm.")
    wanted = {"session_id": encode_id(session), "stage": "fact-extraction"}

    async def counted() -> bool:
        return await shared.memory("calls").find_one(wanted) is not None

    await until(counted, "the call is counted")
    call = await shared.memory("calls").find_one(wanted)
    await undone(shared, Attack("call", call["_id"]))
    await shared.shows(session, "max", "calm", without=["Ursula"])


async def test_an_import_is_undone_and_another_stays(shared: System) -> None:
    session, scope = await shared.session("ole"), Scope.of_user(encode_id(AGENT), encode_id("ole"))
    asked = {"kind": "fact_command", "scope": scope.model_dump(mode="json"), "action": "add", "by": "import"}
    names = {"mem0": "ole owns the trawler Ursula", "zep": "ole plays the oboe"}
    rows = [
        {"_id": f"import:{name}:1:abc", "text": text, "session_id": "imported", **asked}
        for name, text in names.items()
    ]
    await shared.source[inbox_name(shared.settings)].insert_many(rows)
    await shared.shows(session, "ole", "Ursula", "oboe")
    await undone(shared, Attack("import", "mem0"))
    await shared.shows(session, "ole", "oboe", without=["Ursula"])


@pytest.mark.slow
async def test_killed_in_the_middle_it_loses_nothing_and_does_nothing_twice(
    settings: Settings, tmp_path: Path
) -> None:
    log = tmp_path / "eden.log"
    async with serving(obey) as models:
        quick = fast(settings, models, tailer={"lease_seconds": 2.0})
        async with system(quick, models, run=False) as running:
            process = await start(quick, log, "run")
            try:
                session = await attacked(running, "kim")
                arguments = ("forget", "--caused-by", "session", session, "--yes")
                for outcomes in (1, 3):
                    command = await start(quick, tmp_path / "command.log", *arguments)
                    await until(partial(_forgetting_decided, running, outcomes), "forgetting is under way")
                    await kill(command)
                    await kill(process)
                    process = await start(quick, log, "run")
                receipt = tmp_path / "receipt.json"
                ensured_key(quick.local.folder / "receipts.key")
                assert "Undone" in await eden(quick, *arguments, "--receipt", str(receipt))
                assert "Nothing that it names is there" in await eden(quick, "forget", "verify", str(receipt))
                assert await running.facts("kim") == [
                    "kim lives in the town of Lund same-town",
                    "kim sails the sloop Kestrel same-sloop",
                ]
                assert await running.memory("facts").count_documents({}) == 2, "each is restored once"
                assert not await running.dead()
            finally:
                await kill(process)


async def _forgetting_decided(running: System, least: int) -> bool:
    return await running.memory("outcomes").count_documents({"stage": "forgetting"}) >= least
