"""Two documents of an earlier system whose users are one user here."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from bson import ObjectId

from eden_memory.files import earlier_v2
from eden_memory.files.earlier_records import EarlierRecords
from eden_memory.files.export_file import RecordLine, read_lines
from eden_memory.files.import_items import ImportedAs, ImportMapping, SkippedItem
from eden_memory.limits import STANDARD
from eden_memory.schemas.events import ScopeConsolidated
from tests.unit.memory.memory_histories import NOON

Row = dict[str, Any]


async def test_of_two_texts_of_a_scope_the_second_is_reported_and_absorbs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(**fields: Any) -> list[Row]:
        users = {"ada": "Ada", "ada2": "Ada, too"}
        return [
            {"_id": ObjectId(), "scope": "user", "agent_id": "a", "user_id": user, "formed_at": NOON}
            | {name: f"{text}{end}" if isinstance(end, str) else end for name, end in fields.items()}
            for user, text in users.items()
        ]

    stored = {
        earlier_v2.BLOBS: rows(consolidated_content=" sails.", last_consolidated_at=NOON),
        earlier_v2.REFLECTIONS: rows(content=" wants maps.", absorbed=True),
    }

    async def pages(_database: Any, name: str, *_: Any) -> AsyncIterator[Sequence[Row]]:
        yield stored.get(name, [])

    monkeypatch.setattr(earlier_v2, "_pages", pages)
    to = ImportedAs("eden-v2", ImportMapping(users={"ada": "s.ada", "ada2": "s.ada"}), "test", NOON)
    memories = earlier_v2.V2Memories(cast("Any", None), to, cast("Any", NobodyKnown()))
    records, file = EarlierRecords(to, STANDARD), tmp_path / "records"
    await records.write(memories.read(), file)
    events = [line.event for line in read_lines(file) if isinstance(line, RecordLine)]
    first, _second, blob = events
    assert isinstance(blob, ScopeConsolidated)
    assert (blob.text, blob.absorbed) == ("Ada sails.", (first.subject(),)), "the other text's own waits"
    (left,) = records.rest
    assert isinstance(left, SkippedItem)
    assert left.reason == "its scope has the text of another document"


class NobodyKnown:
    """A directory without sessions."""

    async def look_up(self, sessions: Any) -> dict[str, Any]:
        return {}
