"""Which generation of a session's memory goes on among which users."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.directory.participants import Audiences

USERS = [f"i.{number}" for number in range(6)]


def by_lists(users: frozenset[str], audiences: Sequence[frozenset[str]]) -> int | None:
    """The rule, on whole lists: the same users, else the newest audience that all of them belong to."""
    if users in audiences:
        return audiences.index(users) + 1
    wider = [number for number, audience in enumerate(audiences, 1) if users <= audience]
    return wider[-1] if wider else None


@given(st.lists(st.frozensets(st.sampled_from(USERS)), max_size=12))
def test_changes_give_the_generations_that_whole_lists_give(present: list[frozenset[str]]) -> None:
    audiences, lists = Audiences(), list[frozenset[str]]()
    for users in present:
        assert audiences.generation_of(users) == by_lists(users, lists)
        if by_lists(users, lists) is None:
            lists.append(users)
            audiences = audiences.followed_by(users)
    assert [audiences.users_of(n) for n in range(1, len(lists) + 1)] == lists
    assert Audiences.of_changes(audiences.changes) == audiences


def test_what_is_stored_grows_with_the_joins_not_with_their_square() -> None:
    audiences = Audiences()
    for joined in range(1, 1_501):
        audiences = audiences.followed_by([f"i.{number}" for number in range(joined)])
    assert sum(len(one.joined) + len(one.left) for one in audiences.changes) == 1_500
    assert len(audiences.users_of(700) or ()) == 700
