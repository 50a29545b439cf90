"""The messages of a window as prompts show them, and what their numbers stand for."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.forgotten import Mark, Marks
from eden_memory.formation.transcript import REMOVED, Transcript, transcript
from eden_memory.schemas.scopes import LISTED_USERS
from tests.unit.formation.extraction.windows import AGENT, MARA, TOM, Talk, said, talk

NOTHING = Marks()


def of(window: Talk, marks: Marks = NOTHING, shown: tuple[str, ...] = ()) -> Transcript:
    """As a stage makes it."""
    return transcript(window.stored, window.requested.window(), marks, shown)


def speakers(window: Talk) -> list[str]:
    """Who speaks, message by message."""
    return [line.speaker for line in of(window).lines]


def test_speakers_have_their_names_and_roles() -> None:
    messages = (said(1, "a"), said(2, "b", role="assistant"), said(3, "c", role="tool"), said(4, "d", None))
    told = of(Talk(messages))
    assert [line.speaker for line in told.lines] == ["Mara Lind", "Juniper", "Tool", "User"]
    assert [line.role for line in told.lines] == ["user", "assistant", "tool", "user"]


def test_without_names_speakers_are_called_by_their_roles() -> None:
    messages = (said(1, "a"), said(2, "b", role="assistant"))
    assert speakers(Talk(messages, names={})) == ["User", "Assistant"]


def test_users_who_are_called_the_same_are_told_apart() -> None:
    messages = (said(1, "a", MARA), said(2, "b", TOM), said(3, "c", MARA))
    both = (MARA, TOM)
    assert speakers(Talk(messages, participants=both, names={})) == ["User 1", "User 2", "User 1"]
    alike = {MARA: "Alex", TOM: "Alex", AGENT: "Juniper"}
    assert speakers(Talk(messages, participants=both, names=alike)) == ["Alex 1", "Alex 2", "Alex 1"]


def test_staff_who_answer_under_ids_of_their_own_are_no_users_to_tell_apart() -> None:
    messages = (said(1, "a", MARA), replace(said(2, "b", role="assistant"), user_id=TOM))
    assert speakers(Talk(messages, participants=(MARA, TOM), names={})) == ["User", "Assistant"]


def test_messages_without_a_text_have_no_number() -> None:
    told = of(Talk((said(1, None), said(2, "  \n"), said(3, "c"))))
    assert told.shown == ("s.m3",)
    assert told.resting_on([1])[0][0].message_id == "s.m3"


def test_what_came_from_memory_is_not_read_as_if_somebody_had_said_it() -> None:
    memory = "<MemoryContext>\n- Mara has a boat.\n</MemoryContext>"
    found = '<facts>\n{"fact": "Mara has a boat."}\n</facts>'
    told = of(
        Talk(
            (
                said(1, memory),
                said(2, f"{memory}\nWhat is it called?"),
                said(3, f"{found} 1 fact", role="tool"),
                said(4, "the <facts> tag </facts> itself"),
            )
        )
    )
    texts = ["What is it called?", "1 fact", "the <facts> tag </facts> itself"]
    assert [line.text for line in told.lines] == texts


def test_what_is_forgotten_has_no_number_either() -> None:
    marks = Marks([Mark("message", "s.m1", "up_to_version", version=f"{1:016x}")])
    assert of(talk("a", "b"), marks).shown == ("s.m2",)


def user_forgotten(user: str, until: datetime) -> Mark:
    return Mark("user", user, "created_up_to", until=until)


def test_answers_go_with_the_only_user_who_heard_them() -> None:
    bot = replace(said(3, "c", role="assistant"), user_id="s.bot")
    window = Talk((said(1, "a"), said(2, "b", role="assistant"), bot, said(4, "d", role="assistant")))
    until = said(3, "").time
    assert of(window, Marks([user_forgotten(MARA, until)])).shown == ("s.m4",), "what came later stays"
    assert of(window, Marks([user_forgotten(TOM, until)])).shown == of(window).shown
    asked = of(window, Marks([user_forgotten(MARA, until)]), ("s.m1", "s.m2"))
    assert [line.text for line in asked.lines] == [REMOVED, REMOVED]


def test_answers_to_several_stay_until_all_of_them_are_forgotten() -> None:
    window = Talk((said(1, "a"), said(2, "b", role="assistant")), participants=(MARA, TOM))
    later = said(9, "").time
    assert of(window, Marks([user_forgotten(MARA, later)])).shown == ("s.m2",)
    assert of(window, Marks([user_forgotten(MARA, later), user_forgotten(TOM, later)])).shown == ()


def test_what_no_user_heard_belongs_to_none_of_them() -> None:
    window = Talk((said(1, "a", role="assistant"),), participants=())
    assert of(window, Marks([user_forgotten(MARA, said(9, "").time)])).shown == ("s.m1",)
    many = tuple(f"s.u{number}" for number in range(LISTED_USERS))
    crowd = Talk((said(1, "a", role="assistant"),), participants=many)
    everybody = Marks(user_forgotten(user, said(9, "").time) for user in many)
    assert of(crowd, everybody).shown == ("s.m1",), "others may have heard it, too"


def test_what_was_shown_before_keeps_its_number_and_loses_its_text() -> None:
    marks = Marks([Mark("message", "s.m1", "for_ever")])
    told = of(talk("a", "b"), marks, ("s.m1", "s.m2", "s.unknown"))
    assert told.shown == ("s.m1", "s.m2")
    assert [line.text for line in told.lines] == [REMOVED, "b"]


def test_an_erased_text_that_was_shown_before_keeps_its_number_too() -> None:
    told = of(Talk((said(1, None), said(2, "b"))), shown=("s.m1", "s.m2"))
    assert [line.text for line in told.lines] == [REMOVED, "b"]


@given(st.lists(st.integers(-5, 60), max_size=30), st.integers(1, 45))
def test_numbers_mean_messages_shown_in_order_or_the_whole_window(numbers: list[int], count: int) -> None:
    told = of(talk(*("text" for _ in range(count))))
    sources, whole = told.resting_on(numbers)
    valid = sorted({one for one in numbers if 1 <= one <= count})
    assert whole is not bool(valid)
    assert sources == (tuple(told.sources[one - 1] for one in valid) or told.sources)


def test_a_message_is_shown_at_the_time_that_the_application_gave_it() -> None:
    earlier = datetime(2020, 3, 1, 9, tzinfo=UTC)
    told = of(Talk((replace(said(1, "a"), created_at=earlier), said(2, "b"))))
    assert [line.time for line in told.lines] == [earlier, said(2, "b").time]
    assert told.sources[0].time == said(1, "a").time
