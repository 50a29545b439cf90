"""Memory that scopes here get by commands: private sharing hides it as it did where it was formed."""

from pathlib import Path

from eden_memory.directory.participants import own_session
from eden_memory.files.export_file import without_data, writing
from eden_memory.files.import_items import Entry, ImportedAs, ImportedItem, ImportMapping, SkippedItem
from eden_memory.files.record_rules import OF_USERS, PROPAGATED, ForgottenHere, HeldMemory
from eden_memory.memory.memory_batch import Memory
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.envelope import STORE_FORMAT
from eden_memory.schemas.events import Propagated
from eden_memory.schemas.exported import ExportHeader
from eden_memory.schemas.scopes import Scope
from tests.unit.memory.memory_histories import NOON, blob, delivered, fact, minute, reflection, source

AGENT = Scope.of_agent("s.helper")
CREW = Scope.of_group("s.helper", "s.crew")


async def entries(path: Path, events: list[Memory], held: HeldMemory | None = None) -> list[Entry]:
    """What a scope that holds something takes of these events."""
    held = held or HeldMemory(ForgottenHere(), scopes={AGENT.key, CREW.key})
    with writing(path) as writer:
        writer.header(
            ExportHeader(store_format=STORE_FORMAT, export_id="0" * 32, exported_at=NOON, program="0.1.0")
        )
        for event in events:
            held.learn(event)
            record = delivered(event)
            writer.record(without_data(record.envelope, record.key), event.json_bytes())
        writer.end()
    to = ImportedAs("eden", ImportMapping(), "test", minute(1_000))
    return [entry async for entry in held.items(str(path), to)]


async def test_a_blob_that_absorbed_what_users_said_is_left_out_and_its_reflections_are_not(
    tmp_path: Path,
) -> None:
    ours = source(1).model_copy(update={"participants": 0, "user_id": None})
    events: list[Memory] = [
        reflection("all", scope=AGENT, sources=[ours]),
        reflection("user", scope=AGENT, sources=[source(2)]),
        reflection("later", scope=AGENT, sources=[ours]),
        blob(1, ["all"], scope=AGENT),
        blob(2, ["user"], scope=AGENT),
        blob(3, ["later"], scope=AGENT),
    ]
    found = await entries(tmp_path / "memory.jsonl", events)
    taken = [(item.where, item.kind) for item in found if isinstance(item, ImportedItem)]
    assert taken == [("line 3", "reflection"), ("line 4", "reflection"), ("line 5", "blob")]
    left = [(item.where, item.reason) for item in found if isinstance(item, SkippedItem)]
    assert left == [("line 6", OF_USERS)]


async def test_a_fact_belongs_to_the_session_that_private_sharing_protects(tmp_path: Path) -> None:
    given = source(2).model_copy(update={"session_id": encode_id(own_session("s.helper", None))})
    (item,) = await entries(tmp_path / "memory.jsonl", [fact("f", scope=AGENT, sources=[source(1), given])])
    assert isinstance(item, ImportedItem)
    assert getattr(item.request, "session_id", None) == "one"


async def test_a_groups_blob_is_left_out_because_forgetting_one_of_its_users_would_not_reach_it(
    tmp_path: Path,
) -> None:
    together = source(1).model_copy(update={"participants": 2, "user_id": "s.ann"})
    events: list[Memory] = [
        reflection("shared", scope=CREW, sources=[together]),
        blob(1, ["shared"], scope=CREW),
    ]
    (taken, left) = await entries(tmp_path / "memory.jsonl", events)
    assert isinstance(taken, ImportedItem)
    assert getattr(taken.request, "sources", None) == (together,)
    assert left == SkippedItem("line 3", OF_USERS)


async def test_what_was_propagated_is_left_out_because_private_sharing_would_hide_it(tmp_path: Path) -> None:
    came = Propagated(reflection_id="own", scope=Scope.of_user("s.helper", "s.ann"))
    found = reflection("made", scope=AGENT, sources=[source(1)]).model_copy(
        update={"origin": "propagated", "propagated_from": came}
    )
    assert await entries(tmp_path / "memory.jsonl", [found]) == [SkippedItem("line 2", PROPAGATED)]


async def test_what_the_source_has_absorbed_since_the_last_import_waits_for_the_blob_that_is_here(
    tmp_path: Path,
) -> None:
    scope = Scope.of_user("s.helper", "s.ann")
    said = source(1).model_copy(update={"user_id": "s.ann"})
    held = HeldMemory(ForgottenHere(), scopes={scope.key}, known={"old"}, with_blob={scope.key})
    events: list[Memory] = [
        reflection("new", scope=scope, sources=[said]),
        reflection("old", scope=scope, sources=[said]),
        blob(1, ["old"], scope=scope),
        blob(2, ["new"], scope=scope),
    ]
    found = await entries(tmp_path / "memory.jsonl", events, held)
    taken = [(item.where, item.kind) for item in found if isinstance(item, ImportedItem)]
    assert taken == [("line 2", "reflection"), ("line 5", "blob")]
