"""Which messages of a conversation are shown where answers were made again and messages edited."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.directory.branches import TreeMessage, replaced, shown_elements

ROOT = "00000000"


def tree(*parents: tuple[str, str]) -> list[TreeMessage]:
    """Return messages in the order in which they were written, each with its parent."""
    return [TreeMessage(f"s.{own}", own, parent) for own, parent in parents]


def test_an_answer_that_was_made_again_and_what_followed_on_it_are_replaced() -> None:
    said = tree(("u", ROOT), ("a", "u"), ("more", "a"), ("b", "u"), ("next", "b"))
    assert replaced(said) == {"s.a", "s.more"}
    assert replaced([*said, *tree(("back", "more"))]) == {"s.b", "s.next"}, "who went back is followed"


def test_an_edited_first_message_replaces_the_whole_conversation() -> None:
    assert replaced(tree(("u", ROOT), ("a", "u"), ("v", ROOT))) == {"s.u", "s.a"}


def test_what_is_connected_with_nothing_shown_stays() -> None:
    assert replaced(tree(("u", "gone"), ("a", "u"), ("v", "also gone"))) == frozenset()
    assert replaced(tree(("u", "u"), ("v", "v"))) == frozenset(), "a message that follows itself"
    unnamed = [TreeMessage("s.1", None, None), TreeMessage("s.2", None, None)]
    assert (replaced(unnamed), replaced([])) == (frozenset(), frozenset())


@given(st.lists(st.integers(0, 4), max_size=12))
def test_the_newest_message_and_what_leads_to_it_are_never_replaced(back: list[int]) -> None:
    said = [
        TreeMessage(f"s.{number}", number, number - 1 - step if number - 1 - step >= 0 else -1)
        for number, step in enumerate(back)
    ]
    gone, at = replaced(said), len(said) - 1
    while at >= 0:
        assert f"s.{at}" not in gone
        at = int(str(said[at].parent))
    kept = [message for message in said if message.name not in gone]
    parents = [message.parent for message in kept]
    assert len(parents) == len(set(parents)), "one of several that follow the same message"


def test_a_list_without_ancestors_is_shown_whole() -> None:
    plain = [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]
    assert shown_elements(plain) == plain
    legacy: list[dict[str, Any]] = [{"id": n, "ancestors": [], "children": []} for n in (1, 2)]
    assert shown_elements(legacy) == legacy
    assert shown_elements([]) == []
