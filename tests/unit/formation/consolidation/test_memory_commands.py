"""Commands on reflections and blobs: each begins as the tailer's own record of an inbox document."""

from typing import Any

import pytest
from bson import ObjectId

from eden_memory.forgotten import Mark
from eden_memory.formation.consolidation_rules import shortcoming, within_limit
from eden_memory.mongo.document_fields import Unusable
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    MemoryCommanded,
    Propagated,
    ReflectionFormed,
    ScopeConsolidated,
    decode,
)
from eden_memory.source.source_mapping import InboxMapping
from eden_memory.stages.stage import Decision, Delivery, Emit, Erase, Gather
from tests.unit.formation.consolidation.kit import (
    NOON,
    USER,
    Around,
    Model,
    as_stored,
    at,
    reflection,
    snapshot,
)

ASKED = at(3_600)
STORED = as_stored("r1")
BLOB: dict[str, Any] = {"blob": "Likes tea. Lives in Porto.", "blob_version": 2, "highest_blob_version": 2}


def command(action: str, **fields: Any) -> Delivery:
    """The record that the tailer makes of a request."""
    document = {"_id": ObjectId(), "kind": "memory_command", "scope": USER.model_dump(), "action": action}
    mapping = InboxMapping("test", encode_id, 8_000)
    record = mapping.record({**document, "by": "person", "asked_by": "mara", **fields}, "0" * 15 + "1", ASKED)
    envelope = Envelope.of_headers(record.headers)
    assert record.value is not None
    event = decode(envelope.name, envelope.version, record.value)
    return Delivery(envelope, event, record.topic, record.key.decode())


def around(**fields: Any) -> Around:
    return Around(snapshot(reflection(1), **fields), Model([]), stored={"r1": STORED})


async def carried_out(stage: Around, delivery: Delivery) -> Any:
    result = await stage.run(delivery)
    assert isinstance(result, Decision), (result, stage.commanded())
    (emit,) = result.events
    assert isinstance(emit, Emit)
    return emit.event, result.writes


async def test_an_edited_reflection_is_its_next_version_with_the_command_behind_it() -> None:
    asked = command(
        "edit_reflection", reflection_id="r1", expected_version=1, text=" drinks\n tea ", reason="told me"
    )
    event, writes = await carried_out(around(), asked)
    assert isinstance(event, ReflectionFormed)
    assert (event.version, event.text, event.said_at, event.formed_at) == (2, "drinks tea", ASKED, at(60))
    assert event.command is not None
    assert (event.command.asked_by, event.command.reason) == ("mara", "told me")
    assert (event.key(), writes) == ("r1@2", ("reflection:r1@2",))


async def test_a_reflection_marked_private_keeps_its_text_and_time() -> None:
    event, _ = await carried_out(around(), command("edit_reflection", reflection_id="r1", private=True))
    assert (event.private, event.text, event.said_at) == (True, "reflection 1", at(60))


async def test_a_retired_reflection_keeps_its_text_and_leaves_the_buffer() -> None:
    event, _ = await carried_out(around(), command("retire_reflection", reflection_id="r1"))
    assert (event.version, event.retired_at, event.text) == (2, ASKED, "reflection 1")


async def test_the_newest_version_is_the_one_decided_though_the_writer_has_not_applied_it() -> None:
    stage = around()
    first, _ = await carried_out(stage, command("edit_reflection", reflection_id="r1", text="tea"))
    stage.events_beyond.append(first)
    event, _ = await carried_out(stage, command("edit_reflection", reflection_id="r1", text="coffee"))
    assert (event.version, event.text) == (3, "coffee")


async def test_an_added_reflection_has_one_id_however_often_it_is_decided() -> None:
    asked = command("add_reflection", text="Wants PDF.", said_at=NOON, private=True)
    event, writes = await carried_out(around(), asked)
    again, _ = await carried_out(around(), asked)
    assert event == again
    assert (event.origin, event.said_at, event.formed_at, event.private) == ("added", NOON, ASKED, True)
    assert writes == (f"reflection:{event.reflection_id}@1",)


