"""Items that memory refuses, whatever their source says."""

from typing import Any, cast

from eden_memory.files.import_items import ImportedAs, ImportMapping, ImportReport
from eden_memory.files.importing import Judging
from eden_memory.forgotten import Marks
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import ModelsSettings, Settings
from tests.unit.memory.memory_histories import NOON

MODELS = ModelsSettings(fast="m", free="m", paid="m")  # pyright: ignore[reportCallIssue]


class Held:
    """Memory that holds sessions with these audiences, and nothing else."""

    def __init__(self, audiences: dict[str, tuple[str, ...]]) -> None:
        self._audiences = audiences

    async def audiences(self, keys: Any) -> dict[str, tuple[str, ...]]:
        return {key: self._audiences[key] for key in keys if key in self._audiences}

    async def taken(self, items: Any) -> tuple[set[str], set[str]]:
        return set(), set()

    async def blobs(self, keys: Any) -> set[str]:
        return set()

    async def marks(self, named: Any) -> Marks:
        return Marks()


async def test_a_sessions_memory_is_refused_where_others_take_part_in_it_here() -> None:
    ann, bob = "s.ann", "s.bob"
    scopes = {
        name: Scope.of_session("s.helper", f"s.{name}", (ann, bob)) for name in ("same", "wider", "new")
    }
    held = Held({scopes["same"].key: (bob, ann), scopes["wider"].key: (ann, bob, "s.eve")})
    report = ImportReport()
    judging = Judging(Settings(llm="http://127.0.0.1:9/v1", models=MODELS), cast("Any", held), report)
    to = ImportedAs("eden", ImportMapping(), "test", NOON)
    made = [to.reflection(name, name, f"About {name}.", scope, None) for name, scope in scopes.items()]
    assert {item.where for item in await judging.new(made)} == {"same", "new"}
    assert list(report.skipped) == ["others take part in its session here"]
