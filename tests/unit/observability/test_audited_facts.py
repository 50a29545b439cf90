"""Which stored facts an audit takes for a person's words."""

from datetime import UTC, datetime
from typing import Any

import pytest

from eden_memory.observability.audit_store import _fact as audited  # pyright: ignore[reportPrivateUsage]

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def version(text: str, action: str | None) -> dict[str, Any]:
    return {"content": text, "command": None if action is None else {"action": action}}


@pytest.mark.parametrize(
    ("versions", "commanded"),
    [
        ([version("A", None)], False),
        ([version("A", "mark"), version("A", None)], False),
        ([version("A", "mark"), version("A", "reembed"), version("A", "add")], True),
        ([version("A", None), version("A", "edit"), version("B", None)], True),
        ([version("B", None), version("A", "add")], False),
    ],
    ids=["formed", "marked", "added and marked", "edited and confirmed", "reworded since"],
)
def test_the_command_that_gave_the_text_counts(versions: list[dict[str, Any]], commanded: bool) -> None:
    newest, *history = versions
    row = {"_id": "f", "version": 3, "scope_key": "user:s.a:s.u", "agent_id": "s.a", "valid_from": NOW}
    assert audited({**row, **newest, "history": history}).commanded == commanded
