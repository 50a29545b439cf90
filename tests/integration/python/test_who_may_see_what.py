"""No call of MemoryService shows or changes what is not of who asks: every asker against everything stored."""

from typing import Any

import pytest
from bson import ObjectId

from eden_memory.api.service import MemoryService
from eden_memory.errors import Invalid, NotAnId, NotFound
from eden_memory.schemas.scopes import Scope
from tests.integration.context.harness import Kit
from tests.integration.python.stored import (
    ADA,
    ADA_OF_B,
    AGENT,
    ALONE,
    BOB,
    OTHER_AGENT,
    SCOPES,
    YARD,
    fact_of,
    fill,
    inbox,
    marked,
)

pytestmark = pytest.mark.servers
Asker = tuple[str, Any, Any]
SEEN: dict[Asker, list[Scope]] = {
    ("a", None, None): [AGENT],
    ("a", None, "ada"): [AGENT, ADA, YARD],
    ("a", None, "bob"): [AGENT, BOB, YARD],
    ("a", None, "mallory"): [AGENT],
    ("a", "one", "ada"): [AGENT, ADA, ALONE, YARD],
    ("a", "one", "bob"): [AGENT],
    ("a", "both", "ada"): [AGENT, YARD],
    ("a", "both", "mallory"): [AGENT],
    ("a", "unknown", "ada"): [AGENT],
    ("b", None, "ada"): [OTHER_AGENT, ADA_OF_B],
    ("b", "one", "ada"): [OTHER_AGENT, ADA_OF_B],
    ("c", None, "ada"): [],
}
OPERATORS: tuple[Any, ...] = (
    {"$ne": None},
    {"$gt": ""},
    ["ada"],
    b"ada",
    True,
    1.5,
    {"$where": "1"},
    2**63,
    "x" * 2_000,
)


async def everything(service: MemoryService, session: Any, user: Any) -> str:
    """Whatever the calls show to an asker, as one text."""
    who = {"session": session, "user": user}
    shown = [
        await service.list_facts(**who, active=None),
        await service.list_reflections(**who),
        await service.list_blobs(**who),
        await service.get_memory_stats(session, user),
        await service.get_consolidation_status(session, user),
        await service.get_memory_context(session, user) if session is not None else "",
    ]
    return repr(shown)


async def test_every_asker_sees_the_scopes_that_are_theirs_and_no_other(kit: Kit) -> None:
    await fill(kit)
    for (agent, session, user), seen in SEEN.items():
        async with kit.service(agent) as service:
            shown = await everything(service, session, user)
            found = [scope for scope in SCOPES if marked(scope) in shown]
            assert found == [one for one in SCOPES if one in seen], (agent, session, user)


async def test_what_is_not_visible_is_not_found_by_its_id_either(kit: Kit) -> None:
    await fill(kit)
    for (agent, session, user), seen in SEEN.items():
        who = {"session": session, "user": user}
        async with kit.service(agent) as service:
            for scope in SCOPES:
                name, number = fact_of(scope), SCOPES.index(scope)
                if scope in seen:
                    continue
                for call in (
                    service.history(name, **who),
                    service.edit(name, "mine now", **who),
                    service.retire(name, **who),
                    service.edit(f"r-{number}", "mine now", **who),
                    service.retire(f"r-{number}", **who),
                    service.reflection(f"r-{number}", **who),
                    service.pin(scope.key, "mine now", **who),
                    service.forget("fact", name, **who),
                    service.forget("reflection", f"r-{number}", **who),
                    service.forget("blob", f"{scope.key}@2", **who),
                ):
                    with pytest.raises(NotFound):
                        await call
    assert await inbox(kit) == []


async def test_what_is_visible_can_be_asked_to_change(kit: Kit) -> None:
    await fill(kit)
    async with kit.service("a") as service:
        await service.edit(
            fact_of(ADA), "Ada lives in Turin.", user="ada", expected_version=1, reason="moved"
        )
        await service.retire(fact_of(AGENT))
        await service.forget("reflection", f"r-{SCOPES.index(ALONE)}", session="one", user="ada")
        await service.forget("blob", f"{ADA.key}@2", user="ada")
    asked = await inbox(kit)
    assert [(one["kind"], one.get("action") or one["what"]) for one in asked] == [
        ("fact_command", "edit"),
        ("fact_command", "retire"),
        ("forget", "reflection"),
        ("forget", "blob"),
    ]
    assert asked[0]["scope"]["key"] == ADA.key


