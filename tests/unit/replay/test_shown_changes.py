"""What people changed is shown before a switch: no text in it does anything to a terminal."""

from datetime import UTC, datetime

from eden_memory.cli.replay.reform_shown import user_edits
from eden_memory.replay.user_edits.user_edits import AppliedEdits, SettledEdit, UserEdit
from eden_memory.schemas.events import CommandRef
from eden_memory.schemas.scopes import Scope

HOSTILE = "\x1b]0;owned\x07 \x9b31m\nsecond line"


def test_a_text_that_a_terminal_would_obey_is_made_harmless() -> None:
    change = UserEdit(
        fact_id="f-1",
        scope=Scope.of_user("s.a", "s.ana"),
        kind="edit",
        before=("before",),
        after=HOSTILE,
        command=CommandRef(command_id="c-1", action="edit", by="person"),
        at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    shown = user_edits(AppliedEdits(unmatched=(SettledEdit(change, "unmatched"),)))
    assert len(shown) == 2
    assert all(one.isprintable() for one in shown), shown
    assert "second line" in shown[1]
