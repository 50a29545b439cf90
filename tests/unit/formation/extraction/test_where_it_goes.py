"""The table of docs/what-becomes-memory.md, row by row and for each kind of session: what it says is what happens."""

import re
from pathlib import Path

import pytest

from eden_memory.formation.window_question import SharedKnowledge
from eden_memory.schemas.answers import About
from tests.unit.formation.extraction.windows import (
    AGENT_SCOPE,
    GROUP_SCOPE,
    MARA,
    SESSION_SCOPE,
    TOM,
    USER_SCOPE,
    Bench,
    Talk,
    reflecting,
    reflection,
    said,
)

PAGE = Path(__file__).parents[4] / "docs/what-becomes-memory.md"
SESSIONS = {
    "one user": ((AGENT_SCOPE, USER_SCOPE, SESSION_SCOPE), (MARA,)),
    "several users, no group": ((AGENT_SCOPE, SESSION_SCOPE), (MARA, TOM)),
    "several members of a group": ((AGENT_SCOPE, GROUP_SCOPE, SESSION_SCOPE), (MARA, TOM)),
    "no user": ((AGENT_SCOPE, SESSION_SCOPE), ()),
}


def table() -> list[dict[str, str]]:
    after = PAGE.read_text("utf-8").partition("## Where a statement goes")[2].partition("\n## ")[0]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in after.splitlines()
        if line.startswith("|")
    ]
    return [dict(zip(head, row, strict=True)) for row in rows]


@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.parametrize("row", table(), ids=lambda row: row["said"])
async def test_a_statement_goes_where_the_page_says(row: dict[str, str], kind: str) -> None:
    (scopes, users), text = SESSIONS[kind], row["said"].partition(" (")[0].strip(",") + "."
    role = "tool" if "(a tool's" in row["said"] else "user" if users else "assistant"
    messages = [said(1, text, role=role), *(said(number, "ok", user) for number, user in enumerate(users, 2))]
    about, _, sensitive = row["judged"].partition(", ")
    judged: dict[str, About | bool] = {"about": about, "sensitive": bool(sensitive)}  # pyright: ignore[reportAssignmentType]
    item = reflection(text, "agent", 1).model_copy(update=judged)
    bench = Bench(Talk(tuple(messages), scopes, users), reflecting(item))
    if added := re.search(r"\(you added: (.*)\)", row["said"]):
        bench.kept.shared = SharedKnowledge(given=(f"Refunds take {added.group(1)}.",))
    formed, _ = await bench.reflections()
    assert [event.scope.kind for event in formed] == ([] if row[kind] == "dropped" else [row[kind]])
    check = re.match("`([a-z]+)`", row["why"])
    for event in formed:
        assert event.not_shared in (None, check.group(1) if check else None)
        assert (event.not_shared is None) == (event.scope.kind == "agent")
