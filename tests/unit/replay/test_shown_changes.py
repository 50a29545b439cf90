"""What people changed is shown before a switch: no text in it does anything to a terminal."""

from datetime import UTC, datetime

from eden_memory.cli.replay.reform_report import user_edits
from eden_memory.replay.user_edits.user_edits import AppliedAdditions, AppliedEdits, SettledEdit, UserEdit
from eden_memory.schemas.events import CommandRef
from eden_memory.schemas.scopes import Scope

HOSTILE = "\x1b]0;owned\x07 \x9b31m\nsecond line"


def edit(command: str, after: str = "after") -> UserEdit:
    return UserEdit(
        fact_id="f-1",
        scope=Scope.of_user("s.a", "s.ana"),
        kind="edit",
        before=("before",),
        after=after,
        command=CommandRef(
            command_id=command, action="edit", by="person", asked_at=datetime(2026, 1, 1, tzinfo=UTC)
        ),
        at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_a_text_that_a_terminal_would_obey_is_made_harmless() -> None:
    shown = user_edits(AppliedEdits((SettledEdit(edit("c-1", HOSTILE), "unmatched"),)))
    assert len(shown) == 2
    assert all(one.isprintable() for one in shown), shown
    assert "second line" in shown[1]


def test_after_a_switch_only_what_came_after_the_reform_is_shown() -> None:
    before = AppliedEdits(
        (SettledEdit(edit("c-1"), "applied"), SettledEdit(edit("c-2"), "unmatched")),
        additions=AppliedAdditions(applied=3, not_applied=2),
    )
    late = SettledEdit(edit("c-3"), "unmatched")
    after = AppliedEdits(
        (SettledEdit(edit("c-1"), "already"), SettledEdit(edit("c-2"), "unmatched"), late),
        additions=AppliedAdditions(applied=1, already=3, not_applied=2),
    )
    assert after.without(before) == AppliedEdits((late,), AppliedAdditions(applied=1))
    unchanged = AppliedEdits(
        before.settled,
        additions=AppliedAdditions(already=3, not_applied=2),
    )
    assert user_edits(unchanged.without(before)) == []
