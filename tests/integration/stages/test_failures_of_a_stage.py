"""What each failure does: retried in order, dead-lettered, or the stage stands still and probes."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import structlog
from pymongo.asynchronous.collection import AsyncCollection

from eden_memory.errors import PermanentError, ProviderError
from eden_memory.schemas.documents import DeadLetter
from eden_memory.settings import Settings
from eden_memory.stages import deciding, stage_health
from eden_memory.stages.controls import MongoControls, Pause
from eden_memory.stages.stage import Dead, Delivery, Emitted, Result, Retry, RetryPolicy
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import (
    NOON,
    Answered,
    Asked,
    Bench,
    Unanswered,
    answer,
    answered,
    asked,
    bench,
    in_order,
    questions,
    running,
    stage,
    until,
)

pytestmark = pytest.mark.servers


@pytest.fixture
def no_dead_letter_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without probes only a resume ends such a pause: after a minute a probe would hide one that is missed."""
    monkeypatch.setattr(stage_health, "DEAD_LETTER_PROBE", 3_600.0)


def unanswered(one: Delivery, reason: str) -> list[Emitted]:
    """In place of an answer."""
    assert isinstance(one.event, Asked)
    return [Unanswered(session=one.event.session, number=one.event.number)]


async def test_retries_keep_the_order_of_their_lane(kit: Bench) -> None:
    failed: Counter[str] = Counter()

    async def flaky(deliveries: Sequence[Delivery]) -> Result:
        (one,) = deliveries
        failed[one.id] += 1
        if failed[one.id] == 1:
            raise ConnectionResetError("first time")
        if failed[one.id] == 2:
            return Retry("second time", after=0.01)
        return [answered(one, str(one.attempt))]

    await kit.put(questions(2, 10))
    async with running(Worker(stage(flaky), kit.around())):
        answers = await kit.answers(20)
    assert in_order(answers)
    assert set(failed.values()) == {3}


async def test_what_cannot_be_read_is_a_dead_letter_with_its_original_bytes(kit: Bench) -> None:
    good = asked("s", 0)
    no_envelope = replace(good, headers=(("x", b"\xff\xfe"),), value=b"\x00not json", ordering_key=b"s")
    violation = replace(asked("s", 1), value=b'{"session":"s"}')
    await kit.put([no_envelope, good, violation, asked("s", 2)])
    async with running(Worker(stage(), kit.around())):
        answers = await kit.answers(2)
        dead = await kit.dead(2)
        await until(lambda: _committed(kit, 4), "all committed")
    assert [one.key for one in answers] == [b"s-0", b"s-2"]
    by_value = {one.value: one for one in dead}
    assert set(by_value) == {no_envelope.value, violation.value}
    first, second = by_value[no_envelope.value], by_value[violation.value]
    assert dict(first.headers)["x"] == b"\xff\xfe"
    assert (first.topic, first.stage, first.offset) == (kit.topic(Asked), "answering", 0)
    assert first.error == "EnvelopeError"
    assert "number: missing" in second.reason
    assert second.member == "answering:s-1"


async def _committed(kit: Bench, count: int) -> bool:
    return await kit.committed() == count


async def test_a_poisoned_record_dies_alone_and_something_stands_in_its_place(kit: Bench) -> None:
    calls: Counter[str] = Counter()

    async def poisoned(deliveries: Sequence[Delivery]) -> Result:
        calls.update(one.id for one in deliveries)
        if any(one.id == "s3-2" for one in deliveries):
            raise PermanentError("poison")
        return [answered(one) for one in deliveries]

    await kit.put(questions(5, 5))
    async with running(Worker(stage(poisoned, on_dead=unanswered), kit.around())):
        out = await kit.answers(25)
        (letter,) = await kit.dead(1)
    assert in_order(out)
    assert [one.key for one in out if _type(one) == "eden.Unanswered.v1"] == [b"s3-2"]
    assert letter.key == b"s3-2"
    assert calls["s3-2"] == 1


def _type(record: Any) -> str:
    return dict(record.headers)["ce_type"].decode()


@pytest.mark.parametrize("form", [{"batch": 100, "decides": False}, {"together": 50}])
async def test_a_poisoned_record_never_takes_the_others_down(kit: Bench, form: dict[str, Any]) -> None:
    async def poisoned(deliveries: Sequence[Delivery]) -> Result:
        if any(one.id in ("s0-7", "s0-30") for one in deliveries):
            raise PermanentError("poison")
        return [answered(one) for one in deliveries]

    await kit.put(questions(1, 60))
    async with running(Worker(stage(poisoned, **form), kit.around())):
        answers = await kit.answers(58)
        dead = await kit.dead(2)
        await until(lambda: _committed(kit, 60), "all committed")
    numbers = [int((one.key or b"").decode().split("-")[1]) for one in answers]
    assert list(dict.fromkeys(numbers)) == [n for n in range(60) if n not in (7, 30)]
    assert sorted(one.key or b"" for one in dead) == [b"s0-30", b"s0-7"]


