"""Facts that expire, and limits: from chat writes through the running system to what readers are shown."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from prometheus_client import REGISTRY

from eden_memory.assembly.stage_parts import RETIRING
from eden_memory.mongo.ids import encode_id
from eden_memory.mongo.leases import MongoLease
from eden_memory.schemas.events import FactsExtracted
from eden_memory.schemas.events.formation import Window
from eden_memory.settings import Settings
from eden_memory.source.messages_store import inbox_name
from tests.integration.system.commands import eden
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, Row, System, fast, stages, system, until
from tests.model_server.script import Asked, Said
from tests.model_server.serving import Serving, serving

pytestmark = pytest.mark.servers
DAY = timedelta(days=1)


async def stream(running: System, agent: str, **fields: Any) -> None:
    """A stream of an agent's users."""
    await running.memory("streams").insert_one(
        {"_id": f"s.{agent}/user", "agent_id": f"s.{agent}", "scope": "user", **fields}
    )


@pytest.fixture(scope="module")
async def keeping(shared: System) -> System:
    """The agent's facts of users are kept for a day."""
    await stream(shared, AGENT, retention_days=1)
    return shared


async def fact(running: System, text: str) -> Row:
    (row,) = await running.memory("facts").find({"content": text}, {"revision": 0}).to_list()
    return row


def retired(because: str) -> float:
    found = REGISTRY.get_sample_value("eden_facts_retired_total", {"scope": "user", "because": because})
    return found or 0.0


def past_retention() -> float:
    labels = {"stage": "fact-extraction", "how": "past_retention"}
    return REGISTRY.get_sample_value("eden_extraction_items_total", labels) or 0.0


async def expire_at(running: System, row: Row, moment: datetime) -> None:
    """As an application asks through the inbox."""
    inbox = running.source[inbox_name(running.settings)]
    await inbox.insert_one(
        {
            "_id": ObjectId(),
            "kind": "fact_command",
            "scope": {"kind": "user", "key": row["scope_key"], "agent_id": row["agent_id"]}
            | {"user_id": row["user_id"]},
            "action": "edit",
            "fact_id": row["_id"],
            "text": row["content"],
            "expires_at": moment,
            "by": "application",
            "asked_by": "test",
        }
    )


async def test_an_expired_fact_is_hidden_by_the_clock_and_then_retired_as_a_version(
    settings: Settings, shared_models: Serving
) -> None:
    text, before = "Mia met Bo in Lima.", retired("expired")
    async with system(fast(settings, shared_models), shared_models, run=False) as running:
        await stream(running, AGENT, retention_days=1)
        session = await running.session("mia")

        async def ready(*, shown: bool) -> bool:
            kept = await running.memory("contexts").find_one({"session_id": encode_id(session)})
            return kept is not None and "about Lima" in kept["xml"] and (text in kept["xml"]) == shown

        async def found() -> list[str]:
            said = await running.service.search_facts([text], session=session, user="mia")
            return [one.content for one in said]

        async def unfound() -> bool:
            return await found() == []

        lease = MongoLease(running.memory("leases"), RETIRING, 15.0)
        async with lease.held(), stages(running.settings):  # nobody retires meanwhile
            await running.told(session, "mia", f"fact user: {text}", "note session: It is about Lima.")
            row = await fact(running, text)
            assert row["expires_at"] == max(one["time"] for one in row["sources"]) + DAY
            await running.shows(session, "mia", text)
            await until(lambda: ready(shown=True), "the ready context shows it")
            assert await found() == [text]
            await expire_at(running, row, datetime.now(UTC) + timedelta(seconds=3))
            await until(unfound, "the search hides it")
            await running.shows(session, "mia", "about Lima", without=[text])
            await until(lambda: ready(shown=False), "the ready context hides it")
        active = await fact(running, text)
        assert (active["active"], active["version"], active["retired_at"]) == (True, 2, None)
        assert await rebuilt(running, row) == active

        async def gone() -> bool:
            return (await fact(running, text))["retired_because"] == "expired"

        async with stages(running.settings):
            await until(gone, "it is retired")
        last = await fact(running, text)
        assert (last["version"], last["decision"], last["retired_at"]) == (3, "RETIRE", active["expires_at"])
        assert (last["command"]["by"], last["command"]["command_id"]) == ("expiry", f"expiry/{row['_id']}/2")
        assert retired("expired") == before + 1
        assert await rebuilt(running, row) == last


