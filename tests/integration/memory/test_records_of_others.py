"""A file's records under ids of another scope's memory are found before anything is published."""

import pytest

from eden_memory.files.exporting import owned_elsewhere
from eden_memory.memory.memory_batch import Memory
from eden_memory.schemas.events import FactChanged, ReflectionFormed
from tests.integration.memory.writer_kit import Database, apply, store_of
from tests.names import NAMES
from tests.unit.memory.memory_histories import USER, delivered, fact, reflection

pytestmark = pytest.mark.servers


async def test_facts_and_reflections_of_another_scope_are_named(database: Database) -> None:
    await apply(store_of(database), [delivered(fact("f")), delivered(fact("own", text="B"))])
    await apply(store_of(database), [delivered(reflection("r"))])
    asked: dict[tuple[type[Memory], str], str] = {
        (FactChanged, "f"): "user:s.assistant:s.thief",
        (FactChanged, "own"): USER.key,
        (FactChanged, "new"): USER.key,
        (ReflectionFormed, "r"): "user:s.assistant:s.thief",
        (ReflectionFormed, "f"): USER.key,
    }
    found = await owned_elsewhere(database, NAMES, asked)
    assert found == {(FactChanged, "f"), (ReflectionFormed, "r")}
