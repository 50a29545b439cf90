"""A user undoes only what rests on no other user's messages."""

from typing import Any, cast

import pytest

from eden_memory.access.admission_store import Refused
from eden_memory.access.visible import Asker
from eden_memory.operations.operator_calls import UndoCalls
from eden_memory.schemas.events import FactChanged
from eden_memory.schemas.scopes import Scope
from eden_memory.unpoison.attack_rules import AttackPlan
from tests.unit.unpoison.test_attack_rules import GOOD, source, version

SESSION = Scope.of_session("s.a", GOOD, ("s.ada", "s.bo"))


class AtADoor(UndoCalls):
    """The calls for a key; `changes_shared` as a door gives it."""

    def __init__(self, *, changes_shared: bool | None) -> None:
        super().__init__(cast("Any", None), "a", "test", changes_shared)

    def demand(self, fact: FactChanged, user: str | None = "s.ada") -> None:
        self._demand_own_plan(AttackPlan(removed=[fact]), Asker("s.a", None, user))


def said_by(*users: str | None) -> FactChanged:
    sources = tuple(source(GOOD, f"s.m{number}", user) for number, user in enumerate(users))
    return version(1, "a", GOOD).model_copy(update={"scope": SESSION, "sources": sources})


@pytest.mark.parametrize("changes_shared", [None, False])
def test_session_memory_with_words_of_others_is_refused(changes_shared: bool | None) -> None:
    with pytest.raises(Refused, match="messages of others"):
        AtADoor(changes_shared=changes_shared).demand(said_by("s.ada", "s.bo"))


@pytest.mark.parametrize("users", [("s.ada",), ("s.ada", None)])
def test_own_words_and_the_agents_may_go(users: tuple[str | None, ...]) -> None:
    AtADoor(changes_shared=False).demand(said_by(*users))


def test_who_may_change_what_all_see_may_undo_it_too() -> None:
    AtADoor(changes_shared=True).demand(said_by("s.ada", "s.bo"))
    AtADoor(changes_shared=None).demand(said_by("s.ada", "s.bo"), user=None)
