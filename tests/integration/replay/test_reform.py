"""Memory formed anew beside live memory: what is paid, what differs, what goes on."""

import io
import json
from collections.abc import AsyncGenerator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from eden_memory.assembly import handlers
from eden_memory.assembly.stage_parts import stage_parts
from eden_memory.cli.replay.reform import reformed
from eden_memory.errors import EdenError
from eden_memory.evals.dataset import EvalLine, eval_set
from eden_memory.kafka.topics import load_topics
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.replay.reform.namespace_reform import ReformRequest
from eden_memory.replay.reform.reform_assembly import LIVE, STAGES
from eden_memory.replay.reform.reform_store import MongoReforms
from eden_memory.settings import Settings
from tests.integration.replay.reform_kit import (
    LOUDLY,
    Priced,
    calls,
    expected,
    live_through,
    loud,
    memory,
    placed,
    quiet,
    reform,
)
from tests.integration.stages_on_servers import running
from tests.integration.system.commands import kill, start
from tests.integration.system.conftest import shared_settings as shared_settings  # noqa: PLC0414
from tests.integration.system.running_system import System, fast, system, until
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
CAP = Decimal("0.004")
USERS, WINDOWS = ("ana", "bob"), 4


@pytest.fixture(scope="module")
async def lived(shared_settings: Settings) -> AsyncGenerator[System]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handlers, "Prices", Priced)
        async with serving(loud) as models, system(fast(shared_settings, models), models) as running:
            await live_through(running, USERS, WINDOWS)
            yield running


async def test_unchanged_settings_one_window_at_a_time_cost_nothing_and_change_nothing(lived: System) -> None:
    await reform(lived.settings, "same", at_once=2)
    paid_side_by_side = await calls(lived.database, lived.settings, "same")
    for name in await lived.database.list_collection_names(filter={"name": {"$regex": "^memory_ns_"}}):
        await lived.database.drop_collection(name)
    for name in ("namespaces", "reforms"):
        await lived.memory(name).drop()  # lost; its topics and groups are in Kafka still
    ended, said = await reform(lived.settings, "same", at_once=1)
    assert ended == "formed", said
    assert await calls(lived.database, lived.settings, "same") == paid_side_by_side
    before = await memory(lived.database, lived.settings)
    assert await memory(lived.database, placed(lived.settings, "same")) == before
    assert len(before["facts"]) >= len(USERS) * WINDOWS
    assert before["blobs"]
    found = await MongoReforms(lived.database, "memory_").get("same")
    assert found is not None
    assert (found.state, found.formed, found.paid) == ("caught_up", len(USERS) * WINDOWS, 0)
    assert found.reused > 2 * found.formed
    assert expected(said) == 0


@pytest.mark.slow
async def test_sessions_side_by_side_pay_for_no_extraction_again_and_the_share_kept_is_shown(
    lived: System,
) -> None:
    ended, said = await reform(lived.settings, "beside", at_once=len(USERS) * 2)
    assert ended == "formed", said
    paid = await calls(lived.database, lived.settings, "beside")
    assert not [one for one in paid if one["stage"] == "fact-extraction"]
    found = await MongoReforms(lived.database, "memory_").get("beside")
    assert found is not None
    assert found.reused >= found.formed
    assert f"{found.reused / (found.paid + found.reused):.0%} of" in said


@pytest.mark.slow
async def test_a_changed_prompt_differs_and_costs_about_what_was_expected(
    lived: System, tmp_path: Path
) -> None:
    streams = tmp_path / "streams.json"
    row = {"_id": "s.helper/user", "agent_id": "s.helper", "scope": "user", "extraction_guidance": LOUDLY}
    streams.write_text(json.dumps([row]))
    ended, said = await reform(lived.settings, "loud", streams=streams, at_once=1)
    assert ended == "formed", said
    rows = await memory(lived.database, placed(lived.settings, "loud"))
    texts = {row["content"] for row in rows["facts"].values()}
    assert {f"ANA HAS PLANTED TREE NUMBER {one}." for one in range(WINDOWS)} <= texts
    paid = await calls(lived.database, lived.settings, "loud")
    spent = spent_of(paid)
    assert abs(expected(said) - spent) <= spent / 5, (said, spent)
    assert (
        not {row["content"] for row in (await memory(lived.database, lived.settings))["facts"].values()}
        & texts
    )