async def test_a_unit_that_fails_while_others_succeed_is_given_up_after_its_attempts(kit: Bench) -> None:
    calls: Counter[str] = Counter()

    async def one_fails(deliveries: Sequence[Delivery]) -> Result:
        (one,) = deliveries
        calls[one.id] += 1
        await asyncio.sleep(0.005)
        if one.id == "s1-0":
            raise ProviderError("500")
        return [answered(one)]

    await kit.put(questions(4, 100))
    async with running(Worker(stage(one_fails), kit.around())):
        answers = await kit.answers(399)
        (letter,) = await kit.dead(1)
    assert calls["s1-0"] == 4
    assert letter.attempts == 4
    assert len(answers) == 399


async def test_an_outage_pauses_the_stage_and_dead_letters_nothing(kit: Bench) -> None:
    down = True
    calls = 0

    async def provider(deliveries: Sequence[Delivery]) -> Result:
        nonlocal calls
        calls += 1
        if down:
            raise ProviderError("503")
        return [answered(one) for one in deliveries]

    await kit.put(questions(30, 3))
    worker = Worker(stage(provider), kit.around())
    worker.health.probes = RetryPolicy(first=0.05, cap=0.1)
    async with running(worker):
        await until(lambda: "outage" in worker.health.pauses, "paused")
        assert "503" in worker.health.pauses["outage"].reason
        before = calls
        await until(lambda: calls > before + 8, "probed more often than a unit has attempts")
        assert len(worker.membership.homes) == 6
        assert worker.state().ready, "another process would do no better"
        await until(lambda: _troubles(kit, "stands still (outage)"), "said for `eden status`")
        down = False
        answers = await kit.answers(90)
        assert not worker.health.pauses
        await until(lambda: _troubles(kit, None), "taken back")
    assert in_order(answers)
    assert await kit.database.memory_outcomes.count_documents({"dead": {"$exists": True}}) == 0


async def _troubles(kit: Bench, wanted: str | None) -> bool:
    reported = [reason for _, reason in await kit.controls.troubles()]
    return any(wanted in one for one in reported) if wanted else not reported


async def test_an_outage_ends_when_nothing_is_left_that_could_fail(kit: Bench) -> None:
    away = True

    async def provider(deliveries: Sequence[Delivery]) -> Result:
        if away:
            raise ProviderError("503")
        raise PermanentError("400: the request itself")

    await kit.put(questions(3, 1))
    worker = Worker(stage(provider, dead_share=1.0), kit.around())
    worker.health.probes = RetryPolicy(first=0.05, cap=0.1)
    async with running(worker):
        await until(lambda: "outage" in worker.health.pauses, "paused")
        away = False
        await until(lambda: not worker.health.pauses, "over")
        await until(lambda: _committed(kit, 3), "all committed")
        assert worker.state().what.endswith("caught up")


async def test_a_failure_that_suggests_no_outage_lets_the_others_of_its_stage_go_on(kit: Bench) -> None:
    well = False

    async def provider(deliveries: Sequence[Delivery]) -> Result:
        (one,) = deliveries
        if not well and not one.id.startswith("s3"):
            raise ProviderError("500", counts=False, alone=True)
        return [answered(one)]

    await kit.put(questions(4, 5))
    worker = Worker(stage(provider), kit.around())
    async with running(worker):
        assert len(await kit.answers(5)) == 5
        await until(lambda: len(worker.lanes.waiting_alone()) == 3, "the others wait")
        assert not worker.health.pauses
        assert "3 of its records wait for another attempt: ProviderError: 500" in worker.state().what
        well = True
        assert in_order(await kit.answers(20))


async def test_a_handler_that_hangs_is_a_failed_attempt(kit: Bench) -> None:
    hung: set[str] = set()

    async def hangs_once(deliveries: Sequence[Delivery]) -> Result:
        (one,) = deliveries
        if one.id not in hung:
            hung.add(one.id)
            await asyncio.sleep(3_600)
        return [answered(one)]

    await kit.put(questions(2, 2))
    async with running(Worker(stage(hangs_once, timeout=0.2), kit.around())):
        assert in_order(await kit.answers(4))


