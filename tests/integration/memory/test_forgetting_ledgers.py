"""Outcomes and answers of which something is forgotten, on a real server."""

from collections.abc import Iterable, Sequence

import pytest

from eden_memory.forgetting.forgetting_store import MongoForgettingStore
from eden_memory.forgetting.ledger_store import ForgottenLedgers
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.forgotten import Mark, Marks
from eden_memory.memory.projection import restated
from eden_memory.processors.forgetting import ForgettingStage
from eden_memory.schemas.documents import FactStatement
from eden_memory.schemas.events import (
    Event,
    FactsExtracted,
    FactsProposed,
    Forgotten,
    FormationRequested,
    ScopeChanged,
)
from eden_memory.schemas.provenance import MessageRef, Statement
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.codec import Encoder, event_id
from eden_memory.stages.outcome import StageOutcome
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.stage import Decision, Delivery, Emit, Emitted, Erase
from tests.integration.memory.writer_kit import PREFIX, Database
from tests.names import NAMES
from tests.unit.memory.memory_histories import (
    NOON,
    SESSION,
    USER,
    blob,
    delivered,
    minute,
    reflection,
    source,
)

pytestmark = pytest.mark.servers
WINDOW = "s.room:1"
ASKED = f"formation/{WINDOW}"
FACTS, REFLECTIONS = "fact-extraction", "reflection-extraction"


@pytest.fixture
async def database(database: Database) -> Database:
    window = {"_id": WINDOW, "messages": [{"message_id": name, "text": "x"} for name in ("i.1", "i.2")]}
    await database[PREFIX + "windows"].insert_one(window)
    return database


def proposed(scope: Scope, *messages: int) -> FactsProposed:
    facts = [
        Statement(number=number, text=f"Said {number}.", formation_id=WINDOW, sources=(source(number),))
        for number in messages
    ]
    return FactsProposed(
        cause=ASKED,
        formation_id=WINDOW,
        session_id="s.one",
        scope=scope,
        facts=tuple(facts),
        formed_at=NOON,
        settings_version="1",
    )


async def decided(
    database: Database,
    stage: str,
    member: str,
    events: Sequence[Event],
    retry: int = 0,
    *,
    dead: str | None = None,
) -> None:
    """Store a stage's outcome of one record."""
    cause = forgotten(1)
    cause = cause._replace(envelope=cause.envelope._replace(id=member))
    outcome = StageOutcome(
        key=f"{stage}:{member}#{retry}",
        stage=stage,
        members=(f"{member}#{retry}" if retry else member,),
        writes=(),
        records=Encoder(stage, lambda of: of.NAME).records(events, [cause], retry),
        topic="t",
        partition=0,
        offset=0,
        decided_at=NOON,
        kinds=tuple(dict.fromkeys(event.NAME for event in events)),
        dead=dead,
        retry_of=member if retry else None,
    )
    await MongoLedger(database, NAMES).store(outcome)


def forgotten(number: int) -> Delivery:
    return delivered(
        Forgotten(
            kind="message",
            id=f"i.{number}",
            reach="for_ever",
            because="asked",
            asked_by=None,
            forgotten_at=minute(30),
        )
    )


async def forget(database: Database, number: int) -> Sequence[Emitted]:
    stage = ForgettingStage(MongoForgettingStore(database, NAMES), MongoForgetting(database, NAMES))
    decision = await stage([forgotten(number)])
    assert isinstance(decision, Decision)
    return decision.events


def told(events: Sequence[Emitted]) -> list[tuple[str | None, str, tuple[str, ...]]]:
    """The proposals that are published again, and those that a tombstone ends."""
    again: list[tuple[str | None, str, tuple[str, ...]]] = []
    for emitted in events:
        if isinstance(emitted, Emit) and isinstance(emitted.event, FactsProposed):
            texts = tuple(fact.text for fact in emitted.event.facts)
            again.append((emitted.identity, emitted.event.key(), texts))
        elif isinstance(emitted, Erase) and emitted.of is FactsProposed:
            again.append((None, emitted.key, ()))
    return again


async def texts(database: Database) -> str:
    rows = await database[PREFIX + "outcomes"].find().to_list()
    return str([record["v"] for row in rows for record in row.get("records", ())])


