"""Lists by page: everything once, in order, whatever is formed meanwhile; out of the index; cursors checked."""

import asyncio
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from eden_memory.access.visible import Asker
from eden_memory.api.service import MemoryService
from eden_memory.assembly.mongo_setup import set_up
from eden_memory.errors import Invalid
from eden_memory.memory.browsing_store import FACTS, REFLECTIONS, Filters, page_query
from tests.integration.context.harness import Kit
from tests.integration.python.stored import ADA, AGENT, AT, BOB, fact, fill, reflection, store
from tests.names import NAMES

pytestmark = pytest.mark.servers


async def pages(service: MemoryService, limit: int, between: Any = None, **filters: Any) -> list[str]:
    """The ids of all facts, page by page."""
    found: list[str] = []
    cursor = None
    while True:
        page = await service.list_facts(user="ada", limit=limit, cursor=cursor, **filters)
        found += [one.fact_id for one in page.items]
        assert len(page.items) <= limit
        if page.cursor is None:
            return found
        cursor = page.cursor
        if between is not None:
            await between()


async def test_pages_hold_everything_once_and_in_order_while_facts_are_formed(kit: Kit) -> None:
    """Times repeat, so that ids decide; facts of all ages come in between."""
    await fill(kit)
    chance = Random(7)
    before = [
        fact(f"p-{number}", chance.choice((ADA, AGENT)), f"fact {number}", chance.randrange(5))
        for number in range(40)
    ]
    await store(kit, [*before, fact("hidden", BOB, "not hers", 3)])
    new = iter(range(1_000))

    async def between() -> None:
        number = next(new)
        await store(kit, [fact(f"new-{number}", ADA, f"new {number}", chance.randrange(-3, 9))])

    async with kit.service("a") as service:
        for limit in (1, 7, 40):
            found = await pages(service, limit, between)
            assert len(found) == len(set(found))
            known = [one for one in found if one.startswith("p-")]
            assert known == [
                one.id for one in sorted(before, key=lambda one: (-one.formed_at.timestamp(), one.id))
            ]
            assert "hidden" not in found


async def test_filters_choose_by_scope_time_and_switch(kit: Kit) -> None:
    await fill(kit)
    retired = {"active": False, "retired_at": AT, "retired_because": "asked"}
    await store(kit, [fact("old", ADA, "old", 100), fact("gone", ADA, "gone", 101, **retired)])
    async with kit.service("a") as service:
        assert await pages(service, 5, scopes=["agent"]) == ["f-0"]
        assert await pages(service, 5, since=AT + timedelta(minutes=100)) == ["old"]
        assert await pages(service, 5, until=AT + timedelta(minutes=1)) == ["f-0"]
        assert await pages(service, 5, active=False) == ["gone"]
        assert await pages(service, 2, active=None) == ["gone", "old", "f-5", "f-2", "f-0"]
        naive = (AT + timedelta(minutes=100)).replace(tzinfo=None)
        assert await pages(service, 5, since=naive) == ["old"]


async def test_times_choose_by_what_lists_show_whenever_it_was_formed(kit: Kit) -> None:
    """History read in late: what was said first was formed last."""
    ages = range(8)
    said = [AT - timedelta(days=age) for age in ages]
    await store(kit, [fact(f"f-{age}", ADA, f"fact {age}", age, valid_from=said[age]) for age in ages])
    await store(kit, [reflection(f"r-{age}", ADA, "x", age, said_at=said[age]) for age in ages])
    since, until = said[5], said[1]
    async with kit.service("a") as service:
        assert await pages(service, 2, since=since, until=until) == ["f-5", "f-4", "f-3", "f-2"]
        page = await service.list_reflections(user="ada", since=since, until=until, limit=3)
        more = await service.list_reflections(
            user="ada", since=since, until=until, limit=3, cursor=page.cursor
        )
        assert [one.reflection_id for one in (*page.items, *more.items)] == ["r-5", "r-4", "r-3", "r-2"]
        newest = await service.list_reflections(user="ada", since=AT)
        assert [one.reflection_id for one in newest.items] == ["r-0"]


