"""Texts in parts lose nothing; sessions of our own name whose they are, and no other session does."""

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.directory.participants import own_session, whose
from eden_memory.schemas.ids import encode
from eden_memory.source.inbox_store import parts_of

ids = st.one_of(st.text(max_size=20), st.integers(), st.uuids()).map(encode)


@given(st.text(alphabet=st.sampled_from("ab. \n"), max_size=300), st.integers(5, 40))
def test_parts_fit_and_together_say_it_all(text: str, limit: int) -> None:
    parts = list(parts_of(text, limit))
    assert all(0 < len(one) <= limit and one.strip() for one in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_a_text_is_cut_at_its_best_end() -> None:
    assert list(parts_of("First one. Second one. Third", 16)) == ["First one.", "Second one.", "Third"]
    assert list(parts_of("a\n\nbb cc dd", 8)) == ["a\n\nbb", "cc dd"]


@given(ids, st.none() | ids)
def test_an_own_session_names_whose_it_is(agent: str, user: str | None) -> None:
    assert whose(encode(own_session(agent, user))) == (agent, user, None)


@given(ids, ids, ids)
def test_the_session_of_an_imported_conversation_names_whose_it_is(agent: str, user: str, name: str) -> None:
    assert whose(encode(own_session(agent, user, name))) == (agent, user, None)


@given(ids)
def test_no_other_session_is_taken_for_one(session: str) -> None:
    assert whose(session) is None


def test_what_only_begins_like_one_is_none() -> None:
    for name in (
        "eden:added:",
        "eden:added:x",
        "eden:added:s.a:x",
        "eden:added:s.a:s.b:x",
        "eden:added:s.a::s.c",
        "eden:added:s.a:s.b:s.c:s.d",
        "eden:added:s.a:",
    ):
        assert (whose(encode(name)) is None) == (name != "eden:added:s.a:")