@pytest.mark.slow
async def test_questions_say_that_a_memory_is_worse_before_it_is_switched_to(lived: System) -> None:
    of = {"conversation": "helper"}
    lines: list[dict[str, Any]] = []
    for number in range(WINDOWS):
        told = await lived.database["messages"].find_one(
            {"content": f"fact user: ana keeps same-hive{number % 2} number {number} moreover."}
        )
        assert told is not None
        text = f"Which same-hive{number % 2} number {number} is kept by ana?"
        asked = {
            "text": text,
            "user": "ana",
            "evidence": [str(told["_id"])],
            "answers": [f"number {number} moreover"],
        }
        lines.append({**of, "kind": "question", "id": f"q{number}", **asked})
    keeps = {"scope": "user:ana", "says": "Ana keeps a hive.", "mentions": [["same-hive"]]}
    lines.append({**of, "kind": "expected", "id": "hive", **keeps})
    questions = eval_set("own", [EvalLine.model_validate(line) for line in lines])
    said = io.StringIO()
    console, request = Console(file=said, width=200), ReformRequest(overrides=("limits.facts=1",), at_once=2)
    assert (
        await reformed(lived.settings, "fewer", request, console, yes=True, questions=questions) == "formed"
    )
    assert "it is worse: " in said.getvalue(), said.getvalue()
    assert "retrieval (R@10): -" in said.getvalue()
    assert "extraction: -1.000" in said.getvalue()


@pytest.mark.slow
async def test_a_users_windows_alone_are_cut_anew_and_hold_every_message_once(lived: System) -> None:
    two = ("windows.messages=2", "windows.least=2")
    ended, said = await reform(lived.settings, "anew", user="ana", rewindow=True, overrides=two)
    assert ended == "formed", said
    windows = await lived.database["memory_ns_anew_windows"].find().to_list()
    members = [one["message_id"] for row in windows for one in row["messages"]]
    assert len(members) == len(set(members)) == len(USERS) * WINDOWS * 4
    assert {len(row["messages"]) for row in windows} == {2}
    rows = await memory(lived.database, placed(lived.settings, "anew"))
    assert {row["user_id"] for row in rows["facts"].values()} == {"s.ana"}
    assert len({row["content"] for row in rows["facts"].values()}) > WINDOWS
    with pytest.raises(EdenError, match="began with other options"):
        await reform(lived.settings, "anew", user="bob")
    with pytest.raises(EdenError, match="nothing but what was formed"):
        await reform(lived.settings, "anew", switch=True)


async def test_at_the_cap_it_pauses_and_a_higher_one_goes_on(lived: System) -> None:
    other = ("models.fast=another-model",)
    ended, said = await reform(lived.settings, "capped", overrides=other, cap=CAP, at_once=2)
    whole = expected(said)
    assert ended == "capped", said
    paid = await calls(lived.database, lived.settings, "capped")
    assert 0 < spent_of(paid) <= 2 * CAP, "but for what was in progress"
    found = await MongoReforms(lived.database, "memory_").get("capped")
    assert found is not None
    assert (found.state, 0 < found.formed < len(USERS) * WINDOWS) == ("paused", True)
    with pytest.raises(EdenError, match="cap was"):
        await reform(lived.settings, "capped", cap=Decimal("0.001"))
    ended, said = await reform(lived.settings, "capped", cap=2 * whole)
    assert ended == "formed", said
    paid = await calls(lived.database, lived.settings, "capped")
    assert spent_of(paid) <= whole
    assert len({one["_id"] for one in paid}) == len(paid)
    again = [(one["stage"], one["formation_id"]) for one in paid if one["stage"] == "fact-extraction"]
    assert sorted(set(again)) == sorted(again)
    assert len(again) == len(USERS) * WINDOWS


@pytest.mark.slow
async def test_killed_and_continued_it_pays_only_what_was_in_flight_again(
    lived: System, tmp_path: Path
) -> None:
    before = {name: prompt.answered for name, prompt in lived.models.tally.prompts.items()}
    command = ("reform", "killed", "--set", "models.fast=a-third-model", "--at-once", "2", "--yes")
    log = tmp_path / "log"
    process = await start(lived.settings, log, *command)
    await until(lambda: more_than(lived, "killed", 3), "windows of the command")
    await kill(process)
    ended, said = await reform(lived.settings, "killed")
    assert (ended, f"{len(USERS) * WINDOWS} windows formed" in said) == ("formed", True), said
    rows = await memory(lived.database, placed(lived.settings, "killed"))
    texts = sorted(row["content"] for row in rows["facts"].values() if row["active"])
    live = await memory(lived.database, lived.settings)
    assert texts == sorted(row["content"] for row in live["facts"].values() if row["active"])
    prompts = lived.models.tally.prompts.items()
    assert sum(prompt.answered - before.get(name, 0) > 1 for name, prompt in prompts) <= 2 * 3


async def test_windows_that_live_formation_has_under_way_are_seen(lived: System) -> None:
    topics = load_topics(lived.settings.kafka)
    async with GroupProgress(lived.client, {topics.group(one): topics.read_by(one) for one in LIVE}) as look:
        behind, before = await look.standing()
        assert (behind, before > 0) == (0, True)
        session = await lived.session("ana")
        await lived.write(session, "ana", "fact user: ana is at it just now.")
        await lived.form(session)
        await until(lambda: works(look), "work of live formation")
        await look.until_quiet()
        assert (await look.standing())[0] == 0
        assert (await look.standing())[1] > before


