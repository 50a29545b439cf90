"""One active tailer among many: takeover, fencing, stopping, servers that freeze, what a start needs."""

import asyncio
import os
import signal
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from pydantic import SecretStr

from eden_memory.kafka.connection import admin_config
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.local.local_kafka import LocalKafka
from eden_memory.local.mongo import LocalMongo
from eden_memory.settings import MongoSettings, Settings
from tests.integration.source.harness import Kit, TailerProcess, kit, message, tailer_process, until
from tests.room import room

pytestmark = pytest.mark.servers
TAKEOVER, STOP = 10.0, 5.0
NUMBERED = ["text 1", "text 2", "text 3"]


async def leads(tailer: TailerProcess) -> None:
    await tailer.until_said('"event": "leads"')


async def test_one_leads_and_the_other_takes_over_when_it_is_killed(app: Kit, tmp_path: Path) -> None:
    usual = app.with_tailer(lease_seconds=6.0)
    async with tailer_process(usual, tmp_path / "a") as first, app.topic() as topic:
        await leads(first)
        async with tailer_process(usual, tmp_path / "b") as second:
            await second.until_said("stands by")
            await app.following()
            for number in range(20):
                await app.insert(number)
            await topic.until(lambda: len(topic.records) == 20, "the first leader's records")
            await app.insert(20)
            first.signal(signal.SIGKILL)
            began = time.monotonic()
            await app.insert(21)
            await topic.until(lambda: "text 21" in topic.texts, "the second leader's record", 90)
            assert time.monotonic() - began <= TAKEOVER * room()
            assert '"event": "leads"' in second.said
            assert set(topic.texts) == {f"text {number}" for number in range(22)}


@pytest.mark.slow
async def test_a_clean_stop_hands_over_at_once(app: Kit, tmp_path: Path) -> None:
    slow = app.with_tailer(lease_seconds=120.0)
    async with tailer_process(slow, tmp_path / "a") as first, app.topic() as topic:
        await leads(first)
        async with tailer_process(slow, tmp_path / "b"):
            await app.following()
            await app.insert(1)
            await topic.until(lambda: topic.texts == ["text 1"], "the first leader's record")
            began = time.monotonic()
            first.signal(signal.SIGTERM)
            assert await first.ended() == 0
            assert time.monotonic() - began <= STOP * room()
            await app.insert(2)
            # Far below the lease, which would have to run out otherwise.
            await topic.until(lambda: topic.texts == ["text 1", "text 2"], "the second leader's record", 60)


async def test_a_woken_leader_is_fenced_and_publishes_nothing_more(app: Kit, tmp_path: Path) -> None:
    async with (
        tailer_process(app.with_tailer(commit_seconds=60.0), tmp_path / "a") as zombie,
        app.topic() as topic,
    ):
        await leads(zombie)
        await app.following()
        await app.insert(1)
        await topic.until(lambda: topic.texts == ["text 1"], "its record, before any position is saved")
        zombie.signal(signal.SIGSTOP)
        async with tailer_process(app.settings, tmp_path / "b") as second:
            await leads(second)
            await app.insert(2)
            await topic.until(lambda: "text 2" in topic.texts, "the new leader's record")
            await topic.until_marked()
            published = len(topic.records)
            zombie.signal(signal.SIGCONT)
            await zombie.until_said("leadership lost")
            await app.insert(3)
            await topic.until(lambda: "text 3" in topic.texts, "the new leader goes on")
            await topic.until_marked()
            assert len(topic.records) == published + 1
            assert second.said.count('"event": "leads"') == 1
            async with app.topic(isolation="read_committed") as committed:
                await committed.until(lambda: sorted(set(committed.texts)) == NUMBERED, "committed")
                assert len({record.envelope.id for record in committed.records}) == len(NUMBERED)


async def test_readers_of_committed_records_wait_for_no_saved_position(app: Kit) -> None:
    slow = app.with_tailer(commit_seconds=3_600.0)
    async with app.tailing(slow), app.topic(isolation="read_committed") as committed:
        await app.following()
        before = await app.position()
        await app.insert(1)
        await committed.until(lambda: committed.texts == ["text 1"], "a record")
        assert await app.position() == before