async def test_an_edited_blob_is_based_on_the_version_that_the_person_saw() -> None:
    event, writes = await carried_out(
        around(**BLOB), command("edit_blob", expected_version=2, text="Likes coffee.\n")
    )
    assert isinstance(event, ScopeConsolidated)
    assert (event.version, event.based_on, event.text, event.because) == (3, 2, "Likes coffee.", "edited")
    assert (event.absorbed, event.said_at, writes) == ((), ASKED, (f"blob:{USER.key}@3",))


async def test_a_pinned_sentence_goes_into_the_text_where_that_lacks_it() -> None:
    event, _ = await carried_out(around(**BLOB), command("pin", text="Never call before nine."))
    assert event.pins == ("Never call before nine.",)
    assert event.text == "Likes tea. Lives in Porto.\nNever call before nine."
    held, _ = await carried_out(around(**BLOB), command("pin", text="Lives in Porto."))
    assert (held.pins, held.text) == (("Lives in Porto.",), "Likes tea. Lives in Porto.")


async def test_an_unpinned_sentence_stays_in_the_text_and_need_not_stay_any_more() -> None:
    stage = around(**BLOB, pins=("Likes tea.", "Lives in Porto."))
    event, _ = await carried_out(stage, command("unpin", text="Likes tea."))
    assert (event.pins, event.text) == (("Lives in Porto.",), BLOB["blob"])