async def test_reflections_come_by_page_too(kit: Kit) -> None:
    await fill(kit)
    await store(kit, [reflection(f"p-{number}", ADA, "x", number // 3) for number in range(10)])
    await store(kit, [reflection("in-a-blob", ADA, "x", 50, absorbed=True, absorbed_into=2, absorbed_at=AT)])
    async with kit.service("a") as service:
        found: list[str] = []
        page = await service.list_reflections(user="ada", scopes=["user"], limit=4)
        while page.items:
            found += [one.reflection_id for one in page.items]
            if page.cursor is None:
                break
            page = await service.list_reflections(user="ada", scopes=["user"], limit=4, cursor=page.cursor)
        assert len(found) == len(set(found)) == 12
        assert found[0] == "in-a-blob"
        buffered = await service.list_reflections(user="ada", scopes=["user"], absorbed=False)
        assert "in-a-blob" not in {one.reflection_id for one in buffered.items}


@pytest.mark.parametrize("listed", [FACTS, REFLECTIONS], ids=lambda one: one.of)
async def test_a_page_is_merged_out_of_an_index_and_never_sorted(kit: Kit, listed: Any) -> None:
    await fill(kit)
    await set_up(kit.database, NAMES)
    make = fact if listed is FACTS else reflection
    await store(kit, [make(f"many-{one}", (ADA, AGENT)[one % 2], f"text {one}", one) for one in range(40)])
    asked = Asker("s.a", None, "s.ada")
    first = Filters(flag=None, since=AT - timedelta(days=1))
    place = [AT, "f-1"] if listed is FACTS else [AT, 1, "r-1"]
    digest = first.digest(listed.of, asked)
    cursor = _cursor(digest, int(AT.timestamp() * 1000), *place[1:])
    for filters in (first, Filters(flag=None, since=first.since, cursor=cursor)):
        query = page_query(listed, [AGENT.key, ADA.key], filters, digest)
        found = kit.database["memory_" + listed.of].find(query).sort(listed.sort).limit(5)
        stages = _stages((await found.explain())["queryPlanner"]["winningPlan"])
        assert "SORT_MERGE" in stages
        assert not {"SORT", "COLLSCAN"} & stages


def _stages(plan: Any) -> set[str]:
    """Names of all stages of a plan."""
    return set(re.findall(r"'stage': '(\w+)'", repr(plan)))


def _cursor(*values: Any) -> str:
    return urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


async def test_a_cursor_is_good_for_its_own_list_only(kit: Kit) -> None:
    await fill(kit)
    async with kit.service("a") as service, kit.service("b") as other:
        cursor = (await service.list_facts(user="ada", limit=1)).cursor
        assert cursor is not None
        for call in (
            service.list_facts(user="bob", limit=1, cursor=cursor),
            service.list_facts(user="ada", active=None, cursor=cursor),
            service.list_reflections(user="ada", cursor=cursor),
            other.list_facts(user="ada", cursor=cursor),
        ):
            with pytest.raises(Invalid):
                await call


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "!",
        "é",
        _cursor(),
        _cursor("x"),
        _cursor("DIGEST", 1),
        _cursor("DIGEST", 1, {"$ne": None}),
        _cursor("DIGEST", {"$gt": 0}, "f"),
        _cursor("DIGEST", 10**30, "f"),
        _cursor("DIGEST", True, "f"),
        _cursor("DIGEST", 1, "f", "g"),
        _cursor("DIGEST", 1, "\ud800"),
        urlsafe_b64encode(b"[" * 100_000).decode(),
        urlsafe_b64encode(b'{"a": 1}').decode(),
        urlsafe_b64encode(b"5").decode(),
    ],
)
async def test_what_is_no_cursor_is_refused(plain: Kit, bad: str) -> None:
    digest = Filters().digest(FACTS.of, Asker("s.default", None, None))
    forged = _cursor(digest, *json.loads(_decoded(bad))[1:]) if "DIGEST" in _decoded(bad) else bad
    async with plain.service("default") as service:
        with pytest.raises(Invalid):
            await service.list_facts(cursor=forged)


async def test_a_cursor_holds_nothing_that_mongodb_cannot_compare_with(plain: Kit) -> None:
    digest = Filters().digest(REFLECTIONS.of, Asker("s.default", None, None))
    async with plain.service("default") as service:
        with pytest.raises(Invalid):
            await service.list_reflections(cursor=_cursor(digest, 1, 2**63, "r"))


def _decoded(text: str) -> str:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        return ""


async def test_a_history_tells_versions_with_reasons_cost_and_how_often_it_was_found(kit: Kit) -> None:
    await fill(kit)
    earlier = {
        "version": 1,
        "content": "Ada lives in Rome.",
        "decision": "ADD",
        "valid_from": AT,
    }
    await store(
        kit, [fact("moved", ADA, "Ada lives in Turin.", 5, version=2, decision="UPDATE", reason="moved")]
    )
    await kit.database["memory_facts"].update_one(
        {"_id": "moved"}, {"$set": {"history": [earlier], "previous_content": "Ada lives in Rome."}}
    )
    found_at = datetime(2026, 3, 5, tzinfo=UTC)
    await kit.database["memory_access"].insert_one(
        {"_id": "moved", "access_count": 3, "last_accessed_at": found_at}
    )
    async with kit.service("a") as service:
        history = await service.history("moved", user="ada")
    assert [(one.version, one.content, one.reason) for one in history.versions] == [
        (2, "Ada lives in Turin.", "moved"),
        (1, "Ada lives in Rome.", None),
    ]
    assert history.versions[0].cost_usd == history.cost_usd
    assert f"{history.cost_usd:.3f}" == "0.001"
    assert (history.found, history.last_found_at) == (3, found_at)


async def test_pages_read_at_the_same_time_do_not_disturb_each_other(kit: Kit) -> None:
    await fill(kit)
    async with kit.service("a") as service:
        results = await asyncio.gather(*(pages(service, limit) for limit in (1, 2, 3, 50)))
    assert all(one == results[0] for one in results)
