"""Forgetting and the writer at the same moment, on a real server: whoever comes second finds what the first did."""

from collections.abc import Mapping, Sequence

import pytest

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.forgetting.forgetting_rules import BlobRef, Blobs
from eden_memory.forgetting.forgetting_store import MongoForgettingStore
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.memory.memory_batch import AppliedScope, ScopeBatch, StoredScope, fact_hash
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.processors.atlas_writer import AtlasWriter
from eden_memory.processors.forgetting import PATIENCE, ForgettingStage
from eden_memory.schemas.events import Event, FactCommanded, Forgotten
from eden_memory.schemas.provenance import Statement
from eden_memory.settings import Settings
from eden_memory.stages.stage import Decision, Delivery, Emit, Erase, Gather
from tests.integration.memory.writer_kit import PREFIX, Database
from tests.names import NAMES
from tests.unit.memory.memory_histories import (
    SESSION,
    USER,
    blob,
    command_ref,
    delivered,
    fact,
    minute,
    reflection,
    source,
    tombstone,
)

pytestmark = pytest.mark.servers
MESSAGE = "i.1"


@pytest.fixture
async def database(settings: Settings, database: Database) -> Database:
    await set_up(database, settings.names)
    return database


def forgotten(kind: str = "message", name: str = MESSAGE, because: str = "asked") -> Delivery:
    event = Forgotten.model_validate(
        {
            "kind": kind,
            "id": name,
            "reach": "for_ever",
            "because": because,
            "asked_by": None,
            "scope": USER.key if kind == "reflection" else None,
            "forgotten_at": minute(30),
        }
    )
    return delivered(event)


def forgetting(database: Database) -> ForgettingStage:
    return ForgettingStage(MongoForgettingStore(database, NAMES), MongoForgetting(database, NAMES))


async def decided(stage: ForgettingStage, delivery: Delivery) -> Decision:
    decision = await stage([delivery])
    assert isinstance(decision, Decision)
    return decision


class ForgetsBeforeTheCommit(MongoMemoryStore):
    """All of forgetting happens after the writer has read the marks, and before it writes."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, NAMES)
        self._database = database
        self.decided: list[Decision] = []

    async def apply(
        self, batches: Sequence[ScopeBatch], stored: Mapping[str, StoredScope] | None = None
    ) -> Mapping[str, AppliedScope | Exception]:
        if not self.decided:
            self.decided.append(await decided(forgetting(self._database), forgotten()))
        return await super().apply(batches, stored)


def erased(decision: Decision) -> set[str]:
    return {one.key for one in decision.events if isinstance(one, Erase)}


def told(decision: Decision) -> list[Event]:
    return [one.event for one in decision.events if isinstance(one, Emit)]


async def test_what_is_written_while_it_is_forgotten_does_not_stay(database: Database) -> None:
    store = ForgetsBeforeTheCommit(database)
    writer = AtlasWriter(store, MongoForgetting(database, NAMES))
    rests = [source(1)]
    decision = await writer([delivered(fact("f", sources=rests)), delivered(reflection("r", sources=rests))])
    assert erased(store.decided[0]) == set(), "forgetting found nothing to erase"
    assert erased(decision) == {"f@1", "r"}
    for name in ("facts", "reflections"):
        assert await database[PREFIX + name].count_documents({}) == 0
    snapshot = await database[PREFIX + "snapshots"].find_one({"_id": USER.key})
    assert snapshot is not None
    assert (snapshot["buffer"], snapshot["recent_facts"]) == ([], [])
    (late,) = [one for one in told(decision) if isinstance(one, Forgotten)]
    assert (late.kind, late.id) == ("reflection", "r")


async def test_a_blob_that_absorbed_a_reflection_in_its_one_moment_is_withdrawn(database: Database) -> None:
    writer = AtlasWriter(MongoMemoryStore(database, NAMES), MongoForgetting(database, NAMES))
    await writer([delivered(blob(1, ["r", "other"])), delivered(blob(2, ["more"]))])
    decision = await decided(forgetting(database), forgotten("reflection", "r", "derived"))
    assert erased(decision) == {f"{USER.key}@1", f"{USER.key}@2"}
    again = await decided(forgetting(database), forgotten("reflection", "other", "derived"))
    assert again.events == [], "another record has taken care of it"


async def test_a_later_version_that_absorbed_it_again_is_withdrawn_although_the_first_is_already(
    database: Database,
) -> None:
    writer = AtlasWriter(MongoMemoryStore(database, NAMES), MongoForgetting(database, NAMES))
    await writer([delivered(blob(1, ["r", "other"]))])
    assert erased(await decided(forgetting(database), forgotten("reflection", "r", "derived"))) == {
        f"{USER.key}@1"
    }
    await writer([delivered(blob(2, ["other"], based_on=0)), delivered(blob(3, ["more"]))])
    decision = await decided(forgetting(database), forgotten("reflection", "other", "derived"))
    assert erased(decision) == {f"{USER.key}@2", f"{USER.key}@3"}


@pytest.mark.parametrize("version", ["3", "9" * 18, str(2**63 - 1), "9" * 5_000, "0", "x"])
async def test_a_version_that_was_never_given_is_not_taken_before_its_time(
    database: Database, version: str
) -> None:
    writer = AtlasWriter(MongoMemoryStore(database, NAMES), MongoForgetting(database, NAMES))
    await writer([delivered(blob(1, ["r"])), delivered(blob(2, ["s"]))])
    decision = await decided(forgetting(database), forgotten("blob", f"{USER.key}@{version}"[:1_000]))
    assert decision.events == []
    withdrawn = await decided(forgetting(database), forgotten("blob", f"{USER.key}@2"))
    assert erased(withdrawn) == {f"{USER.key}@2"}


class WritesMeanwhile(MongoForgettingStore):
    """The writer stores one more version, made from a forgotten one, just before that is marked."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, NAMES)
        self._writer = AtlasWriter(MongoMemoryStore(database, NAMES), MongoForgetting(database, NAMES))
        self._wrote = False

    async def versions_from(self, blobs: Blobs) -> Sequence[BlobRef]:
        found = await super().versions_from(blobs)
        if not self._wrote:
            self._wrote = True
            await self._writer([delivered(blob(2, ["s"]))])
        return found