async def test_what_is_refused_leaves_nothing_behind(lived: System) -> None:
    for wrong, said in (
        ("memory.simlar=0.8", "cannot be set"),
        ("kafka.bootstrap=x", "cannot be set"),
        ("memory.similar=high", "cannot be set so"),
        ("windows.messages=20", "--rewindow"),
        ("memory.shared_sessions=authors", "--rewindow"),
        ("memory.context_facts=5", "no reform is needed"),
    ):
        with pytest.raises(EdenError, match=said):
            await reform(lived.settings, "wrong", overrides=(wrong,))
    there = await lived.database.list_collection_names()
    assert not [name for name in there if "wrong" in name]
    assert await MongoReforms(lived.database, "memory_").get("wrong") is None


async def test_what_is_forgotten_leaves_both_memories_and_each_its_own_blobs(lived: System) -> None:
    """The reform of the first test; its derived marks are not live memory's."""
    source = await lived.source["messages"].find_one({"content": "fact user: bob has planted tree number 0."})
    assert source is not None  # a fact that rests on other messages too would stay
    gone = f"s.{source['_id']}"
    own = lived.database["memory_ns_same_forgotten"]
    both = lived.settings, placed(lived.settings, "same")
    assert [await naming(lived, one, gone) for one in both] == [1, 1]
    await lived.forget("message", source["_id"])
    await until(lambda: counted(lived.memory("forgotten"), {"kind": "message"}, 1), "forgotten")
    await quiet(lived)
    ended, said = await reform(lived.settings, "same", at_once=1)
    assert ended == "formed", said
    assert await own.count_documents({"kind": "message"}) == 1
    assert [await naming(lived, one, gone) for one in both] == [0, 0]
    derived = [one async for one in lived.memory("forgotten").find({"kind": {"$ne": "message"}})]
    assert derived
    assert not [one for one in derived if one["target"].startswith("ns@")]


async def test_after_a_kill_and_the_switch_chat_is_formed_on_exactly_once(
    lived: System, tmp_path: Path
) -> None:
    waiting = await lived.session("cleo")
    await lived.write(waiting, "cleo", "fact user: cleo waits for a window.")
    process = await start(lived.settings, tmp_path / "log", "reform", "next", "--at-once", "1", "--yes")
    await until(lambda: more_than(lived, "next", 1), "a window of the command")
    assert process.returncode is None
    await kill(process)
    ended, said = await reform(lived.settings, "next")
    assert ended == "formed", said
    meanwhile = await lived.session("cleo")
    await lived.told(meanwhile, "cleo", "fact user: cleo came meanwhile.", "note user: cleo hurries.")
    ended, said = await reform(lived.settings, "next", switch=True)
    assert ended == "switched", said
    await lived.form(waiting)
    settings = placed(lived.settings, "next")
    async with stage_parts(settings, STAGES) as parts, running(parts):
        later = await lived.session("cleo")
        await lived.write(later, "cleo", "fact user: cleo came later.")
        await lived.form(later)
        facts = lived.database[settings.names["facts"]]
        await until(lambda: counted(facts, {"user_id": "s.cleo"}, 3), "facts of cleo")
    texts = sorted([row["content"] async for row in facts.find({"user_id": "s.cleo"})])
    assert texts == ["cleo came later.", "cleo came meanwhile.", "cleo waits for a window."]
    windows = await lived.database[settings.names["windows"]].find().to_list()
    members = [one["message_id"] for row in windows for one in row["messages"]]
    assert len(members) == len(set(members)) == await lived.source["messages"].count_documents({})


async def works(look: GroupProgress) -> bool:
    """Whether live formation has anything to do."""
    return (await look.standing())[0] > 0


async def more_than(system: System, name: str, least: int) -> bool:
    """Whether a reform has found the facts of so many windows."""
    outcomes = system.database[f"memory_ns_{name}_outcomes"]
    return await outcomes.count_documents({"stage": "fact-extraction"}) >= least


async def naming(system: System, settings: Settings, message: str) -> int:
    """How many facts of a memory name a message as their source."""
    return await system.database[settings.names["facts"]].count_documents({"message_ids": message})


async def counted(collection: Any, query: dict[str, Any], least: int) -> bool:
    """Whether there are so many."""
    return await collection.count_documents(query) >= least


def spent_of(paid: list[dict[str, Any]]) -> Decimal:
    """US dollars."""
    return sum((one["cost_usd"].to_decimal() for one in paid), Decimal(0))
