"""`eden dead`, `eden pause` and `eden groups` as people use them."""

import asyncio
import json
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from eden_memory.cli.main import app
from eden_memory.errors import EdenError
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.kafka.record import Outgoing, Record
from eden_memory.schemas.documents import DeadLetter
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.dead_letters import Origin, dead_letter, refused_letter
from eden_memory.stages.failure_decisions import Failure, given_up
from eden_memory.stages.stage import Delivery, Emitted
from eden_memory.stages.worker import Worker
from tests.awaiting import gives
from tests.integration.kafka_limits import limit
from tests.integration.stages.harness import (
    NOON,
    Answered,
    Bench,
    answered,
    asked,
    running,
    stage,
    until,
)

pytestmark = pytest.mark.servers
TOPIC = "memory.formations"
LONG = os.urandom(60_000).hex()


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
    letters: list[DeadLetter] = []
    for number, name in enumerate(stages):
        one = asked("s", number)
        topic = kit.settings.kafka.topic_prefix + TOPIC
        record = Record(topic, 2, number, one.key, one.value, one.headers, 0)
        why = given_up(
            f"s-{number}", Failure.of(EdenError(f"bad {name}")), 3, NOON + timedelta(seconds=number)
        )
        letters.append(dead_letter(record, why, kit.letters.origin(name)))
    await kit.letters.put(letters)


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
    lines = [[row["stage"] in line and row["id"] in line for line in table.splitlines()] for row in rows]
    assert all(map(any, lines)), "piped, a dead letter is one line"
    only = _rows(await run("dead", "list", "--json", "--stage", "consolidation", "--topic", TOPIC))
    assert [row["reason"] for row in only] == ["EdenError: bad consolidation"]
    assert not _rows(await run("dead", "list", "--json", "--since", "2026-01-03"))
    assert len(_rows(await run("dead", "list", "--json", "--reason", "BAD fact"))) == 2
    shown = json.loads((await run("dead", "show", only[0]["id"])).stdout)
    assert json.loads(shown["value"]) == {"session": "s", "number": 1}
    assert (shown["offset"], shown["attempts"], shown["headers"]["ce_id"]) == (1, 3, "s-1")

    asked_for = await run("dead", "retry", "--stage", "fact-extraction")
    assert "2 asked for" in asked_for.stdout
    assert "0 asked for" in (await run("dead", "retry", "--stage", "fact-extraction")).stdout
    assert len(await kit.letters.asked("fact-extraction")) == 2
    assert "1 dropped" in (await run("dead", "drop", only[0]["id"])).stdout
    dropped = json.loads((await run("dead", "show", only[0]["id"])).stdout)
    assert (dropped["state"], dropped["value"]) == ("dropped", None)
    await _letters(kit, ["fact-extraction", "consolidation", "fact-extraction"])  # as a redelivery does
    assert len(_rows(await run("dead", "list", "--json"))) == 2
    assert len(_rows(await run("dead", "list", "--json", "--all"))) == 3


async def test_a_list_of_many_dead_letters_shows_as_many_as_asked_for(kit: Bench, eden: Any) -> None:
    await _letters(kit, ["fact-extraction"] * 60)
    run = _threaded(eden)
    shown = await run("dead", "list")
    assert shown.stdout.count("bad fact-extraction") == 50
    assert "10 more, given up later: --limit 60 shows them all" in shown.stderr
    whole = await run("dead", "list", "--limit", "60")
    assert whole.stdout.count("bad fact-extraction") == 60
    assert not whole.stderr
    assert len(_rows(await run("dead", "list", "--json"))) == 60


async def test_a_stage_is_paused_and_resumed(kit: Bench, eden: Any) -> None:
    run = _threaded(eden)
    assert (await run("pause", "fact-dedup", "--reason", "upgrade")).exit_code == 0
    (pause,) = await kit.controls.pauses()
    assert (pause.stage, pause.kind, pause.reason) == ("fact-dedup", "hand", "upgrade")
    assert "fact-dedup stands still (hand): upgrade" in (await run("status")).stdout
    assert "goes on" in (await run("resume", "fact-dedup")).stdout
    said = (await run("status")).stdout
    assert "stands still" not in said
    assert "waiting to be formed: nothing" in said
    await kit.controls.report("fact-dedup", "goes on, but 1 of its records waits: 500")
    assert "fact-dedup goes on, but 1 of its records waits: 500" in (await run("status")).stdout
    await kit.controls.report("fact-dedup", None)
    assert "goes on, but" not in (await run("status")).stdout
    assert "was not paused" in (await run("resume", "fact-dedup")).stdout
    for other in ("nothing", "tailer"):
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


def _threaded(eden: Any) -> Any:
    """The commands run event loops of their own, so in a thread."""

    async def run(*arguments: str) -> Result:
        return await asyncio.to_thread(eden, *arguments)

    return run


async def test_names_that_nothing_has_are_refused(kit: Bench, eden: Any) -> None:
    await _letters(kit, ["fact-extraction"])
    run = _threaded(eden)
    for arguments, what in (
        (("show", "nothing"), "there is no dead letter nothing"),
        (("retry", "nothing"), "unknown or settled: nothing"),
        (("list", "--stage", "nothing"), "there is no stage nothing"),
        (("list", "--topic", "nothing"), "there is no topic nothing"),
    ):
        assert what in str((await run("dead", *arguments)).exception)


async def test_an_event_that_the_broker_refused_is_published_once_it_takes_it(kit: Bench, eden: Any) -> None:
    async def long(deliveries: Sequence[Delivery]) -> list[Emitted]:
        return [answered(one, LONG) for one in deliveries]

    run, topic = _threaded(eden), kit.topic(Answered)
    limit(kit.settings, topic, 20_000)
    await kit.put([asked("s0", 0)])
    letters = ByTheDedup(kit.database, kit.settings.names, MongoForgetting(kit.database, kit.settings.names))
    async with running(Worker(stage(long), kit.around(letters=letters))):
        await kit.dead(1)
        await until(lambda: gives(kit.committed(), 1), "everything is committed")
    (row,) = _rows(await run("dead", "list", "--json"))
    still = await run("dead", "retry", row["id"])
    assert isinstance(still.exception, EdenError)
    assert "still takes no event" in still.exception.what
    limit(kit.settings, topic, 1_000_000)
    said = await run("dead", "retry", row["id"])
    assert "1 published" in said.stdout
    (event,) = await kit.read(topic, 1)
    assert LONG.encode() in (event.value or b"")
    assert not _rows(await run("dead", "list", "--json"))


class ByTheDedup(DeadLetters):
    """Letters of a test's stage under the name of one that topics.yaml knows."""

    def origin(self, stage: str) -> Origin:
        del stage
        return super().origin("fact-dedup")


async def test_a_record_that_the_tailer_could_not_publish_says_what_to_do_instead(
    kit: Bench, eden: Any
) -> None:
    written = Outgoing("chat.messages", b"i.1", b'{"text": "long"}', [("ce_id", b"i.1@1")], b"i.1")
    topic = kit.settings.kafka.topic_prefix + "chat.messages"
    await kit.letters.put([refused_letter(kit.letters.origin("tailer"), topic, written, NOON)])
    assert (await kit.dead(1))[0].value is None, "it is read again from its document"
    said = await _threaded(eden)("dead", "retry", "--yes")
    assert "change the document" in said.output
    assert "0 asked for" in said.output
