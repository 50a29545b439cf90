"""`eden dead`, `eden pause` and `eden groups` as people use them."""

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from typer.testing import CliRunner, Result

from eden_memory.cli.main import app
from eden_memory.errors import EdenError
from eden_memory.kafka import outgoing as source_records
from eden_memory.kafka.record import Record
from eden_memory.kafka.topics import load_topics
from eden_memory.stages.dead_letters import DeathCause, dead_letter
from eden_memory.stages.failure_decisions import Failure
from eden_memory.stages.outcome import StoredRecord
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
    make_topics,
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
    await make_topics(kit.client, kit.settings.kafka.topic_prefix, {f"{TOPIC}.dead": 1})
    records: list[StoredRecord] = []
    for number, name in enumerate(stages):
        one = asked("s", number)
        topic = kit.settings.kafka.topic_prefix + TOPIC
        record = Record(topic, 2, number, one.key, one.value, one.headers, 0)
        cause = DeathCause(name, f"group.{name}", Failure.of(EdenError(f"bad {name}")), 3, NOON)
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
    lines = [[row["stage"] in line and row["id"] in line for line in table.splitlines()] for row in rows]
    assert all(map(any, lines)), "piped, a dead letter is one line"
    only = _rows(await run("dead", "list", "--json", "--stage", "consolidation", "--topic", TOPIC))
    assert [row["reason"] for row in only] == ["EdenError: bad consolidation"]
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


async def test_listing_reads_no_empty_topic_and_showing_reads_one_record(
    kit: Bench, eden: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = {
        topic.name.removeprefix(kit.settings.kafka.topic_prefix): 2
        for topic in load_topics(kit.settings.kafka)
        if topic.dead_of
    }
    await make_topics(kit.client, kit.settings.kafka.topic_prefix, dead)
    requests = Requests(monkeypatch)
    run = _threaded(eden)
    assert "no dead letters" in (await run("dead", "list")).stdout
    assert (len(dead) >= 10, requests.offsets, requests.fetched) == (True, 2, [])
    await _letters(kit, ["fact-extraction"] * 30)
    rows = _rows(await run("dead", "list", "--json"))
    assert (len(rows), requests.offsets, sum(requests.fetched)) == (30, 4, 30)
    requests.fetched.clear()
    assert json.loads((await run("dead", "show", rows[17]["id"])).stdout)["id"] == rows[17]["id"]
    assert requests.fetched == [1]
    topic = rows[0]["id"].partition("/")[0]
    for name in (f"{topic}/0@30", f"{topic}/9@0", "other/0@0", "nothing"):
        missing = await run("dead", "show", name)
        assert f"there is no dead letter {name}" in str(missing.exception)


async def test_reading_many_dead_letters_says_how_far_it_is(
    kit: Bench, eden: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eden_memory.cli.dead.REPORTED", 10)
    await _letters(kit, ["fact-extraction"] * 25)
    listed = await _threaded(eden)("dead", "list", "--json")
    assert len(listed.stdout.splitlines()) == 25
    assert listed.stderr.splitlines() == ["10 of 25 dead letters read", "20 of 25 dead letters read"]


class Requests:
    """Counts what consumers ask a broker for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offsets = 0
        self.fetched: list[int] = []
        kafka: Any = AIOKafkaConsumer
        offsets = {name: getattr(kafka, name) for name in ("beginning_offsets", "end_offsets")}
        getmany = kafka.getmany

        async def fetch(consumer: Any, *partitions: Any, **options: Any) -> Any:
            batches = await getmany(consumer, *partitions, **options)
            self.fetched.append(sum(map(len, batches.values())))
            return batches

        def counting(ask: Any) -> Any:
            async def asked_offsets(consumer: Any, partitions: Any) -> Any:
                self.offsets += 1
                return await ask(consumer, partitions)

            return asked_offsets

        for name, ask in offsets.items():
            monkeypatch.setattr(AIOKafkaConsumer, name, counting(ask))
        monkeypatch.setattr(AIOKafkaConsumer, "getmany", fetch)


async def test_an_event_that_the_broker_refused_is_published_once_it_takes_it(kit: Bench, eden: Any) -> None:
    async def long(deliveries: Sequence[Delivery]) -> list[Emitted]:
        return [answered(one, LONG) for one in deliveries]

    run, topic = _threaded(eden), kit.topic(Answered)
    limit(kit.settings, topic, 20_000)
    await kit.put([asked("s0", 0)])
    async with running(Worker(stage(long), kit.around())):
        (letter,) = await kit.read(topic + ".dead", 1)
        await until(lambda: gives(kit.committed(), 1), "everything is committed")
    refused = replace(_as_stored(letter), topic=f"{kit.settings.kafka.topic_prefix}{TOPIC}.dead")
    await make_topics(kit.client, kit.settings.kafka.topic_prefix, {f"{TOPIC}.dead": 1})
    await kit.publisher.publish([refused])
    (row,) = _rows(await run("dead", "list", "--json"))
    still = await run("dead", "retry", row["id"])
    assert isinstance(still.exception, EdenError)
    assert "still takes no event" in still.exception.what
    limit(kit.settings, topic, 1_000_000)
    said = await run("dead", "retry", row["id"])
    assert "1 published" in said.stdout
    (event,) = await kit.read(topic, 1)
    assert LONG.encode() in (event.value or b"")
    assert not [name for name, _ in event.headers if name.startswith("__connect")]
    assert not _rows(await run("dead", "list", "--json"))
    assert await kit.controls.dead_retries() == []


async def test_a_dead_letter_of_the_tailer_says_what_to_do_instead(kit: Bench, eden: Any) -> None:
    written = source_records.Outgoing("chat.messages", b"i.1", b"{}", [("ce_id", b"i.1@1")], b"i.1")
    record = source_records.refused(written, NOON)
    prefix = kit.settings.kafka.topic_prefix
    await make_topics(kit.client, prefix, {"chat.messages.dead": 1})
    headers = tuple(record.headers)
    letter = StoredRecord(prefix + record.topic, record.ordering_key, record.key, record.value, headers)
    await kit.publisher.publish([letter])
    said = await _threaded(eden)("dead", "retry", "--yes")
    assert "change the document" in said.output
    assert "0 asked for" in said.output


def _as_stored(letter: Any) -> StoredRecord:
    return StoredRecord(letter.topic, b"s0", letter.key, letter.value, tuple(letter.headers))
