"""A reform gives its memory the private marks that people made; those of formation it makes itself."""

from typing import Any

import pytest

from eden_memory.mongo.documents import row_of
from eden_memory.names import Names
from eden_memory.replay.user_edits.reapplying import AddedMemoryStore, stands_by_itself
from eden_memory.schemas.events import MemoryCommandRef
from eden_memory.schemas.events.reflections import MemoryAction
from tests.integration.python.stored import ADA, AT, reflection
from tests.integration.replay.replay_kit import ReplayKit


def commanded(action: MemoryAction = "edit_reflection") -> MemoryCommandRef:
    return MemoryCommandRef(command_id="c", action=action, by="person", asked_at=AT)


@pytest.mark.servers
async def test_marks_of_people_are_given_again_and_those_of_formation_are_not(kit: ReplayKit) -> None:
    before = {"version": 1, "content": "Likes maps.", "said_at": AT, "private": True, "command": commanded()}
    of_people: dict[str, dict[str, Any]] = {
        "marked": {"version": 2, "command": commanded()},
        "reworded-since": {"version": 2, "history": (before,)},
    }
    names = Names("private_")
    await kit.database[names["reflections"]].insert_many(
        row_of(reflection(name, ADA, "Likes maps.", private=True, **fields))
        for name, fields in {**of_people, "planted": {}}.items()
    )
    marks = [mark async for mark in AddedMemoryStore(kit.database, names).private()]
    assert [mark.id for mark in marks] == sorted(of_people)
    assert not any(map(stands_by_itself, marks)), "they rest on no message that could match"