async def test_a_stage_is_paused_and_resumed_by_hand_and_keeps_its_partitions(kit: Bench) -> None:
    pause = Pause("answering", "hand", "maintenance", NOON)
    worker = Worker(stage(), kit.around())
    async with running(worker):
        await until(lambda: len(worker.membership.homes) == 6, "assigned")
        await kit.controls.pause(pause)
        await until(lambda: worker.health.pauses.get("hand") is not None, "paused")
        await kit.put(questions(3, 3))
        await until(lambda: worker.lanes.queued == 9, "fetched and waiting")
        assert len(worker.membership.homes) == 6
        assert not worker.state().ready
        assert (
            worker.state().what == "paused: hand, maintenance; 6 partitions, 0 running, 9 waiting, 9 behind"
        )
        assert await kit.controls.resume("answering") == 1
        await kit.answers(9)
        await until(lambda: worker.state().what.endswith("caught up"), "caught up")
        assert worker.state().ready


@pytest.mark.parametrize(("level", "lines"), [(logging.DEBUG, 4), (logging.INFO, 0)])
async def test_each_finished_record_has_a_line_at_debug_and_none_at_info(
    kit: Bench, level: int, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def keep(_logger: Any, _name: str, fields: Any) -> Any:
        told.append(fields)
        raise structlog.DropEvent

    log = structlog.wrap_logger(None, [keep], wrapper_class=structlog.make_filtering_bound_logger(level))
    monkeypatch.setattr(deciding, "log", log)
    await kit.put(questions(2, 2))
    async with running(Worker(stage(), kit.around())):
        await kit.answers(4)
        await until(lambda: _committed(kit, 4), "all committed")
    assert len({one["at"] for one in told}) == len(told) == lines
    assert all((one["event"], one["how"], one["attempts"]) == ("finished", "decided", 1) for one in told)


@pytest.mark.usefixtures("no_dead_letter_probe")
async def test_a_stage_that_dead_letters_too_much_pauses_itself(kit: Bench) -> None:
    broken = True

    async def dies(deliveries: Sequence[Delivery]) -> Result:
        return Dead("no use") if broken else [answered(one) for one in deliveries]

    await kit.put(questions(40, 1))
    worker = Worker(stage(dies, at_once=1), kit.around())
    async with running(worker):
        await until(lambda: "dead-letters" in worker.health.pauses, "paused itself")
        await until(kit.controls.pauses, "said so to the other copies")
        (known,) = await kit.controls.pauses()
        assert "20%" in known.reason
        broken = False
        await kit.controls.resume("answering")
        await kit.answers(30)
        dead = await kit.dead(10)
    assert len(dead) == 10


async def test_a_pause_is_obeyed_after_the_driver_broke_while_watching(
    kit: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = asyncio.Event()
    watch = AsyncCollection[Any].watch

    async def breaks_once(*args: Any, **options: Any) -> Any:
        if not broken.is_set():
            broken.set()
            raise RuntimeError("the driver lost its place")
        return await watch(*args, **options)

    monkeypatch.setattr(AsyncCollection, "watch", breaks_once)
    worker = Worker(stage(), kit.around())
    async with running(worker):
        await until(broken.is_set, "broken")
        await kit.controls.pause(Pause("answering", "hand", "maintenance", NOON))
        await until(lambda: worker.health.pauses.get("hand") is not None, "paused")


@pytest.mark.usefixtures("no_dead_letter_probe")
async def test_a_pause_lifted_before_its_own_stage_has_read_it_is_over(kit: Bench) -> None:
    lifted = asyncio.Event()

    class LiftedAtOnce(MongoControls):
        async def pause(self, pause: Pause) -> None:
            await super().pause(pause)
            await self.resume(pause.stage)
            lifted.set()

    async def dies(deliveries: Sequence[Delivery]) -> Result:
        return [answered(one) for one in deliveries] if lifted.is_set() else Dead("no use")

    await kit.put(questions(40, 1))
    controls = LiftedAtOnce(kit.database, kit.settings.names)
    worker = Worker(stage(dies, at_once=1), replace(kit.around(), controls=controls))
    async with running(worker):
        await kit.answers(30)


@pytest.mark.usefixtures("no_dead_letter_probe")
async def test_a_record_that_is_delivered_again_says_nothing_about_the_stage_of_now(
    settings: Settings,
) -> None:
    held, mended = asyncio.Event(), False

    async def dies(deliveries: Sequence[Delivery]) -> Result:
        (one,) = deliveries
        assert isinstance(one.event, Asked)
        if not mended and one.event.session == "s0":
            await held.wait()  # nothing behind it is committed
        last = one.event.session == "s10"
        return [answered(one)] if mended and not last else Dead("no use")

    async with bench(settings, partitions=1) as kit:
        await kit.put(questions(10, 1))
        async with running(Worker(stage(dies), kit.around()), deadline=0.0):
            await kit.dead(9)
        mended = True
        await kit.put([asked("s10", 0)])
        worker = Worker(stage(dies, at_once=1), kit.around())
        async with running(worker):
            await until(lambda: _committed(kit, 11), "all committed")
            assert not worker.health.pauses, "one dead letter, and nine of before"


async def test_a_dead_letter_is_tried_again_inside_its_stage(kit: Bench) -> None:
    broken = True
    anew: list[bool] = []

    async def mended(deliveries: Sequence[Delivery]) -> Result:
        (one,) = deliveries
        if broken:
            return Dead("broken")
        anew.append(one.asks_anew)
        assert isinstance(one.event, Asked)
        instead = Unanswered(session=one.event.session, number=one.event.number)
        return [instead, answered(one, "at last")]

    await kit.put([asked("s", 0)])
    async with running(Worker(stage(mended, on_dead=unanswered), kit.around())):
        (letter,) = await kit.dead(1)
        assert await _ask(kit, letter)
        assert not await _ask(kit, letter)
        await until(lambda: _state(kit, letter, "dead"), "failed again")
        (again,) = await kit.dead(1)
        assert (again.id, again.retries, again.at > letter.at) == (letter.id, 1, True), (
            "one letter for one record"
        )
        broken = False
        assert await _ask(kit, letter)
        await until(lambda: _state(kit, letter, "published"), "published")
        assert not await _ask(kit, letter)
        out = await kit.read(kit.topic(Answered), 2)
        (settled,) = await kit.dead(1)
    assert [_type(one) for one in out] == ["eden.Unanswered.v1", "eden.Answered.v1"]
    assert b"at last" in (out[1].value or b"")
    assert anew == [True]
    assert await kit.committed() == 1
    assert settled.value is None, "nothing of the record is kept any longer than it is needed"


async def _ask(kit: Bench, letter: DeadLetter) -> bool:
    asked_now = await kit.letters.ask(letter)
    await kit.controls.tell()
    return asked_now


async def _state(kit: Bench, letter: DeadLetter, state: str) -> bool:
    found = await kit.letters.get(letter.id)
    return found is not None and found.state == state


async def test_a_handler_whose_events_cannot_be_written_is_a_bug_not_a_crash(kit: Bench) -> None:
    async def wrong(deliveries: Sequence[Delivery]) -> Any:
        return [object()] if deliveries[0].id == "s-0" else await answer(deliveries)

    await kit.put([*questions(1, 1), asked("s", 0), asked("s", 1)])
    async with running(Worker(stage(wrong), kit.around())):
        await kit.answers(2)
        (letter,) = await kit.dead(1)
    assert letter.key == b"s-0"
    assert letter.attempts == 2


SECRET = "Rumpelstiltskin"


async def test_what_servers_say_of_a_document_stands_in_no_log_outcome_or_dead_letter(kit: Bench) -> None:
    rows = kit.database["strict"]
    await rows.create_index("name", unique=True)
    await kit.database.create_collection(
        "typed", validator={"$jsonSchema": {"properties": {"name": {"bsonType": "int"}}}}
    )

    async def duplicate() -> None:
        for _ in range(2):
            await rows.insert_one({"name": SECRET})

    async def duplicates() -> None:
        await rows.insert_many([{"name": SECRET}, {"name": SECRET}])

    async def invalid() -> None:
        await kit.database["typed"].insert_one({"name": SECRET})

    async def no_bson() -> None:
        await rows.insert_one({"name": SECRET, "x": object()})

    async def no_event() -> None:
        Asked.model_validate({"session": SECRET, "number": SECRET})

    calls = [duplicate, duplicates, invalid, no_bson, no_event]

    async def failing(deliveries: Sequence[Delivery]) -> Result:
        (one,) = deliveries
        assert isinstance(one.event, Asked)
        await calls[one.event.number]()
        return []

    await kit.put(questions(1, len(calls)))
    with structlog.testing.capture_logs() as logged:
        async with running(Worker(stage(failing, on_dead=unanswered), kit.around())):
            dead = await kit.dead(len(calls))
            await until(lambda: _committed(kit, len(calls)), "all committed")
    outcomes = await kit.database["memory_outcomes"].find({}).to_list()
    assert len(outcomes) == len(calls)
    said = {one.reason for one in dead}
    assert {text.partition(":")[0] for text in said} == {
        "DuplicateKeyError",
        "BulkWriteError",
        "WriteError",
        "InvalidDocument",
        "ValidationError",
    }
    assert "DuplicateKeyError: code 11000 on name" in said
    assert "WriteError: code 121 in name" in said
    for shown in (dead, outcomes, logged):
        assert SECRET not in str(shown)