@pytest.mark.parametrize(
    ("asked", "why", "fields"),
    [
        (command("edit_blob", expected_version=1, text="x"), "stale", {}),
        (command("edit_blob", expected_version=2, text="Likes tea. Lives in Porto."), "needless", {}),
        (command("edit_blob", expected_version=2, text="word " * 301), "too_long", {}),
        (command("edit_blob", expected_version=2, text="Other."), "pinned", {"pins": ("Likes tea.",)}),
        (command("unpin", text="Nobody pinned this."), "unknown", {}),
        (command("edit_reflection", reflection_id="r1", expected_version=4, text="x"), "stale", {}),
        (command("edit_reflection", reflection_id="r1", text="reflection 1"), "needless", {}),
        (command("retire_reflection", reflection_id="r9"), "unknown", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_cannot_be_carried_out_changes_nothing_and_is_counted(
    asked: Delivery, why: str, fields: dict[str, Any]
) -> None:
    stage = around(**BLOB, **fields)
    assert isinstance(asked.event, MemoryCommanded)
    named = [(erase.of, erase.key) for erase in await stage.run(asked)]
    assert named == ([] if asked.event.text is None else [(MemoryCommanded, asked.event.command_id)])
    assert stage.commanded() == {(asked.event.action, why): 1}


async def test_a_reflection_that_a_blob_has_absorbed_is_not_edited_any_more() -> None:
    stage = around(**BLOB)
    stage.stored["r1"] = STORED.model_copy(update={"absorbed": True, "absorbed_into": 2})
    assert await stage.run(command("retire_reflection", reflection_id="r1")) == ()
    assert stage.commanded() == {("retire_reflection", "absorbed"): 1}


@pytest.mark.parametrize("private", [True, False])
async def test_a_reflection_that_becomes_private_takes_back_what_was_propagated_from_it(
    private: bool,
) -> None:
    stage = around(**BLOB)
    absorbed = {"absorbed": True, "absorbed_into": 2, "private": not private}
    stage.stored["r1"] = STORED.model_copy(update=absorbed)
    result = await stage.run(command("edit_reflection", reflection_id="r1", private=private))
    changed, *others = [emit.event for emit in result.events]
    assert (changed.version, changed.private, changed.text) == (2, private, "reflection 1")
    gone = [(other.kind, other.id, other.reach, other.asked_by) for other in others]
    assert gone == ([("reflection", Propagated.id_of("r1"), "for_ever", "mara")] if private else [])


@pytest.mark.parametrize(
    ("action", "change"), [("edit_reflection", {"private": True}), ("retire_reflection", {})]
)
async def test_what_a_reflection_supported_ends_when_it_becomes_private_or_is_retired(
    action: str, change: dict[str, Any]
) -> None:
    stage = around(**BLOB)
    stage.supported = ["r9"]
    result = await stage.run(command(action, reflection_id="r1", **change))
    _, gone = [emit.event for emit in result.events]
    assert (gone.kind, gone.id, gone.reach) == ("reflection", "r9", "for_ever")


async def test_a_reform_takes_back_nothing_from_live_memory() -> None:
    stage = around(**BLOB)
    stage.stored["r1"] = STORED.model_copy(update={"absorbed": True, "absorbed_into": 2})
    result = await stage.run(command("edit_reflection", reflection_id="r1", private=True), is_live=False)
    assert [type(emit.event).__name__ for emit in result.events] == ["ReflectionFormed"]


async def test_a_reflection_of_another_scope_is_unknown_here() -> None:
    stage = around()
    stage.stored["r1"] = STORED.model_copy(update={"scope_key": "user:s.a:i.2"})
    assert await stage.run(command("retire_reflection", reflection_id="r1")) == ()
    assert stage.commanded() == {("retire_reflection", "unknown"): 1}


async def test_nothing_is_added_to_the_memory_of_a_forgotten_user() -> None:
    stage = around()
    stage.marks.append(Mark("user", "i.1", "created_up_to", until=ASKED))
    (ended,) = await stage.run(command("add_reflection", text="Wants PDF."))
    assert isinstance(ended, Erase)
    assert stage.commanded() == {("add_reflection", "forgotten"): 1}


async def test_an_edit_of_a_forgotten_blob_waits_until_the_writer_has_taken_it_back() -> None:
    stage = around(**BLOB)
    stage.marks.append(Mark("blob", f"{USER.key}@2", "for_ever"))
    assert isinstance(await stage.run(command("pin", text="Likes tea.")), Gather)


async def test_a_blob_is_not_made_from_a_reflection_whose_next_version_is_decided() -> None:
    four = [reflection(number) for number in (1, 2, 3, 4)]
    stage = Around(snapshot(*four), Model([]), writes={"reflection:r2@2"})
    assert await stage.run() == ()


async def test_a_blob_keeps_its_pins_whatever_the_model_makes_of_them() -> None:
    four = [reflection(number) for number in (1, 2, 3, 4)]
    stage = Around(snapshot(*four, **BLOB, pins=("Likes tea.",)), Model(["Likes coffee.", "Likes coffee."]))
    result = await stage.run()
    assert isinstance(result, Decision)
    event = result.events[0]
    assert isinstance(event, ScopeConsolidated)
    assert (event.pins, event.text) == (("Likes tea.",), "Likes coffee.\nLikes tea.")
    assert "Likes tea." in stage.model.asked[0][0].user
    assert stage.model.paid == 2, "the model was asked once more before the sentence was put back"


def test_a_text_over_its_limit_is_cut_around_its_pins() -> None:
    answer = ConsolidatedText(text="One two three four five. Six seven eight nine ten.")
    text, cut = within_limit(answer, 8, ("Stays for good.",))
    assert (text, cut) == ("One two three four five.\nStays for good.", True)
    assert shortcoming(ConsolidatedText(text="Stays  for\ngood."), 8, ("Stays for good.",)) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"action": "edit_blob", "text": " "},
        {"action": "edit_blob", "text": "no version named"},
        {"action": "retire_reflection"},
        {"action": "edit_reflection", "reflection_id": "r1"},
        {"action": "pin", "text": "x", "reflection_id": "r1"},
        {"action": "pin", "text": "x" * 2_001},
        {"action": "pin", "text": "x", "session_id": "s"},
    ],
)
def test_a_request_that_says_too_little_or_too_much_is_refused(fields: dict[str, Any]) -> None:
    action = fields.pop("action")
    with pytest.raises(Unusable):
        command(action, **fields)