async def test_a_leader_keeps_others_shut_out_however_long_it_leads(
    app: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eden_memory.source.leader.FENCED_SECONDS", 0.1)
    async with app.tailing() as part, app.topic() as topic:
        await app.following()
        for number in range(5):
            await app.insert(number)
            await topic.until_marked()
        await topic.until(lambda: len(topic.texts) >= 5, "all of them")
        await topic.until_marked()
        assert part.leading
        assert sorted(topic.texts) == [f"text {number}" for number in range(5)], "partitions have no order"


async def test_a_leader_killed_before_it_saves_leaves_nothing_out(app: Kit, tmp_path: Path) -> None:
    long = app.with_tailer(commit_seconds=60.0)
    async with app.topic() as topic:
        async with tailer_process(long, tmp_path / "a") as first:
            await leads(first)
            await app.following()
            await app.messages.insert_many([message(number) for number in range(500)])
            await topic.until(lambda: len(topic.records) >= 200, "some records")
            first.signal(signal.SIGKILL)
            await first.ended()
        async with (
            tailer_process(app.settings, tmp_path / "b"),
            app.topic(isolation="read_committed") as committed,
        ):
            await committed.until(lambda: len(committed.last()) == 500, "all of them, committed", 60)


async def test_a_missing_topic_is_said_and_ends_the_program(quick: Settings, tmp_path: Path) -> None:
    async with tailer_process(quick, tmp_path / "log") as tailer:
        assert await tailer.ended(60) == 1
        assert f"{quick.kafka.topic_prefix}chat.messages" in tailer.said
        assert "eden topics apply" in tailer.said
        assert "Traceback" not in tailer.said


@pytest.fixture(scope="module")
def own_mongod(tmp_path_factory: pytest.TempPathFactory) -> Generator[LocalMongo]:
    """A mongod that may be frozen: others use the session's."""
    server = LocalMongo(tmp_path_factory.mktemp("frozen"))
    server.start()
    yield server
    if server.pid is not None:
        server.kill()


@pytest.fixture
def on_own_mongod(quick: Settings, own_mongod: LocalMongo) -> Settings:
    named = {"uri": SecretStr(own_mongod.endpoint), "database": quick.mongodb.database}
    return quick.model_copy(update={"mongodb": MongoSettings(**named)})  # pyright: ignore


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
async def test_sigterm_ends_a_leader_in_time_even_while_mongod_is_frozen(
    on_own_mongod: Settings, topics: None, own_mongod: LocalMongo, tmp_path: Path, busy: bool
) -> None:
    assert own_mongod.pid is not None
    async with kit(on_own_mongod, topics=()) as app, tailer_process(on_own_mongod, tmp_path / "a") as tailer:
        await leads(tailer)
        await app.following()
        async with app.topic() as topic:
            await app.insert(1)
            await topic.until(lambda: topic.texts == ["text 1"], "a record")
        writing = asyncio.create_task(app.messages.insert_many([message(one) for one in range(2, 5_000)]))
        if not busy:
            await writing
        os.kill(own_mongod.pid, signal.SIGSTOP)
        try:
            tailer.signal(signal.SIGTERM)
            began = time.monotonic()
            code = await tailer.ended()
            took = time.monotonic() - began
        finally:
            os.kill(own_mongod.pid, signal.SIGCONT)
            await asyncio.gather(writing, return_exceptions=True)
        assert code == 0, tailer.said
        assert took <= STOP * room()
        async with tailer_process(on_own_mongod, tmp_path / "b"), app.topic() as topic:
            expected = {f"i.{one['_id']}": one["content"] async for one in app.messages.find()}
            await topic.until(lambda: topic.last() == expected, "nothing is lost", 60)


async def test_a_frozen_mongod_that_wakes_is_followed_on(
    on_own_mongod: Settings, topics: None, own_mongod: LocalMongo
) -> None:
    assert own_mongod.pid is not None
    async with kit(on_own_mongod, topics=()) as app, app.topic() as topic, app.tailing() as part:
        await app.following()
        await app.insert(1)
        await topic.until(lambda: topic.texts == ["text 1"], "a record")
        os.kill(own_mongod.pid, signal.SIGSTOP)
        try:
            await until(lambda: not part.leading, "the lease runs out", 60)
        finally:
            os.kill(own_mongod.pid, signal.SIGCONT)
        await app.insert(2)
        await topic.until(lambda: "text 2" in topic.texts, "it leads again", 90)
        assert topic.last() == {"i.1": "text 1", "i.2": "text 2"}


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory, jars_folder: Path) -> Generator[LocalKafka]:
    """A broker that may be frozen."""
    server = LocalKafka(tmp_path_factory.mktemp("frozen-kafka"), jars_folder=jars_folder)
    server.start()
    yield server
    if server.pid is not None:
        server.kill()


@pytest.mark.slow
async def test_sigterm_ends_a_leader_in_time_even_while_kafka_is_frozen(
    quick: Settings, own_kafka: LocalKafka, tmp_path: Path
) -> None:
    named = quick.kafka.model_copy(update={"bootstrap": own_kafka.endpoint, "partitions": 3})
    settings = quick.model_copy(update={"kafka": named})
    apply_topics(admin_config(named, own_kafka.endpoint), load_topics(named))
    assert own_kafka.pid is not None
    async with kit(settings, topics=()) as app:
        async with tailer_process(settings, tmp_path / "a") as tailer:
            await leads(tailer)
            await app.following()
            os.kill(own_kafka.pid, signal.SIGSTOP)
            try:
                await app.messages.insert_many([message(number) for number in range(100)])
                tailer.signal(signal.SIGTERM)
                began = time.monotonic()
                code = await tailer.ended()
                took = time.monotonic() - began
            finally:
                os.kill(own_kafka.pid, signal.SIGCONT)
        assert code == 0, tailer.said
        assert took <= STOP * room()
        async with tailer_process(settings, tmp_path / "b"), app.topic() as topic:
            await topic.until(lambda: len(topic.last()) == 100, "nothing is lost")
