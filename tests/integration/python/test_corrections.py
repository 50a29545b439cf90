"""People correct facts, reflections and blobs, pin sentences, and add memory verbatim: the inbox, and refusals."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from eden_memory.access.admission_store import Refused
from eden_memory.errors import Conflict, EdenError, Invalid, NotFound
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.documents import ReflectionVersion
from eden_memory.schemas.events import MemoryCommandRef
from eden_memory.source.source_mapping import InboxMapping
from tests.integration.context.harness import Kit
from tests.integration.python.stored import (
    ADA,
    AGENT,
    AT,
    BOB,
    SCOPES,
    fact,
    fact_of,
    fill,
    inbox,
    marked,
    reflection,
    source,
    store,
)

pytestmark = pytest.mark.servers
MAPPING = InboxMapping("test", encode_id, 8_000)
MINE: dict[str, Any] = {"user": "ada"}
PIN = "Never call before nine."


def reflection_of(scope: Any) -> str:
    return f"r-{SCOPES.index(scope)}"


async def carried(kit: Kit) -> list[dict[str, Any]]:
    """The records that the tailer makes of the inbox."""
    return [
        json.loads(MAPPING.record(row, "0" * 16, datetime.now(UTC)).value or b"") for row in await inbox(kit)
    ]


async def test_corrections_stand_in_the_inbox_as_commands_of_their_scope(kit: Kit) -> None:
    await fill(kit)
    mine = reflection_of(ADA)
    async with kit.service("a", asked_by="mara") as service:
        await service.edit(mine, "Ada wants tables.", expected_version=1, reason="told me", **MINE)
        await service.retire(mine, **MINE)
        await service.mark_private(mine, **MINE)
        await service.mark_private(mine, False, **MINE)
        await service.edit(ADA.key, "Ada likes boats.", expected_version=2, **MINE)
        await service.pin(ADA.key, PIN, **MINE)
        await service.edit(fact_of(ADA), "Ada has a boat.", **MINE)
    *asked, of_fact = await carried(kit)
    assert [(one["action"], one["reflection_id"], one["text"], one["private"]) for one in asked] == [
        ("edit_reflection", mine, "Ada wants tables.", None),
        ("retire_reflection", mine, None, None),
        ("edit_reflection", mine, None, True),
        ("edit_reflection", mine, None, False),
        ("edit_blob", None, "Ada likes boats.", None),
        ("pin", None, PIN, None),
    ]
    assert {(one["scope"]["key"], one["by"], one["asked_by"]) for one in asked} == {
        (ADA.key, "application", "mara")
    }
    assert [one["expected_version"] for one in asked] == [1, None, None, None, 2, None]
    assert (of_fact["action"], of_fact["fact_id"]) == ("edit", fact_of(ADA))


async def test_of_two_facts_of_one_scope_the_second_retires_for_the_first(kit: Kit) -> None:
    await fill(kit)
    await store(kit, [fact("again", ADA, "Ada lives in Turin, Italy.", 91)])
    mine = fact_of(ADA)
    async with kit.service("a") as service:
        await service.merge(mine, "again", reason="the same", **MINE)
        for one, other in ((mine, mine), (mine, reflection_of(ADA)), (mine, fact_of(AGENT))):
            with pytest.raises((Invalid, Refused)):
                await service.merge(one, other, **MINE)
        with pytest.raises(NotFound):
            await service.merge(mine, fact_of(BOB), **MINE)
    (asked,) = await carried(kit)
    named = (asked["action"], asked["fact_id"], asked["replaced_by"], asked["reason"])
    assert named == ("retire", "again", mine, "the same")


async def test_what_cannot_be_corrected_is_said_at_once(kit: Kit) -> None:
    await fill(kit)
    await kit.put(ADA, blob=f"Ada likes tea. {PIN}", blob_version=2, highest_blob_version=2, pins=(PIN,))
    await store(
        kit,
        [
            reflection("absorbed", ADA, "x", absorbed=True, absorbed_into=2),
            reflection("retired", ADA, "x", retired_at=AT),
        ],
    )
    mine = reflection_of(ADA)
    async with kit.service("a") as service:
        refused: list[tuple[Any, type[EdenError], str]] = [
            (service.edit(mine, "x", expected_version=3, **MINE), Conflict, "at version 1"),
            (service.retire("retired", **MINE), Conflict, "retired"),
            (service.edit("absorbed", "x", **MINE), Conflict, ADA.key),
            (service.edit(ADA.key, PIN, **MINE), Invalid, "version"),
            (service.edit(ADA.key, PIN, expected_version=1, **MINE), Conflict, "at version 2"),
            (service.edit(ADA.key, "Likes tea.", expected_version=2, **MINE), Conflict, "pinned"),
            (service.edit(ADA.key, f"{PIN} {'x ' * 400}", expected_version=2, **MINE), Invalid, "300"),
            (service.edit(ADA.key, " ", expected_version=2, **MINE), EdenError, ""),
            (service.pin(ADA.key, "y " * 400, **MINE), Invalid, "300"),
            (service.pin(ADA.key, " ", **MINE), Invalid, ""),
            (service.pin(ADA.key, "x", expected_version=1, **MINE), Conflict, "at version 2"),
            (service.unpin(ADA.key, "Ada likes tea.", **MINE), Conflict, "not pinned"),
            (service.edit(mine, "x" * 2_001, **MINE), Invalid, "2,000"),
            (service.retire(mine, reason="x" * 1_001, **MINE), Invalid, "1,000"),
            (service.retire(ADA.key, **MINE), NotFound, ""),
            (service.mark_private(fact_of(BOB), **MINE), NotFound, ""),
            (service.mark_private(fact_of(ADA), expected_version=7, **MINE), Conflict, "at version 1"),
        ]
        for call, error, says in refused:
            with pytest.raises(error) as raised:
                await call
            assert says in str(raised.value)
    assert await inbox(kit) == []


async def test_a_fact_is_marked_with_the_reflections_that_rest_on_its_messages(kit: Kit) -> None:
    await fill(kit)
    said, other = (source("s.ada", message=name) for name in ("s.m1", "s.m2"))
    await store(
        kit,
        [
            fact("told", ADA, "x", sources=(said,), message_ids=("s.m1",)),
            reflection(
                "behind", ADA, "x", sources=(said,), message_ids=("s.m1",), absorbed=True, absorbed_into=2
            ),
            reflection("too", ADA, "x", sources=(said, other), message_ids=("s.m1", "s.m2")),
            reflection("apart", ADA, "x", sources=(other,), message_ids=("s.m2",)),
            reflection("bobs", BOB, "x", sources=(said,), message_ids=("s.m1",)),
        ],
    )
    async with kit.service("a") as service:
        asked = await service.mark_private("told", reason="told me so", **MINE)
    of_fact, *commands = await carried(kit)
    assert (of_fact["action"], of_fact["fact_id"], of_fact["private"]) == ("mark", "told", True)
    assert [(one["reflection_id"], one["private"], one["text"]) for one in commands] == [
        ("behind", True, None),
        ("too", True, None),
    ]
    assert asked == encode_id((await inbox(kit))[-1]["_id"])


async def test_memory_of_others_is_not_found_and_shared_memory_is_an_operators(kit: Kit) -> None:
    await fill(kit)
    await store(kit, [reflection("anas", AGENT, "x", sources=(source("s.ada"),))])
    async with kit.service("a") as service:
        for call in (
            service.edit(reflection_of(BOB), "x", **MINE),
            service.mark_private(reflection_of(BOB), **MINE),
            service.edit(BOB.key, "x", expected_version=2, **MINE),
            service.pin(BOB.key, PIN, **MINE),
            service.unpin(BOB.key, PIN),
        ):
            with pytest.raises(NotFound):
                await call
        for call in (
            service.pin(AGENT.key, PIN, **MINE),
            service.edit(AGENT.key, "x", expected_version=2, **MINE),
            service.retire(reflection_of(AGENT), **MINE),
        ):
            with pytest.raises(Refused):
                await call
        assert await inbox(kit) == []
        await service.retire("anas", **MINE)
        await service.pin(AGENT.key, PIN)
    assert [one["action"] for one in await inbox(kit)] == ["retire_reflection", "pin"]


async def test_a_verbatim_text_is_a_fact_or_reflection_as_it_stands(kit: Kit) -> None:
    await fill(kit)
    at = datetime(2026, 2, 1, tzinfo=UTC)
    async with kit.service("a") as service:
        added = await service.add("Ada's boat is called Tern.", verbatim=True, at=at, **MINE)
        await service.add("Wants maps.", verbatim=True, kind="reflection", session="one", **MINE)
        await service.add([{"content": "We ship on Fridays."}], verbatim=True)
        for call in (
            service.add("x" * 2_001, verbatim=True, **MINE),
            service.add("x", verbatim=True, session="one"),
            service.add("x", verbatim=True, scope="agent", **MINE),
            service.add("x", verbatim=True, kind="blob", **MINE),  # pyright: ignore[reportArgumentType]
            service.add([{"content": "x", "created_at": datetime(2999, 1, 1, tzinfo=UTC)}], verbatim=True),
        ):
            with pytest.raises(Invalid):
                await call
    fact, note, shared = await carried(kit)
    assert (fact["action"], fact["text"], fact["scope"]["key"]) == (
        "add",
        "Ada's boat is called Tern.",
        ADA.key,
    )
    assert datetime.fromisoformat(fact["said_at"]) == at
    assert added.request_ids == (fact["command_id"],)
    assert [one["session_id"] for one in fact["sources"]] == [added.session]
    assert (note["action"], note["scope"]["key"]) == ("add_reflection", ADA.key)
    assert [(one["session_id"], one["user_id"]) for one in note["sources"]] == [("s.one", "s.ada")]
    assert shared["scope"]["key"] == AGENT.key


async def test_a_service_that_may_not_change_what_others_see_adds_nothing_for_all(kit: Kit) -> None:
    async with kit.service("a") as service:
        service.changes_shared = False
        with pytest.raises(Refused):
            await service.add("x", verbatim=True)
    assert await inbox(kit) == []


async def test_a_retired_reflection_waits_no_more_and_its_history_stays(kit: Kit) -> None:
    await fill(kit)
    command = MemoryCommandRef(
        command_id="c", action="retire_reflection", by="person", asked_at=AT, reason="old"
    )
    first = ReflectionVersion(version=1, content="first", said_at=AT)
    await store(
        kit, [reflection("gone", ADA, "x", version=2, retired_at=AT, command=command, history=(first,))]
    )
    async with kit.service("a") as service:
        waiting = await service.list_reflections(absorbed=False, scopes=["user"], **MINE)
        everything = await service.list_reflections(scopes=["user"], **MINE)
        gone = await service.reflection("gone", **MINE)
    assert [one.content for one in waiting.items] == [f"reflects {marked(ADA)}"]
    assert {one.reflection_id for one in everything.items} == {"gone", reflection_of(ADA)}
    assert (gone.version, gone.retired_at) == (2, AT)
    assert gone.command is not None
    assert (gone.command.action, gone.command.reason) == ("retire_reflection", "old")
    assert [(one.version, one.content) for one in gone.earlier] == [(1, "first")]
