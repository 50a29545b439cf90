"""Who was alone in a session, and which of its messages no memory holds yet."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eden_memory.access.visible import Asker
from eden_memory.context.context_xml import LONGEST_MESSAGE, context_xml
from eden_memory.context.written_message_store import SessionNow, WrittenMessage, unsettled, was_alone
from eden_memory.directory.participants import Audiences, Missing, Off, SessionFacts
from eden_memory.forgotten import Mark, Marks
from eden_memory.memory.memory_views import RecentMessage
from eden_memory.search.search_requests import found_unformed
from eden_memory.settings import MemorySettings

ADA, BOB = "s.ada", "s.bob"
ASKER = Asker("s.a", "s.now", ADA)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
LISTED, UNLISTED = SessionFacts("s.a", (ADA,)), SessionFacts("s.a", None)
JUST_ADA = frozenset({ADA})


def test_the_only_user_ever_was_alone() -> None:
    assert was_alone(ASKER, "s.1", SessionNow(LISTED, frozenset()))
    assert was_alone(ASKER, "s.1", SessionNow(LISTED, JUST_ADA, JUST_ADA, Audiences().followed_by([ADA])))
    assert was_alone(ASKER, "s.1", SessionNow(UNLISTED, JUST_ADA))
    assert was_alone(ASKER, "s.1", SessionNow(UNLISTED, frozenset(), JUST_ADA)), "an added text"


@pytest.mark.parametrize(
    "now",
    [
        SessionNow(Missing("no document"), JUST_ADA),
        SessionNow(SessionFacts("s.b", (ADA,)), JUST_ADA),
        SessionNow(SessionFacts("s.a", (ADA, BOB)), JUST_ADA),
        SessionNow(SessionFacts("s.a", ()), JUST_ADA),
        SessionNow(SessionFacts("s.a", (ADA,), user_memory=False), JUST_ADA),
        SessionNow(SessionFacts("s.a", (ADA,), off=frozenset({"user"})), JUST_ADA),
        SessionNow(LISTED, None),
        SessionNow(LISTED, frozenset({ADA, BOB})),
        SessionNow(LISTED, JUST_ADA, frozenset({BOB})),
        SessionNow(LISTED, JUST_ADA, JUST_ADA, Audiences().followed_by([ADA, BOB]).followed_by([ADA])),
        SessionNow(UNLISTED, frozenset()),
        SessionNow(UNLISTED, JUST_ADA, anonymous=True),
    ],
)
def test_everything_else_is_not_alone(now: SessionNow) -> None:
    assert not was_alone(ASKER, "s.1", now)


def test_nobody_is_alone_in_what_is_switched_off() -> None:
    now = SessionNow(LISTED, JUST_ADA)
    assert not was_alone(ASKER, "s.1", now, Off(sessions=frozenset({"s.1"})))
    assert not was_alone(ASKER, "s.1", now, Off(users=JUST_ADA))
    assert not was_alone(Asker("s.a", None, None), "s.1", now)


def written(name: str = "s.m", **changed: Any) -> WrittenMessage:
    return WrittenMessage(name, "s.1", "user", "Pixel barks.", NOW, NOW)._replace(**changed)


def row(**changed: Any) -> dict[str, Any]:
    known = {"session_id": "s.1", "version": "0" * 15 + "1", "time": NOW, "formation_id": None}
    return {**known, "deleted": False, "opted_out": False, "forgotten": False, **changed}


def left(message: WrittenMessage, known: dict[str, Any] | None = None, *marks: Mark) -> list[RecentMessage]:
    rows = {} if known is None else {message.message_id: known}
    return unsettled(ADA, [message], rows, {"landed"}, (Marks(marks),), NOW - timedelta(days=1))


def test_what_waits_or_is_being_formed_is_left() -> None:
    assert left(written())
    assert left(written(), row())
    assert left(written(), row(formation_id="under way"))
    assert left(written(role="assistant"))[0].speaker == "agent"


@pytest.mark.parametrize(
    "known",
    [
        {"formation_id": "landed"},
        {"deleted": True},
        {"opted_out": True},
        {"forgotten": True},
        {"session_id": "s.2"},
    ],
)
def test_what_is_settled_gone_or_moved_is_not(known: dict[str, Any]) -> None:
    assert not left(written(), row(**known))


@pytest.mark.parametrize("changed", [{"text": " "}, {"role": "tool"}, {"said_at": NOW - timedelta(days=2)}])
def test_empty_and_old_messages_and_those_of_tools_are_not(changed: dict[str, Any]) -> None:
    assert not left(written(**changed))


@pytest.mark.parametrize(
    "mark",
    [
        Mark("message", "s.m", "for_ever"),
        Mark("message", "s.m", "up_to_version", version="0" * 15 + "1"),
        Mark("session", "s.1", "created_up_to", until=NOW),
        Mark("user", ADA, "created_up_to", until=NOW + timedelta(hours=1)),
    ],
)
def test_marks_of_forgetting_reach_it_known_or_not(mark: Mark) -> None:
    assert not left(written(), row(), mark)
    assert not left(written(), None, mark)
    assert not left(written(role="assistant"), None, mark)


def test_what_was_said_in_the_second_of_the_request_is_forgotten_with_the_rest() -> None:
    said = NOW + timedelta(milliseconds=400)
    mark = Mark("user", ADA, "created_up_to", until=NOW)
    assert not left(written(said_at=said, written_at=said), None, mark)
    later = NOW + timedelta(seconds=1)
    assert left(written(said_at=later, written_at=later), None, mark)


def test_a_session_that_was_forgotten_earlier_may_go_on() -> None:
    assert left(written(), row(), Mark("session", "s.1", "created_up_to", until=NOW - timedelta(hours=1)))


def recent(text: str, minutes: int = 0) -> RecentMessage:
    return RecentMessage(f"s.{text}", "s.1", "user", text, NOW - timedelta(minutes=minutes))


def test_a_context_shows_the_newest_words_in_the_order_in_which_they_were_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eden_memory.context.context_xml.RECENT_WORDS", 4)
    xml = context_xml(
        (), NOW, MemorySettings(), recent=[recent("three <Recent> words"), recent("one", 1), recent("x y", 2)]
    )
    assert "- [user] one (1m ago)\n    - [user] three &lt;Recent&gt; words (just now)\n  </Recent>" in xml
    assert "x y" not in xml


def test_one_long_message_is_cut_with_and_without_spaces() -> None:
    long = context_xml((), NOW, MemorySettings(), recent=[recent("word " * 1_000)])
    assert long.count("word") == LONGEST_MESSAGE
    unspaced = context_xml((), NOW, MemorySettings(), recent=[recent("字" * 9_000)] * 30)
    assert unspaced.count("字") <= 9_600


def test_a_search_finds_messages_by_a_good_part_of_its_words() -> None:
    messages = [recent("Pixel barks at trams."), recent("The tram was late.", 1), recent("Nothing else.")]
    found = found_unformed(["Why does Pixel bark at the tram?", "tram times"], messages, 10)
    assert [message.content for message in found] == ["Pixel barks at trams.", "The tram was late."]
    assert found[0].score == 1.0
    assert found_unformed(["Pixel"], messages, 0) == ()