async def test_a_version_made_from_a_forgotten_one_meanwhile_is_withdrawn_too(database: Database) -> None:
    writer = AtlasWriter(MongoMemoryStore(database, NAMES), MongoForgetting(database, NAMES))
    await writer([delivered(reflection("r", sources=[source(1)])), delivered(blob(1, ["r"]))])
    marks = MongoForgetting(database, NAMES)
    decision = await decided(ForgettingStage(WritesMeanwhile(database), marks), forgotten())
    assert erased(decision) == {"r", f"{USER.key}@1", f"{USER.key}@2"}
    later = await writer([delivered(blob(3, ["t"]))])
    assert erased(later) == {f"{USER.key}@3"}, "it was made from version 2"


async def test_a_repeat_of_forgetting_says_the_same(database: Database) -> None:
    writer = AtlasWriter(MongoMemoryStore(database, NAMES), MongoForgetting(database, NAMES))
    await writer([delivered(reflection("r", sources=[source(1)])), delivered(blob(1, ["r"]))])
    first = await decided(forgetting(database), forgotten())
    second = await decided(forgetting(database), forgotten())
    assert erased(first) == erased(second) == {"r", f"{USER.key}@1"}
    assert told(first) == told(second)
    assert await _marks(database) == {"message", "reflection", "blob"}


async def test_a_users_blobs_go_with_the_user_whatever_they_absorbed(database: Database) -> None:
    writer = AtlasWriter(MongoMemoryStore(database, NAMES), MongoForgetting(database, NAMES))
    edited = blob(1, []).model_copy(update={"command": command_ref("edit_blob")})
    await writer([delivered(edited), delivered(blob(2, ["r"])), delivered(blob(1, [], scope=SESSION))])
    assert USER.user_id is not None
    gone = {f"{USER.key}@1", f"{USER.key}@2", f"{SESSION.key}@1", "asked/edit_blob"}
    for _ in range(2):
        assert erased(await decided(forgetting(database), forgotten("user", USER.user_id))) == gone
    later = await writer([delivered(blob(3, ["t"]))])
    assert erased(later) == {f"{USER.key}@3"}, "whatever is made of the user's memory later"


async def test_what_was_made_after_the_request_stays(database: Database) -> None:
    writer = AtlasWriter(MongoMemoryStore(database, NAMES), MongoForgetting(database, NAMES))
    await writer([delivered(blob(1, [], at=10)), delivered(blob(2, [], at=20, based_on=0))])
    await writer([tombstone(blob(1, [], at=10))])
    assert USER.user_id is not None
    asked = forgotten("user", USER.user_id)
    assert isinstance(asked.event, Forgotten)
    upto = {"reach": "created_up_to", "until": minute(15)}
    asked = asked._replace(event=asked.event.model_copy(update=upto))
    assert erased(await decided(forgetting(database), asked)) == set()


async def _marks(database: Database) -> set[str]:
    return set(await database[PREFIX + "forgotten"].distinct("kind"))


async def test_forgetting_reads_by_indexes(database: Database) -> None:
    queries = {
        "facts": {"message_ids": "i.1"},
        "reflections": {"session_ids": "s.one"},
        "messages": {"user_id": "i.1"},
        "snapshots": {"$or": [{"user_id": "i.1"}, {"audience": "i.1", "audience.1": {"$exists": False}}]},
        "windows": {"messages.message_id": {"$in": ["i.1"]}},
    }
    for name, query in queries.items():
        plan = await database.command(
            "explain", {"find": PREFIX + name, "filter": query}, verbosity="queryPlanner"
        )
        assert "IXSCAN" in str(plan["queryPlanner"]["winningPlan"]), name