async def rebuilt(running: System, row: Row) -> Row | None:
    """A fact in memory rebuilt from the topics, which is verified to equal live memory."""
    await eden(running.settings, "rebuild", "anew", "--verify")
    found = await running.database["memory_ns_anew_facts"].find_one({"_id": row["_id"]}, {"revision": 0})
    await eden(running.settings, "namespace", "drop", "anew", "--yes")
    return found


async def in_a_later_second(row: Row) -> None:
    """Until messages written now are newer than those that a fact rests on: records bear whole seconds."""

    async def later() -> bool:
        return datetime.now(UTC) > max(one["time"] for one in row["sources"]) + timedelta(seconds=1)

    await until(later, "a later second")


async def test_a_fact_that_is_stated_again_is_kept_for_longer(keeping: System) -> None:
    session = await keeping.session("uma")
    await keeping.told(session, "uma", "fact user: Uma rows on the Ouse same-boat")
    first = await fact(keeping, "Uma rows on the Ouse same-boat")
    await in_a_later_second(first)
    (again,) = await keeping.write(session, "uma", "fact user: The Ouse is where Uma rows same-boat")
    await keeping.form(session)
    await keeping.formed([again], 1)
    joined = await fact(keeping, first["content"])
    assert (joined["version"], joined["decision"]) == (2, "NONE")
    newest = max(one["time"] for one in joined["sources"])
    assert joined["expires_at"] == newest + DAY > first["expires_at"]
    await in_a_later_second(joined)
    await keeping.told(session, "uma", "fact user: Uma rows on the Ouse moreover at dawn same-boat")
    updated = await fact(keeping, "Uma rows on the Ouse moreover at dawn same-boat")
    assert (updated["_id"], updated["decision"]) == (first["_id"], "UPDATE")
    assert updated["expires_at"] > joined["expires_at"]


async def test_an_agents_retention_is_that_of_its_streams(keeping: System) -> None:
    """Each scope of an agent has a stream of its own: the agent's facts expire, its users' do not."""
    await keeping.memory("streams").insert_one(
        {"_id": "s.month/agent", "agent_id": "s.month", "scope": "agent", "retention_days": 30}
    )
    session = await keeping.session("ida", agent_id="month")
    await keeping.told(session, "ida", "fact agent: The office opens at six.", "fact user: Ida swims.")
    pool, ida = await fact(keeping, "The office opens at six."), await fact(keeping, "Ida swims.")
    assert pool["expires_at"] == max(one["time"] for one in pool["sources"]) + 30 * DAY
    assert ida["expires_at"] is None


async def test_beyond_the_limit_of_a_stream_the_oldest_facts_retire(keeping: System) -> None:
    await stream(keeping, "few", fifo_limit=2)
    session, before = await keeping.session("kim", agent_id="few"), retired("limit")
    for place in ("Rome", "Oslo", "Lima", "Bern"):
        await keeping.told(session, "kim", f"fact user: Kim was in {place}.")

    async def two_left() -> bool:
        return len(await keeping.facts("kim")) == 2

    await until(two_left, "two facts are left")
    rows = (
        await keeping.memory("facts")
        .find({"user_id": "s.kim"})
        .sort([("valid_from", -1), ("_id", 1)])
        .to_list()
    )
    assert [one["active"] for one in rows] == [True, True, False, False]
    assert {(one["retired_because"], one["command"]["by"], one["version"]) for one in rows[2:]} == {
        ("limit", "limit", 2)
    }
    assert retired("limit") == before + 2


