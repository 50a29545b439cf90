"""`eden dead`, `eden pause` and `eden groups` as people use them."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from eden_memory.cli.main import app
from eden_memory.domain.outcome import StoredRecord
from eden_memory.runtime.dead.dead_letters import Cause, dead_letter
from eden_memory.runtime.stages.failures import Failure
from eden_memory.runtime.stages.records import Record
from tests.integration.runtime.harness import NOON, Bench, asked, make_topics

pytestmark = pytest.mark.servers
TOPIC = "memory.formations"


@pytest.fixture
def eden(kit: Bench, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command against this test's servers and names."""
    settings = kit.settings
    assert settings.mongodb.uri is not None
    monkeypatch.setenv("EDEN_MONGODB_URI", settings.mongodb.uri.get_secret_value())
    monkeypatch.setenv("EDEN_MONGODB_DATABASE", settings.mongodb.database)
    monkeypatch.setenv("EDEN_KAFKA_BOOTSTRAP", settings.kafka.bootstrap or "")
    monkeypatch.setenv("EDEN_KAFKA_TOPIC_PREFIX", settings.kafka.topic_prefix)
    monkeypatch.setenv("EDEN_KAFKA_GROUP_PREFIX", settings.kafka.group_prefix)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, arguments)

    return run


async def _letters(kit: Bench, stages: Sequence[str]) -> None:
    """A dead letter of each stage."""
    await make_topics(kit.client, kit.settings.kafka.topic_prefix, {f"{TOPIC}.dead": 1})
    records: list[StoredRecord] = []
    for number, stage in enumerate(stages):
        one = asked("s", number)
        topic = kit.settings.kafka.topic_prefix + TOPIC
        record = Record(topic, 2, number, one.key, one.value, one.headers, 0)
        cause = Cause(stage, f"group.{stage}", Failure.of(ValueError(f"bad {stage}")), 3, NOON)
        records.append(dead_letter(record, cause))
    await kit.publisher.publish(records)


def _rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


async def test_dead_letters_are_listed_shown_retried_and_dropped(kit: Bench, eden: Any) -> None:
    await _letters(kit, ["fact-extraction", "consolidation", "fact-extraction"])
    run = _threaded(eden)
    rows = _rows(await run("dead", "list", "--json"))
    assert [row["stage"] for row in rows] == ["fact-extraction", "consolidation", "fact-extraction"]
    table = (await run("dead", "list")).stdout
    assert all(row["id"] in table for row in rows), "ids can be copied however narrow the terminal"
    only = _rows(await run("dead", "list", "--json", "--stage", "consolidation", "--topic", TOPIC))
    assert [row["reason"] for row in only] == ["ValueError: bad consolidation"]
    assert not _rows(await run("dead", "list", "--json", "--since", "2026-01-03"))
    assert len(_rows(await run("dead", "list", "--json", "--reason", "BAD fact"))) == 2
    shown = json.loads((await run("dead", "show", only[0]["id"])).stdout)
    assert json.loads(shown["value"]) == {"session": "s", "number": 1}
    assert shown["headers"]["__connect.errors.offset"] == "1"

    asked_for = await run("dead", "retry", "--stage", "fact-extraction")
    assert "2 asked for" in asked_for.stdout
    assert "0 asked for" in (await run("dead", "retry", "--stage", "fact-extraction")).stdout
    assert {one.stage for one in await kit.controls.dead_retries()} == {"fact-extraction"}
    outcome = {
        "members": ["consolidation:s-1"],
        "dead": "bad",
        "records": [{"t": f"{kit.settings.kafka.topic_prefix}{TOPIC}.dead"}],
    }
    await kit.database.memory_outcomes.insert_one({"_id": "consolidation:s-1", **outcome})
    assert "1 dropped" in (await run("dead", "drop", only[0]["id"])).stdout
    (kept,) = await kit.database.memory_outcomes.find({}).to_list()
    assert kept["records"] == [], "a group that begins anew does not publish it again"
    assert len(_rows(await run("dead", "list", "--json"))) == 2
    assert len(_rows(await run("dead", "list", "--json", "--all"))) == 3


async def test_a_stage_is_paused_and_resumed(kit: Bench, eden: Any) -> None:
    run = _threaded(eden)
    assert (await run("pause", "fact-dedup", "--reason", "upgrade")).exit_code == 0
    (pause,) = await kit.controls.pauses()
    assert (pause.stage, pause.kind, pause.reason) == ("fact-dedup", "hand", "upgrade")
    assert "fact-dedup stands still (hand): upgrade" in (await run("status")).stdout
    assert "goes on" in (await run("resume", "fact-dedup")).stdout
    assert "stands still" not in (await run("status")).stdout
    assert "was not paused" in (await run("resume", "fact-dedup")).stdout
    for other in ("nothing", "tailer", "propagation"):
        unknown = await run("pause", other)
        assert unknown.exit_code != 0
        assert f"there is no stage {other}" in str(unknown.exception)
    assert not await kit.controls.pauses()


async def test_a_group_is_let_start_anew(kit: Bench, eden: Any) -> None:
    await kit.notes.note("g", [("in", 0)])
    assert (await _threaded(eden)("groups", "restart", "g", "--yes")).exit_code == 0
    assert not await kit.notes.committed("g")
    again = await _threaded(eden)("groups", "restart", "g", "--yes")
    assert "no group g has ever committed" in str(again.exception)


async def test_copies_of_one_letter_are_one(kit: Bench, eden: Any) -> None:
    await _letters(kit, ["fact-extraction", "consolidation"])
    await kit.publisher.publish(await _stored(kit))
    run = _threaded(eden)
    assert [row["stage"] for row in _rows(await run("dead", "list", "--json"))] == [
        "fact-extraction",
        "consolidation",
    ]
    assert "2 asked for" in (await run("dead", "retry", "--yes")).stdout


async def _stored(kit: Bench) -> list[StoredRecord]:
    """All that stands among the dead letters, as after a crash to be published once more."""
    letters = await kit.read(f"{kit.settings.kafka.topic_prefix}{TOPIC}.dead", 2)
    return [StoredRecord(one.topic, b"s", one.key, one.value, one.headers) for one in letters]


async def test_a_letter_that_died_again_is_not_tried_beside_the_one_it_left(kit: Bench, eden: Any) -> None:
    await _letters(kit, ["fact-extraction", "fact-extraction"])
    run = _threaded(eden)
    first, second = [row["id"] for row in _rows(await run("dead", "list", "--json"))]
    assert "1 asked for" in (await run("dead", "retry", first)).stdout
    (asked_for,) = await kit.controls.dead_retries()
    await kit.controls.dead_retry_done(asked_for, "dead again")
    assert [row["id"] for row in _rows(await run("dead", "list", "--json"))] == [second]
    assert "1 asked for" in (await run("dead", "retry", "--stage", "fact-extraction")).stdout
    assert [one.id for one in await kit.controls.dead_retries()] == [second]
    unknown = await run("dead", "list", "--stage", "nothing")
    assert "there is no stage nothing" in str(unknown.exception)


def _threaded(eden: Any) -> Any:
    """The commands run event loops of their own, so in a thread."""

    async def run(*arguments: str) -> Result:
        return await asyncio.to_thread(eden, *arguments)

    return run