async def test_what_was_merged_into_a_fact_while_it_was_forgotten_is_stated_anew(database: Database) -> None:
    store = ForgetsBeforeTheCommit(database)
    writer = AtlasWriter(store, MongoForgetting(database, NAMES))
    said = Statement(number=1, text="Ana rows.", sources=(source(2),))
    second = fact("f", 2, "Ana lives in Porto and rows.", sources=[source(1), source(2)])
    second = second.model_copy(update={"statement": said})
    decision = await writer([delivered(fact("f", sources=[source(1)])), delivered(second)])
    assert erased(decision) == {"f@1", "f@2"}
    (anew,) = [event for event in told(decision) if isinstance(event, FactCommanded)]
    assert (anew.command_id, anew.text, anew.sources) == ("restated/f/2", "Ana rows.", (source(2),))


async def test_what_another_said_too_holds_again_when_the_fact_that_it_was_joined_to_is_forgotten(
    database: Database,
) -> None:
    def retired(name: str, text: str, number: int, decision: str = "RETIRE") -> list[Delivery]:
        before = fact(name, text=text, sources=[source(number)])
        joined = {
            "hash": fact_hash(text),
            "retired_because": "duplicate",
            "replaced_by": "f",
            "decision": decision,
        }
        return [
            delivered(before),
            delivered(fact(name, 2, text, sources=[source(number)], retired=True).model_copy(update=joined)),
        ]

    writer = AtlasWriter(MongoMemoryStore(database, NAMES), MongoForgetting(database, NAMES))
    joined = [
        delivered(fact("f", number, "Ana rows.", sources=[source(1), source(2)][:number]))
        for number in (1, 2)
    ]
    edited = retired("edited", "Ana swims.", 3, "EDIT")
    updated = retired("updated", "Ana swam once.", 4, "UPDATE")
    await writer([*joined, *retired("same", "Ana rows.", 2), *edited, *updated])
    decision = await decided(forgetting(database), forgotten())
    commands = [event for event in told(decision) if isinstance(event, FactCommanded)]
    assert sorted((command.action, command.fact_id) for command in commands) == [
        ("unmerge", "same"),
        ("unmerge", "updated"),
    ]


async def test_a_fact_that_someone_asked_to_forget_does_not_come_back_by_another_of_its_messages(
    database: Database,
) -> None:
    said = Statement(number=1, text="Ana rows.", sources=(source(2),))
    second = fact("f", 2, sources=[source(1), source(2)]).model_copy(update={"statement": said})
    writer = AtlasWriter(MongoMemoryStore(database, NAMES), MongoForgetting(database, NAMES))
    await writer([delivered(fact("f", sources=[source(1)])), delivered(second)])
    await decided(forgetting(database), forgotten("fact", "f"))
    decision = await decided(forgetting(database), forgotten())
    assert erased(decision) >= {"f@1", "f@2"}, "the writer has not read the tombstones yet"
    assert not [event for event in told(decision) if isinstance(event, FactCommanded)]
    repeated = await writer([delivered(second)])
    assert not [event for event in told(repeated) if isinstance(event, FactCommanded)]


async def test_a_slice_waits_until_the_writer_has_erased_the_one_before(database: Database) -> None:
    """Live traffic of a scope never stands behind more than one slice of tombstones."""
    formed = [reflection(f"r{number}", sources=[source(number)]) for number in (1, 2, 3)]
    writer = AtlasWriter(MongoMemoryStore(database, NAMES), MongoForgetting(database, NAMES))
    await writer([delivered(event) for event in formed])
    store, now = MongoForgettingStore(database, NAMES), [0.0]
    stage = ForgettingStage(store, MongoForgetting(database, NAMES), 1, clock=lambda: now[0])
    second = following(await decided(stage, forgotten("session", "s.one")))
    assert isinstance(await stage([second]), Gather)
    await writer([tombstone(formed[0])])
    decision = await decided(stage, second)
    assert erased(decision) == {"r2"}
    third = following(decision)
    assert isinstance(await stage([third]), Gather)
    now[0] = PATIENCE + 1
    decision = await decided(stage, third)
    assert erased(decision) == {"r3"}
    await decided(stage, following(decision))  # not another time: the writer stands still


def following(decision: Decision) -> Delivery:
    """What asks for the next slice."""
    (event,) = (one for one in told(decision) if isinstance(one, Forgotten) and one.after is not None)
    return delivered(event)


@pytest.mark.parametrize(("kind", "named"), [("user", {"s.bo.b": "Bo"}), ("session", {}), ("message", None)])
async def test_names_go_also_where_nothing_was_written(
    database: Database, kind: str, named: dict[str, str] | None
) -> None:
    """A window that says what a participant is called, who wrote nothing in it."""
    windows, names = database[PREFIX + "windows"], {"s.ann.a": "Ann", "s.bo.b": "Bo"}
    held = {"session_id": "s.one", "names": names, "erased_at": None, "closed": {"at": minute(1)}}
    await windows.insert_many([{**held, "_id": "s.one/1"}, {"_id": "s.one/2", "session_id": "s.one"}])
    name = {"user": "s.ann.a", "session": "s.one", "message": MESSAGE}[kind]
    await decided(forgetting(database), forgotten(kind, name))
    rows = {row["_id"]: row.get("names") async for row in windows.find()}
    assert rows == {"s.one/1": names if named is None else named, "s.one/2": None}