@pytest.mark.slow
async def test_what_was_said_first_goes_beyond_a_limit_though_it_was_read_in_last(keeping: System) -> None:
    await stream(keeping, "late", fifo_limit=2)
    await stream(keeping, "tight", max_entries=1)
    said = datetime.now(UTC).replace(microsecond=0)
    trips = {"Rome": said - 3 * DAY, "Oslo": said - 2 * DAY, "Lima": said - 9 * DAY, "Bern": said - 5 * DAY}

    async def tell(agent: str, user: str) -> None:
        session = await keeping.session(user, agent_id=agent)
        for place, at in trips.items():
            await keeping.told(session, user, f"fact user: {user} was in {place}.", at=at)

    async def left(user: str, *places: str) -> None:
        wanted = sorted(f"{user} was in {place}." for place in places)

        async def so() -> bool:
            return await keeping.facts(user) == wanted

        await until(so, f"what {user} said last is left")

    await asyncio.gather(tell("late", "Ole"), tell("tight", "Ada"))
    await left("Ole", "Rome", "Oslo")
    await left("Ada", "Oslo")
    first = await fact(keeping, "Ole was in Lima.")
    assert (first["retired_because"], first["valid_from"]) == ("limit", trips["Lima"])
    assert await rebuilt(keeping, first) == first


async def test_beyond_the_limit_of_a_conversation_its_oldest_facts_retire(keeping: System) -> None:
    await stream(keeping, "brief", max_entries=1)
    long, short = [await keeping.session("lea", agent_id="brief") for _ in range(2)]
    await keeping.told(short, "lea", "fact user: Lea was in Rome.")
    await keeping.told(long, "lea", "fact user: Lea was in Oslo.")
    await keeping.told(long, "lea", "fact user: Lea was in Bern.")

    async def two_left() -> bool:
        return len(await keeping.facts("lea")) == 2

    await until(two_left, "one fact of each conversation is left")
    rome, oslo, bern = [await fact(keeping, f"Lea was in {one}.") for one in ("Rome", "Oslo", "Bern")]
    older = oslo if oslo["valid_from"] < bern["valid_from"] else max(oslo, bern, key=lambda one: one["_id"])
    assert (rome["active"], older["retired_because"]) == (True, "limit")


async def test_history_that_is_older_than_the_retention_costs_no_call(settings: Settings) -> None:
    asked: list[Asked] = []

    def script(one: Asked) -> Said:
        asked.append(one)
        return obey(one)

    async with serving(script) as models, system(fast(settings, models), models, run=False) as running:
        await stream(running, AGENT, retention_days=1)
        for scope in ("agent", "group"):
            await running.memory("streams").insert_one(
                {"_id": f"s.helper/{scope}", "agent_id": "s.helper", "scope": scope, "retention_days": 2}
            )
        old, new = await running.session("old"), await running.session("new")
        names = await running.write(old, "old", "fact user: Old was in Rome.", "note session: About Rome.")
        await running.source["messages"].update_many(
            {"_id": {"$in": names}}, {"$set": {"created_at": datetime.now(UTC) - 3 * DAY}}
        )
        before = past_retention()
        async with stages(running.settings):
            await running.form(old)
            await running.formed(names, 1)  # its reflection
            await running.told(new, "new", "fact user: New was in Oslo.")
        windows: dict[str, tuple[Window, FactsExtracted]] = {}
        for one in await running.records("memory.extractions"):
            assert isinstance(one.event, FactsExtracted)
            windows[one.event.window.session_id] = one.event.window, one.event
        window, extracted = windows[encode_id(old)]
        assert {one.kind for one in window.scopes} >= {"agent", "user"}
        assert (extracted.outcome, extracted.facts, extracted.call) == ("empty", (), None)
        assert extracted.reason is not None
        assert windows[encode_id(new)][1].outcome == "extracted"
        assert [one.kind for one in asked].count("facts") == 1
        assert past_retention() == before + 1
        assert await running.facts("old") == []
