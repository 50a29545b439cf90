"""Which messages of a conversation are shown where answers were made again and messages edited."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.directory.branches import TreeMessage, replaced, shown_elements
from eden_memory.directory.listed_messages import other_branches

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


def test_an_answer_that_failed_replaces_nothing_until_it_is_followed() -> None:
    said = tree(("u", ROOT), ("a", "u"))
    failed = TreeMessage("s.f", "f", ROOT, said=False)
    assert replaced([*said, failed]) == {"s.f"}
    assert replaced([*said, failed, *tree(("v", "f"))]) == {"s.u", "s.a"}
    assert replaced([failed]) == frozenset(), "nothing is said at all"
    waiting = TreeMessage("s.w", "w", "a", said=False)
    assert replaced([*said, waiting]) == frozenset(), "an answer that has no text yet stays"


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


def test_an_empty_element_takes_no_place_in_a_list_and_is_shown_behind_what_it_follows() -> None:
    def element(name: str, text: str, *ancestors: str) -> dict[str, Any]:
        return {"id": name, "content": text, "ancestors": list(ancestors), "children": []}

    said = [element("s", ""), element("u", "Hello", "s"), element("a", "Hi", "s", "u")]
    assert shown_elements([*said, element("b", " ", "s", "u")]) == said, "an answer that failed"
    begun = [*said, element("v", "And?", "s", "u", "a"), element("w", "", "s", "u", "a", "v")]
    assert shown_elements(begun) == begun, "an answer that is being written"
    again = element("b", "Good day", "s", "u")
    assert shown_elements([*said, again]) == [*said[:2], again]
    assert other_branches(["odd", {"content": "Hm"}, *said, again]) == {"s.a"}
