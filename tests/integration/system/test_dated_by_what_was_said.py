"""History that is written late, the newer session first: what was said last holds, at every door."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eden_memory.errors import Invalid
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.system.commands import eden
from tests.integration.system.every_door import every_door
from tests.integration.system.running_system import AGENT, System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
NOW = datetime.now(UTC).replace(microsecond=0)
MAY, JANUARY = NOW - timedelta(days=2), NOW - timedelta(days=140)


async def contradicted(shared: System, user: str, gate: str, how: str) -> tuple[str, list[str], list[str]]:
    """Two sessions are written now: the newer first, then one of months before that says otherwise.

    The model answers DELETE ("instead"), or an UPDATE whose text is the older statement alone ("moreover").
    """
    newer, older = await shared.session(user), await shared.session(user)
    told = f"fact user: The code of the {gate} gate is {{}} same-{gate} {how}"
    may = await shared.told(newer, user, told.format("7776"), at=MAY)
    january = await shared.told(older, user, told.format("6687"), at=JANUARY)
    return newer, may, january


@pytest.mark.parametrize("how", ["instead", "moreover"])
async def test_what_was_said_last_holds_though_it_was_written_first(shared: System, how: str) -> None:
    user = f"ida-{how}"
    session, _, _ = await contradicted(shared, user, "garden", how)
    assert await shared.facts(user) == [f"The code of the garden gate is 7776 same-garden {how}"]
    context = await shared.shows(session, user, "7776", without=["6687"])
    assert "(2d ago)" in context
    service = shared.service
    found = await service.search_facts("the code of the garden gate", session=session, user=user)
    assert [(one.content.split()[7], one.said_at, one.valid_from) for one in found] == [("7776", MAY, MAY)]
    assert found[0].formed_at > MAY
    then = await service.search_facts(
        "the code of the garden gate", session=session, user=user, as_of=MAY - timedelta(days=1)
    )
    assert [one.content.split()[7] for one in then] == ["6687"]
    before = await service.search_facts(
        "the code of the garden gate", session=session, user=user, as_of=JANUARY - timedelta(days=1)
    )
    assert list(before) == []
    (older,) = (await service.list_facts(user=user, active=False)).items
    assert (older.retired_because, older.replaced_by) == ("contradicted", found[0].fact_id)
    assert (older.said_at, older.retired_at) == (JANUARY, MAY)
    for since, before, code in ((MAY, NOW, "7776"), (JANUARY, MAY, "6687")):
        listed = await service.list_facts(user=user, active=None, since=since, until=before)
        assert [one.content.split()[7] for one in listed.items] == [code]
    history = await service.history(older.fact_id, user=user)
    assert [(one.version, one.valid_from) for one in history.versions] == [(1, JANUARY)]


@pytest.mark.parametrize("newest_first", [True, False])
async def test_the_older_one_is_taken_up_again_when_the_newer_one_is_forgotten(
    shared: System, newest_first: bool
) -> None:
    user = "jon" if newest_first else "kim"
    first, second = (MAY, JANUARY) if newest_first else (JANUARY, MAY)
    session = await shared.session(user)
    said = {first: "7776" if newest_first else "6687", second: "6687" if newest_first else "7776"}
    names = {
        moment: await shared.told(
            session,
            user,
            f"fact user: The code of the {user} gate is {code} same-{user} instead",
            at=moment,
        )
        for moment, code in said.items()
    }
    assert await shared.facts(user) == [f"The code of the {user} gate is 7776 same-{user} instead"]
    await shared.forget("message", names[MAY][0])

    async def again() -> bool:
        return await shared.facts(user) == [f"The code of the {user} gate is 6687 same-{user} instead"]

    await until(again, "the older fact holds again")
    key = Scope.of_user(encode_id(AGENT), encode_id(user)).key
    (row,) = await shared.memory("facts").find({"scope_key": key, "active": True}).to_list()
    assert row["valid_from"].replace(tzinfo=UTC) == JANUARY
    assert row["replaced_by"] is None
    for moment in (MAY - timedelta(days=1), MAY + timedelta(days=1)):
        then = await shared.service.search_facts("the code of the gate", user=user, as_of=moment)
        assert [one.content.split()[7] for one in then] == ["6687"]
    history = await shared.service.history(row["_id"], user=user)
    told = [(one.decision, one.valid_from, one.undone) for one in history.versions]
    if newest_first:
        assert told == [("UNMERGE", JANUARY, False), ("DELETE", JANUARY, False)]
    else:
        assert told == [("UNMERGE", JANUARY, False), ("DELETE", MAY, True), ("ADD", JANUARY, False)]


@pytest.mark.parametrize("contradicted_between", [False, True], ids=["alone", "contradicted between"])
async def test_what_was_said_before_and_read_in_later_is_found_as_of_then(
    shared: System, contradicted_between: bool
) -> None:
    """An older statement of the same joins the fact, which has its own time; as of then the older one counts."""
    user = "ole" if contradicted_between else "nils"
    said = f"fact user: The code of the {user} gate is 7776 same-{user} instead"
    session, february = await shared.session(user), JANUARY + timedelta(days=30)
    await shared.told(session, user, said, at=MAY)
    if contradicted_between:
        await shared.told(await shared.session(user), user, said.replace("7776", "6687"), at=february)
    await shared.told(await shared.session(user), user, said, at=JANUARY)

    async def joined() -> bool:
        found = await shared.service.list_facts(user=user)
        return [len(fact.sources) for fact in found.items] == [2]

    await until(joined, "the older statement has joined the fact")

    async def codes(moment: datetime) -> list[tuple[str, datetime]]:
        found = await shared.service.search_facts("the code of the gate", user=user, as_of=moment)
        return [(fact.content.split()[7], fact.valid_from) for fact in found]

    day = timedelta(days=1)
    assert await codes(JANUARY - day) == []
    assert await codes(february - day) == [("7776", JANUARY)]
    between = ("6687", february) if contradicted_between else ("7776", JANUARY)
    assert await codes(MAY - day) == [between]
    assert await codes(MAY + day) == [("7776", MAY)]


async def test_when_something_happened_is_a_filter_and_an_order_of_its_own(shared: System) -> None:
    kayak, tandem = "Pia sold the kayak on 2021-06-05.", "Pia bought a tandem on 2024-02-03."
    session = await shared.session("pia")
    told = (f"fact user: {text}" for text in (kayak, tandem, "Pia has a cat."))
    await shared.told(session, "pia", *told, at=MAY)
    between: dict[str, Any] = {
        "occurred_after": datetime(2024, 2, 3),
        "occurred_before": datetime(2025, 1, 1, tzinfo=UTC),
    }

    async def found(**options: Any) -> list[str]:
        facts = await shared.service.search_facts("what does Pia own", session=session, user="pia", **options)
        return [fact.content for fact in facts]

    assert await found(**between) == [tandem]
    assert await found(sort="occurred_at") == [tandem, kayak, "Pia has a cat."]
    assert await found(occurred_before=datetime(2021, 6, 5, tzinfo=UTC)) == []
    assert await found(occurred_after=JANUARY - timedelta(days=9_000), as_of=JANUARY) == [], (
        "nobody had said so"
    )
    service = shared.service
    (listed,) = (await service.list_facts(user="pia", **between)).items
    assert (listed.content, listed.occurred_at, listed.said_at) == (
        tandem,
        datetime(2024, 2, 3, tzinfo=UTC),
        MAY + timedelta(minutes=1),
    )
    first = await service.list_facts(user="pia", sort="occurred_at", limit=1)
    second = await service.list_facts(user="pia", sort="occurred_at", limit=1, cursor=first.cursor)
    assert [fact.content for fact in (*first.items, *second.items)] == [tandem, kayak]
    assert second.cursor is None
    with pytest.raises(Invalid, match="no such order"):
        await service.list_facts(user="pia", sort="score")  # pyright: ignore[reportArgumentType]
    async with every_door(shared) as doors:
        asked = {"user": "pia", "occurred_after": "2022-01-01T00:00:00Z"}
        items = (await doors.http.get(f"/v1/agents/{AGENT}/facts", params=asked)).json()["items"]
        assert [(fact["content"], fact["occurred_at"][:10]) for fact in items] == [(tandem, "2024-02-03")]
        body = {"queries": ["Pia"], "occurred_before": "2022-01-01T00:00:00Z", "sort": "occurred_at"}
        answer = await doors.http.post(f"/v1/agents/{AGENT}/search", params={"user": "pia"}, json=body)
        assert [fact["content"] for fact in answer.json()["facts"]] == [kayak]


async def test_a_text_is_added_with_the_time_at_which_it_was_said(shared: System) -> None:
    added = await shared.service.add("fact user: Lea moved to Turin.", user="lea", at=JANUARY)

    async def stored() -> bool:
        return await shared.facts("lea") == ["Lea moved to Turin."]

    await until(stored, "the added fact is stored")
    (fact,) = (await shared.service.list_facts(user="lea")).items
    assert (fact.said_at, fact.valid_from, added.session) == (JANUARY, JANUARY, fact.sources[0].session_id)
    with pytest.raises(Invalid, match="in the future"):
        await shared.service.add("Lea lives on Mars.", user="lea", at=NOW + timedelta(days=400))
    with pytest.raises(Invalid, match="not a time"):
        await shared.service.add("Lea lives on Mars.", user="lea", at="some day")


async def test_history_that_is_read_in_overrules_nothing_that_is_said_while_it_is_read(
    settings: Settings, shared_models: Serving
) -> None:
    asked = fast(
        settings, shared_models, windows={"stale_hours": 0}
    )  # else the history forms by itself, maybe first
    async with system(asked, shared_models, run=False) as running:
        stored, live = await running.session("ned"), await running.session("ned")
        text = "fact user: The code of the yard gate is {} same-yard instead"
        history = await running.write(stored, "ned", text.format("6687"), at=JANUARY)
        async with stages(running.settings):
            await running.told(live, "ned", text.format("7776"))
            await running.form(stored)
            await running.formed(history, 1)
            assert await running.facts("ned") == ["The code of the yard gate is 7776 same-yard instead"]
            (older,) = (await running.service.list_facts(user="ned", active=False)).items
            assert (older.said_at, older.valid_from) == (JANUARY, JANUARY)


async def test_by_the_offline_rules_too_an_older_session_that_comes_later_overrules_nothing(
    settings: Settings, shared_models: Serving
) -> None:
    offline = fast(settings, shared_models).model_copy(update={"llm": "offline"})
    now = ("I live in Linz now.", "I work at Bosch now.", "My rent increased to 1,050 euros.")
    then = ("I live in Graz.", "I work at Siemens.", "My rent is 900 euros.")
    current = ["User lives in Linz now.", "User works at Bosch now.", "User's rent increased to 1,050 euros."]
    async with system(offline, shared_models) as running:
        for said, at in ((now, MAY), (then, JANUARY)):
            session = await running.session("ada")
            names = await running.write(session, "ada", *said, at=at)
            await running.form(session)
            await running.formed(names, len(said))
        mine = ("--user", "ada", "--agent", AGENT)
        listed = json.loads(await eden(offline, "facts", *mine, "--json"))["items"]
        assert sorted(fact["content"] for fact in listed if fact["active"]) == current, listed
        found = await running.service.search_facts("Where does the user live and work?", user="ada")
        assert sorted(fact.content for fact in found) == current
        older = (await running.service.list_facts(user="ada", active=False)).items
        assert sorted(fact.content for fact in older) == [
            "User lives in Graz.",
            "User works at Siemens.",
            "User's rent is 900 euros.",
        ]
        ids = {fact["fact_id"] for fact in listed}
        for fact in older:
            history = json.loads(await eden(offline, "history", fact.fact_id, *mine, "--json"))
            assert (fact.retired_because, fact.replaced_by in ids) == ("contradicted", True)
            assert fact.retired_at is not None
            assert (MAY <= fact.retired_at < NOW, len(history["versions"])) == (True, 1)
