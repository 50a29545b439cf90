"""Session memory of few and of many users, through the door: shown to who was there, and to nobody else."""

import re
from functools import reduce

import pytest

from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.directory.participants import Audiences
from eden_memory.schemas.scopes import LISTED_USERS, Scope
from eden_memory.windows.session_state import Session
from eden_memory.windows.trigger_write_store import session_row
from eden_memory.windows.window_rule import Limits
from tests.integration.context.harness import Kit

pytestmark = pytest.mark.servers
SIZES = pytest.mark.parametrize("size", [3, LISTED_USERS, LISTED_USERS + 1, 300])


def users(size: int) -> list[str]:
    return [f"user-{number:03}" for number in range(size)]


def typed(names: list[str]) -> tuple[str, ...]:
    return tuple(f"s.{name}" for name in names)


async def remembered(kit: Kit, *crowds: list[str]) -> None:
    """Memory of each generation of the session, and what formation-trigger keeps of them."""
    session = Session("s.one", 0, Limits())
    session.audiences = reduce(Audiences.followed_by, map(typed, crowds), Audiences())
    row, _ = session_row(session)
    await kit.database["memory_sessions"].replace_one({"_id": "s.one"}, row, upsert=True)
    for generation, crowd in enumerate(crowds, 1):
        scope = Scope.of_session("s.a", "s.one", typed(crowd), generation)
        await kit.put(scope, blob=f"generation {generation}.")


async def seen(kit: Kit, present: list[str], asked: str) -> str | None:
    """The generation that the door shows, as the database has it at this moment."""
    await kit.session("one", present)
    async with kit.service() as service:
        xml = await service.get_memory_context("one", asked)
    found = re.search(r"generation (\d)", xml)
    return found and found[1]


@SIZES
async def test_members_see_what_they_heard_and_nobody_else_does(kit: Kit, size: int) -> None:
    crowd = users(size)
    await remembered(kit, crowd[:2], crowd, [*crowd, "late"])
    assert await seen(kit, crowd, crowd[0]) == "2"
    assert await seen(kit, [*crowd, "late"], "late") == "3"
    assert await seen(kit, crowd[1:], crowd[1]) == "3", "the newest that all of them belong to"
    assert await seen(kit, [*crowd[1:], "late"], "late") == "3"
    assert await seen(kit, crowd[:2], crowd[0]) == "1"
    assert await seen(kit, [*crowd, "stranger"], crowd[0]) is None
    assert await seen(kit, [*crowd[1:], "stranger"], crowd[1]) is None
    assert await seen(kit, crowd, "stranger") is None


@SIZES
async def test_where_members_are_not_known_memory_is_shown_to_exactly_them(kit: Kit, size: int) -> None:
    crowd = users(size)
    await remembered(kit, crowd)
    listed = size <= LISTED_USERS
    await kit.database["memory_sessions"].delete_many({})
    assert await seen(kit, crowd, crowd[0]) == "1"
    assert await seen(kit, crowd[1:], crowd[1]) == ("1" if listed else None)
    wrong = Session("s.one", 0, Limits())
    wrong.audiences = Audiences().followed_by(typed([*crowd[1:], "stranger"]))
    await kit.database["memory_sessions"].replace_one({"_id": "s.one"}, session_row(wrong)[0], upsert=True)
    assert await seen(kit, [*crowd[2:], "stranger"], "stranger") is None
    assert await seen(kit, crowd[1:], crowd[1]) == ("1" if listed else None)


async def test_a_large_sessions_tier_is_that_of_the_users_whom_its_document_lists(kit: Kit) -> None:
    crowd = users(300)
    await kit.session("one", crowd)
    await kit.database["users"].insert_one({"_id": crowd[250], "tier": 2})
    await kit.database["agents"].insert_one({"_id": "a"})
    directory = MongoDirectory(kit.database, kit.database["memory_streams"], kit.settings)
    assert await directory.tier_of((), "s.one") == 2
    assert await directory.tier_of(typed(crowd[:2]), "s.one") == 0
    assert await directory.tier_of((), "s.none") == 0