async def test_a_forgetting_that_was_killed_before_its_decision_was_stored_says_the_same_again(
    database: Database,
) -> None:
    await decided(database, FACTS, ASKED, [proposed(USER, 1), proposed(SESSION, 1, 2)])
    first = told(await forget(database, 1))
    assert first == [
        (None, f"{WINDOW}/{USER.key}", ()),
        (event_id(ASKED, FACTS, 1), f"{WINDOW}/{SESSION.key}", ("Said 2.",)),
    ]
    assert "Said 1" not in await texts(database)
    assert told(await forget(database, 1)) == first


class AnotherMeanwhile(MongoForgetting):
    """Another forgetting reads the same outcome, and changes it, after the first has read marks."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, NAMES)
        self._database, self._waits = database, True

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        found = await super().among(named)
        if self._waits:
            self._waits = False
            await forget(self._database, 2)
        return found


async def test_two_forgettings_at_once_do_not_undo_each_other(database: Database) -> None:
    await decided(database, FACTS, ASKED, [proposed(SESSION, 1, 2, 3)])
    store = MongoForgettingStore(database, NAMES)
    await store.mark([Mark("message", "i.1", "for_ever")], "e", NOON)
    ledgers = ForgottenLedgers(database, NAMES, AnotherMeanwhile(database))
    again = await ledgers.erase(["i.1"], (), (), forgotten(1))
    assert [texts for _, _, texts in told(again)] == [("Said 3.",)]
    left = await texts(database)
    assert ("Said 1" in left, "Said 2" in left, "Said 3" in left) == (False, False, True)


async def test_what_a_dead_letter_sent_again_has_led_to_goes_too(database: Database) -> None:
    await decided(
        database, FACTS, ASKED, [proposed(USER, 1)], retry=1
    )  # it was given up unread: by its bytes
    dedup = event_id(ASKED, FACTS, 0, 1)
    await decided(database, "fact-dedup", dedup, [], dead="it failed")
    await decided(database, "fact-dedup", dedup, [proposed(SESSION, 1)], retry=2)
    ended = {key for _, key, _ in told(await forget(database, 1))}
    assert ended == {f"{WINDOW}/{USER.key}", f"{WINDOW}/{SESSION.key}"}
    assert "Said 1" not in await texts(database)


async def test_answers_to_every_proposal_go_also_when_the_records_are_removed(database: Database) -> None:
    scopes = [Scope.of_user("s.assistant", f"i.{number}") for number in range(4)]
    await decided(database, FACTS, ASKED, [proposed(scope, 1) for scope in scopes])
    units = [f"fact-dedup:{event_id(ASKED, FACTS, number)}" for number in range(len(scopes))]
    await database[PREFIX + "answers"].insert_many([{"unit": unit} for unit in units])
    assert await MongoLedger(database, NAMES).remove_consumed(FACTS, "t", 0, 1) == 1
    await forget(database, 1)
    assert await database[PREFIX + "answers"].count_documents({}) == 0


async def test_a_reflection_that_was_erased_is_not_published_again(database: Database) -> None:
    member = event_id(ASKED, FACTS, 0)
    formed = [reflection(f"r{number}", sources=[source(number)]) for number in (1, 2)]
    await decided(database, FACTS, ASKED, [proposed(USER, 1)])
    await decided(database, REFLECTIONS, member, formed)
    await forget(database, 1)
    found = (await MongoLedger(database, NAMES).find(REFLECTIONS, [member]))[member]
    assert [record.key for record in found.records] == [b"r2"]


async def test_answers_go_that_led_to_nothing_or_to_another_stages_memory(database: Database) -> None:
    await decided(database, FACTS, ASKED, [proposed(USER, 1)])
    gone = {
        f"{FACTS}:{ASKED}": (),
        f"{FACTS}:{ASKED}#1": (),
        f"fact-dedup:{event_id(ASKED, FACTS, 0)}/vectors": (),
        f"consolidation:{USER.key}@7:2": ("", "r", "q"),
        f"propagation:{USER.key}@6/agent:s.assistant": ("r",),
    }
    stays = {
        f"{FACTS}:formation/s.room:11": (),
        f"consolidation:{USER.key}@8:1": ("", "q"),
        f"consolidation:{SESSION.key}@7:1": ("", "r"),
    }
    answers = database[PREFIX + "answers"]
    await answers.insert_many(
        [{"unit": unit, "shown": list(shown)} for unit, shown in (gone | stays).items()]
    )
    await forget(database, 1)
    derived = Forgotten(
        kind="reflection",
        id="r",
        reach="for_ever",
        because="derived",
        scope=USER.key,
        asked_by=None,
        forgotten_at=minute(30),
    )
    stage = ForgettingStage(MongoForgettingStore(database, NAMES), MongoForgetting(database, NAMES))
    await stage([delivered(derived)])
    assert set(await answers.distinct("unit")) == set(stays)


async def test_an_answer_stays_that_saw_only_what_was_written_after_a_deletion(database: Database) -> None:
    """A message that is deleted and written again in one transaction has its later version in the window."""
    windows, answers = database[PREFIX + "windows"], database[PREFIX + "answers"]
    await windows.delete_many({})
    seen = {"s.old:1": "1", "s.new:1": "2"}
    for name, version in seen.items():
        message = {"message_id": "i.1", "version": version * 16, "text": "x"}
        await windows.insert_one({"_id": name, "messages": [message]})
        await answers.insert_one({"unit": f"{FACTS}:formation/{name}"})
    deleted = Forgotten(
        kind="message",
        id="i.1",
        reach="up_to_version",
        version="1" * 16,
        because="deleted",
        asked_by=None,
        forgotten_at=minute(30),
    )
    stage = ForgettingStage(MongoForgettingStore(database, NAMES), MongoForgetting(database, NAMES))
    await stage([delivered(deleted)])
    assert await answers.distinct("unit") == [f"{FACTS}:formation/s.new:1"]


async def test_a_late_answer_of_a_consolidation_goes_with_the_reflection_that_it_was_shown(
    database: Database,
) -> None:
    of = f"consolidation:{USER.key}@2"
    answers = database[PREFIX + "answers"]
    await answers.insert_many(
        [{"unit": f"{of}:1", "shown": ["", "r"]}, {"unit": f"{of}:2", "shown": ["", "q"]}]
    )
    marks = MongoForgetting(database, NAMES)
    await MongoForgettingStore(database, NAMES).mark([Mark("reflection", "r", "for_ever")], "e", NOON)
    made = blob(2, ["q"])
    assert await ForgottenLedgers(database, NAMES, marks).end_published("o", [made], [delivered(made)]) == []
    assert await answers.distinct("unit") == [f"{of}:2"]


@pytest.mark.parametrize(
    ("mark", "is_late"),
    [
        (Mark("message", "s.m1", "for_ever"), True),
        (Mark("message", "s.m1", "up_to_version", version="0"), False),
        (Mark("session", "s.room", "created_up_to", until=minute(-60)), False),
        (Mark("session", "s.room", "created_up_to", until=minute(60)), True),
        (Mark("user", "s.kim", "for_ever"), False),
    ],
)
async def test_a_late_answer_about_a_window_goes_with_what_was_shown(
    database: Database, mark: Mark, is_late: bool
) -> None:
    answers = database[PREFIX + "answers"]
    said = {"message_id": "s.m1", "version": "1" * 16, "user_id": "s.ann", "time": NOON, "text": "Hello."}
    await database[PREFIX + "windows"].update_one({"_id": WINDOW}, {"$set": {"messages": [said]}})
    shown = [(ASKED, ["", "s.m1"]), (f"{ASKED}#1", ["s.m2"]), (f"{ASKED}1", ["s.m1"])]
    await answers.insert_many([{"unit": f"{FACTS}:{asked}", "shown": of} for asked, of in shown])
    await MongoForgettingStore(database, NAMES).mark([mark], "e", NOON)
    ledgers = ForgottenLedgers(database, NAMES, MongoForgetting(database, NAMES))
    await ledgers.end_published(f"{FACTS}:{ASKED}", [], [forgotten(9)._replace(event=requested())])
    assert await answers.count_documents({}) == 3 - is_late


@pytest.mark.parametrize("forgets", [1, 2, 3])
async def test_a_late_answer_goes_with_any_of_what_it_decided_though_nothing_was_published(
    database: Database, forgets: int
) -> None:
    answers = database[PREFIX + "answers"]
    await answers.insert_many([{"unit": "fact-dedup:first", "shown": []}, {"unit": "fact-dedup:other"}])
    mark = Mark("message", source(forgets).message_id, "for_ever")
    await MongoForgettingStore(database, NAMES).mark([mark], "e", NOON)
    ledgers = ForgottenLedgers(database, NAMES, MongoForgetting(database, NAMES))
    together = [forgotten(9)._replace(event=proposed(USER, number)) for number in (1, 2)]
    assert await ledgers.end_published("fact-dedup:first", [], together) == []
    left = {"fact-dedup:other"} if forgets in (1, 2) else {"fact-dedup:first", "fact-dedup:other"}
    assert set(await answers.distinct("unit")) == left


@pytest.mark.parametrize("attempt", [1, 2])
async def test_a_late_answer_of_a_consolidation_that_is_due_no_longer_goes(
    database: Database, attempt: int
) -> None:
    answers = database[PREFIX + "answers"]
    of = f"consolidation:{USER.key}@2"
    await answers.insert_many([{"unit": f"{of}:1", "shown": ["r"]}, {"unit": f"{of}:2", "shown": ["q"]}])
    marks = MongoForgetting(database, NAMES)
    await MongoForgettingStore(database, NAMES).mark([Mark("reflection", "r", "for_ever")], "e", NOON)
    change = forgotten(9)._replace(event=changed(), attempt=attempt)
    assert await ForgottenLedgers(database, NAMES, marks).end_published("consolidation:c", [], [change]) == []
    assert await answers.distinct("unit") == ([f"{of}:2"] if attempt > 1 else [f"{of}:1", f"{of}:2"])


@pytest.mark.parametrize("decide", [True, False])
async def test_a_late_answer_about_an_added_text_goes_where_a_model_decides(
    database: Database, decide: bool
) -> None:
    answers = database[PREFIX + "answers"]
    await answers.insert_one({"unit": "fact-dedup:add"})
    mark = Mark("message", source(1).message_id, "for_ever")
    await MongoForgettingStore(database, NAMES).mark([mark], "e", NOON)
    said = FactStatement(version=1, text="Said 1.", sources=(source(1),), said_at=NOON)
    added = restated("f", said, USER, asked_at=NOON, decide=decide)
    ledgers = ForgottenLedgers(database, NAMES, MongoForgetting(database, NAMES))
    await ledgers.end_published("fact-dedup:add", [], [forgotten(9)._replace(event=added)])
    assert await answers.count_documents({}) == int(not decide)


@pytest.mark.parametrize("stage", [FACTS, REFLECTIONS])
@pytest.mark.parametrize(("user", "left"), [("s.bo", 0), ("s.cy", 1)])
async def test_a_late_answer_goes_with_the_author_of_a_message_before_its_window(
    database: Database, user: str, left: int, stage: str
) -> None:
    answers = database[PREFIX + "answers"]
    said = {"message_id": "s.m0", "version": "1" * 16, "user_id": "s.bo", "time": NOON, "text": "Hello."}
    await database[PREFIX + "windows"].update_one({"_id": WINDOW}, {"$set": {"before": [said]}})
    await answers.insert_one({"unit": f"{stage}:{ASKED}", "shown": ["s.m1", "s.m0"]})
    await MongoForgettingStore(database, NAMES).mark([Mark("user", user, "for_ever")], "e", NOON)
    ledgers = ForgottenLedgers(database, NAMES, MongoForgetting(database, NAMES))
    before = (MessageRef(message_id="s.m0", version="1" * 16),)
    asked = requested().model_copy(update={"before": before})
    extracted = FactsExtracted(cause=ASKED, window=asked.window(), outcome="empty")
    event = asked if stage == FACTS else extracted
    await ledgers.end_published(f"{stage}:{ASKED}", [], [forgotten(9)._replace(event=event)])
    assert await answers.count_documents({}) == left


def changed() -> ScopeChanged:
    """A change that leaves nothing to consolidate."""
    return ScopeChanged(
        scope=USER,
        revision=3,
        changed=("reflections",),
        applied=0,
        active_facts=0,
        buffered=1,
        blob_version=1,
        committed_at=NOON,
    )


def requested() -> FormationRequested:
    """A window of one message, said at noon."""
    return FormationRequested(
        formation_id=WINDOW,
        session_id="s.room",
        seq=1,
        agent_id="s.assistant",
        users=("s.ann",),
        participants=("s.ann",),
        scopes=(),
        sharing="team",
        messages=(MessageRef(message_id="s.m1", version="1" * 16),),
        characters=5,
        weighted_tokens=1.0,
        first_at=NOON,
        last_at=NOON,
        closed_at=minute(10),
        closed_because="asked",
        settings_version="1",
    )
