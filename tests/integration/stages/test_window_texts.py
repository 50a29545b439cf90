"""The texts of windows on a real server: erased a week after nothing reads them any more, and not before."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.kafka.record import Record
from eden_memory.mongo.client import connect
from eden_memory.schemas.documents import DeadLetter, GivenUp
from eden_memory.schemas.documents import WindowTexts as WindowDocument
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import FactsExtracted, FormationRequested
from eden_memory.settings import Settings
from eden_memory.stages.codec import Encoder
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.dead_letters import dead_letter
from eden_memory.stages.outcome import StageOutcome
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.stage import Delivery
from eden_memory.windows import trigger_store
from eden_memory.windows.trigger_store import MongoTriggerStore, WindowTextRetention, readers_of
from eden_memory.windows.window_rule import Limits
from tests.names import NAMES
from tests.unit.windows.records import asked, formations, message, run, trigger

pytestmark = pytest.mark.servers
NOW = datetime(2026, 4, 1, 9, tzinfo=UTC)
WEEK, MONTH = timedelta(days=7), timedelta(days=30)


class Kept:
    """Windows, the ledger, and the round that is tested."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.store = MongoTriggerStore(database, NAMES, Limits())
        self.ledger = MongoLedger(database, NAMES)
        self.letters = DeadLetters(database, NAMES, MongoForgetting(database, NAMES))
        self.texts = WindowTextRetention(database, NAMES, self.letters.is_settled)

    async def window(self, session: str) -> str:
        """A window that was asked for."""
        records = [message(f"{session}-1", session, 1, 0, "a secret"), asked(session, 2, 1)]
        (one,) = formations(await run(trigger(self.store), records))
        return one.formation_id

    async def conclude(self, member: str, at: datetime, dead: str | None = None) -> None:
        stage, _, event = member.partition(":")
        retry_of = event.rpartition("#")[0] or None
        outcome = StageOutcome(member, stage, (event,), (), (), "t", 0, 1, at, dead=dead, retry_of=retry_of)
        await self.ledger.store(outcome)
        if dead is not None:
            await self.letters.put([self.letter(member)])

    def letter(self, member: str) -> DeadLetter:
        """The letter of a member of the ledger."""
        stage, _, event = member.partition(":")
        record = Record("t", 0, 1, b"k", b"{}", (("ce_id", event.encode()),), 0)
        why = GivenUp(member=event, reason="no answer", error="Dead", attempts=1, at=NOW)
        return dead_letter(record, why, self.letters.origin(stage))

    async def held(self) -> set[str]:
        """Windows whose texts are in the database."""
        rows = await self.database.memory_windows.find().to_list()
        return {row["_id"] for row in rows if any(one["text"] for one in row["messages"])}


@pytest.fixture
async def kept(settings: Settings) -> AsyncGenerator[Kept]:
    assert settings.mongodb.uri
    uri = settings.mongodb.uri.get_secret_value()
    client: AsyncMongoClient[dict[str, Any]] = connect(uri)
    found = Kept(client[settings.mongodb.database])
    await found.store.create_indexes()
    await found.ledger.prepare()
    yield found
    await client.close()


async def test_texts_go_a_week_after_both_stages_are_done(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_store, "TOGETHER", 2)
    names = [await kept.window(f"s.{number}") for number in range(5)]
    for name in names[:4]:
        facts, reflections = readers_of(name)
        await kept.conclude(facts, NOW)
        if name != names[3]:
            await kept.conclude(reflections, NOW)
    assert await kept.texts.round(NOW) == 0
    assert await kept.texts.round(NOW + WEEK - timedelta(seconds=1)) == 0
    assert await kept.held() == set(names)
    assert await kept.texts.round(NOW + WEEK) == 3
    assert await kept.held() == set(names[3:])
    assert set(await kept.store.windows(names)) == set(names[3:])
    rows = await kept.database.memory_windows.find().to_list()
    assert {len(row["messages"]) for row in rows} == {1}, "which messages it held stays known"
    for row in rows:
        WindowDocument.model_validate(row, strict=False)
    assert await kept.texts.round(NOW + 2 * WEEK) == 0


@pytest.mark.parametrize("which", [0, 1], ids=["facts", "reflections"])
async def test_an_open_dead_letter_keeps_the_texts_until_it_ages_out(kept: Kept, which: int) -> None:
    members = readers_of(await kept.window("s.s"))
    await kept.conclude(members[which], NOW, dead="no answer")
    await kept.conclude(members[1 - which], NOW)
    for days in (0, 8, 29):
        assert await kept.texts.round(NOW + timedelta(days=days)) == 0
    assert await kept.texts.round(NOW + MONTH) == 0
    assert await kept.held()
    assert await kept.texts.round(NOW + MONTH + WEEK) == 1
    assert not await kept.held()


@pytest.mark.parametrize("how", ["tried again", "dead again", "dropped"])
async def test_a_settled_dead_letter_keeps_them_a_week_more(kept: Kept, how: str) -> None:
    facts, reflections = readers_of(await kept.window("s.s"))
    await kept.conclude(facts, NOW, dead="no answer")
    await kept.conclude(reflections, NOW)
    letter = kept.letter(facts)
    if how == "dropped":
        await kept.letters.settle([letter.id], "dropped")
    else:
        await kept.letters.ask(letter)
        again = GivenUp(member="m", reason="again", error="Dead", attempts=1, at=NOW)
        await kept.letters.tried(letter.id, 1, again if how == "dead again" else None)
    await kept.texts.round(NOW + timedelta(days=1))
    await kept.texts.round(NOW + timedelta(days=8))
    assert bool(await kept.held()) is (how == "dead again")


async def test_an_outbox_that_names_an_erased_window_is_cleared(kept: Kept) -> None:
    stage = trigger(kept.store)
    name = await kept.window("s.s")
    for member in readers_of(name):
        await kept.conclude(member, NOW)
    await kept.texts.round(NOW)
    assert await kept.texts.round(NOW + WEEK) == 1
    await kept.database.memory_sessions.update_one(
        {"_id": "s.s"},
        {"$set": {"unpublished": True, "outbox": [{"formation_id": name, "seq": 1, "requested": True}]}},
    )
    found = await run(stage, [message("s.s-8", "s.s", 8, 5)], [message("s.s-9", "s.s", 9, 6)])
    assert not formations(found)
    row = await kept.database.memory_sessions.find_one({"_id": "s.s"})
    assert (row["outbox"], row.get("unpublished")) == ([], None)


async def test_the_readers_are_known_by_the_records_that_they_get(kept: Kept) -> None:
    """What the stages' encoder gives as id to the request and to the first event out of it."""
    (one,) = await run(trigger(kept.store), [message("s.m1", "s.s", 1, 0), asked("s.s", 2, 1)])
    assert isinstance(one.event, FormationRequested)
    asking = Encoder("formation-trigger", lambda _: "t")
    (request,) = asking.records([one], [asked("s.s", 2, 1)])
    envelope = Envelope.of_headers(request.headers)
    delivery = Delivery(envelope, one.event, "memory.formations", one.event.key())
    extracted = FactsExtracted(cause=delivery.id, window=one.event.window(), outcome="empty")
    (record,) = Encoder("fact-extraction", lambda _: "t").records([extracted], [delivery])
    found = Envelope.of_headers(record.headers)
    assert readers_of(one.event.formation_id) == (
        f"fact-extraction:{envelope.id}",
        f"reflection-extraction:{found.id}",
    )