@pytest.mark.parametrize("version", ["3", "0", "-1", "", "²", "9" * 18, str(2**63 - 1), "9" * 5_000])
async def test_a_blob_version_that_was_never_given_cannot_be_forgotten(kit: Kit, version: str) -> None:
    await fill(kit)
    async with kit.service("a") as service:
        with pytest.raises(NotFound):
            await service.forget("blob", f"{ADA.key}@{version}", user="ada")
    assert await inbox(kit) == []


async def test_sources_of_others_are_left_out(kit: Kit) -> None:
    await fill(kit)
    async with kit.service("a") as service:
        whole = await service.history(fact_of(BOB), user="bob")
        assert [one.user_id for one in whole.fact.sources] == ["s.bob"]
        (shared,) = (await service.list_facts(user="mallory")).items
        assert shared.sources == ()
        assert len((await service.list_facts()).items[0].sources) == 1


@pytest.mark.parametrize("bad", OPERATORS, ids=repr)
async def test_what_is_no_id_never_reaches_a_query(plain: Kit, bad: Any) -> None:
    async with plain.service() as service:
        for call in (
            lambda: service.get_memory_context(bad, "ada"),
            lambda: service.list_facts(user=bad),
            lambda: service.list_reflections(session=bad),
            lambda: service.list_blobs(user=bad),
            lambda: service.add("x", user=bad),
            lambda: service.add("x", session=bad),
            lambda: service.forget("session", bad),
            lambda: service.forget("user", bad),
            lambda: service.on_session_end(bad),
            lambda: service.export_user(bad),
            lambda: service.get_memory_stats(bad),
        ):
            with pytest.raises(NotAnId):
                await call()
    with pytest.raises(NotAnId):
        MemoryService(bad, client=plain.client, settings=plain.settings)
    assert await inbox(plain) == []


@pytest.mark.parametrize("bad", [{"$ne": None}, ["f-1"], 5, "a@b", "", "x" * 5_000, None])
async def test_what_is_no_facts_id_finds_none(plain: Kit, bad: Any) -> None:
    async with plain.service() as service:
        for call in (service.history(bad), service.edit(bad, "x"), service.forget("fact", bad)):
            with pytest.raises(NotFound):
                await call


async def test_filters_take_their_own_types_only(plain: Kit) -> None:
    async with plain.service() as service:
        wrong: tuple[dict[str, Any], ...] = (
            {"scopes": ["everything"]},
            {"scopes": "user"},
            {"scopes": [{"$ne": ""}]},
            {"active": {"$ne": 1}},
            {"since": {"$gt": ""}},
            {"until": "2026"},
            {"limit": 0},
            {"limit": 10_000},
            {"limit": True},
            {"cursor": {"$gt": ""}},
        )
        for one in wrong:
            with pytest.raises(Invalid):
                await service.list_facts(**one)


@pytest.mark.parametrize("bad", [[{"$ne": ""}], {"$gt": ""}, 5, None, b"x", ["a", "b", "c", "d"]], ids=repr)
async def test_what_is_no_query_is_never_searched(plain: Kit, bad: Any) -> None:
    async with plain.service() as service:
        with pytest.raises(Invalid):
            await service.search_facts(bad, user="ada")


async def test_a_user_forgets_what_is_theirs_alone(kit: Kit) -> None:
    await fill(kit)
    mine, theirs = ObjectId(), ObjectId()
    await kit.database["messages"].insert_many(
        [
            {"_id": mine, "session_id": "both", "user_id": "ada"},
            {"_id": theirs, "session_id": "both", "user_id": "bob"},
        ]
    )
    async with kit.service("a") as service:
        await service.forget("message", mine, user="ada")
        await service.forget("session", "one", user="ada")
        await service.forget("user", "ada", user="ada")
        for what, target, who in (
            ("message", theirs, {"user": "ada"}),
            ("message", mine, {"session": "one"}),
            ("message", ObjectId(), {}),
            ("session", "both", {"user": "ada"}),
            ("session", "one", {"user": "bob"}),
            ("session", "one", {"session": "both"}),
            ("user", "bob", {"user": "ada"}),
            ("user", "ada", {"session": "one"}),
        ):
            with pytest.raises(NotFound):
                await service.forget(what, target, **who)  # pyright: ignore[reportArgumentType]
    async with kit.service("b") as other:
        for what, target in (("session", "one"), ("message", mine)):
            with pytest.raises(NotFound):
                await other.forget(what, target)  # pyright: ignore[reportArgumentType]
    assert [one["target"] for one in await inbox(kit)] == [mine, "one", "ada"]
