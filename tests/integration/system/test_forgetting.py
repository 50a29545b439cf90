"""Forgetting end to end: what rested on it alone is gone from memory, contexts and topics; all else stays."""

import asyncio
from collections.abc import Set
from datetime import UTC

import pytest
from pymongo.read_concern import ReadConcern

from eden_memory.api.service import MemoryService
from eden_memory.app.system import housekeeping
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.scopes import Scope
from eden_memory.search.search_count_store import AccessCounting, MongoAccesses
from tests.integration.system.running_system import AGENT, System, until

pytestmark = pytest.mark.servers
TOPICS = ("memory.facts", "memory.reflections", "memory.consolidations")


def user_key(user: str) -> str:
    return Scope.of_user(encode_id(AGENT), encode_id(user)).key


async def standing(shared: System, topic: str) -> dict[str, str]:
    """The text of each record that compaction would leave, by key."""
    last = {one.key: one for one in await shared.records(topic)}
    return {key: one.value.decode() for key, one in last.items() if one.value is not None}


async def left_in_topics(shared: System, text: str) -> list[str]:
    """The keys of the records that would still hold a text after compaction."""
    found = [await standing(shared, one) for one in (*TOPICS, "chat.messages")]
    return [key for records in found for key, value in records.items() if text in value]


async def gone(shared: System, text: str) -> None:
    """Until a text is in no collection of memory, and in no record that compaction leaves."""

    async def nowhere() -> bool:
        places = ("facts", "reflections", "consolidated", "blobs", "snapshots", "contexts")
        held = [name for name in places if await holds(shared, name, text)]
        return not held and not await left_in_topics(shared, text)

    await until(nowhere, f"{text!r} is nowhere")


async def holds(shared: System, collection: str, text: str) -> bool:
    return any([text in str(row) async for row in shared.memory(collection).find()])


async def test_a_message_deleted_in_the_application_takes_its_memory_along(shared: System) -> None:
    session = await shared.session("fay")
    names = await shared.told(
        session,
        "fay",
        "fact user: Fay owns the yacht Osprey.",
        "note user: Fay hates cilantro.",
        "fact user: Fay lives in Lund.",
    )
    await shared.shows(session, "fay", "Osprey", "cilantro", "Lund")
    await shared.source["messages"].delete_many({"_id": {"$in": names[:2]}})
    await shared.shows(session, "fay", "Lund", without=["Osprey", "cilantro"])
    await gone(shared, "Osprey")
    await gone(shared, "cilantro")
    assert await shared.facts("fay") == ["Fay lives in Lund."]
    searched = ["Fay owns the yacht Osprey", "Fay lives in Lund"]
    found = await shared.service.search_facts(searched, session=session, user="fay")
    assert [one.content for one in found] == ["Fay lives in Lund."]


async def test_a_merged_fact_goes_back_to_what_the_other_messages_say(shared: System) -> None:
    said = [
        "Gus sails the sloop Kestrel same-sloop",
        "moreover Gus sails the sloop Kestrel to Zephyrine same-sloop",
        "The sloop Kestrel is what Gus sails same-sloop",
    ]
    names = await merged(shared, "gus", *said)
    assert await shared.facts("gus") == [said[1]], "one fact of three messages, as the second put it"
    asked = shared.models.tally.calls["decisions"]
    await shared.forget("message", names[1])
    await gone(shared, "Zephyrine")
    await until(lambda: holds_facts(shared, "gus", said[0], said[2]), "what the other two say stands again")
    assert shared.models.tally.calls["decisions"] == asked + 1, (
        "one call decides what they are to one another"
    )
    await shared.forget("message", names[0])
    await until(lambda: holds_facts(shared, "gus", said[2]), "the last statement, as it was put")
    assert shared.models.tally.calls["decisions"] == asked + 1, "nothing is asked about one statement"
    await shared.forget("message", names[2])
    await gone(shared, "Kestrel")
    assert await shared.facts("gus") == []


async def merged(shared: System, user: str, *texts: str) -> list[str]:
    """Messages of sessions of their own, each a statement about the same thing."""
    names: list[str] = []
    for text in texts:
        session = await shared.session(user)
        names += await shared.told(session, user, f"fact user: {text}")
    return names


async def holds_facts(shared: System, user: str, *texts: str) -> bool:
    return await shared.facts(user) == sorted(texts)


async def until_quiet(shared: System) -> None:
    """Until forgetting has decided on everything that there is to forget."""

    async def decided() -> bool:
        asked = {one.headers["ce_id"] for one in await shared.records("memory.forgotten")}
        rows = await shared.memory("outcomes").find({"stage": "forgetting"}, {"members": 1}).to_list()
        done = {member.removeprefix("forgetting:") for row in rows for member in row["members"]}
        return asked <= done

    await until(decided, "all that is to be forgotten was decided on")


async def test_a_blob_that_absorbed_it_is_withdrawn_and_made_anew_from_the_rest(shared: System) -> None:
    session = await shared.session("hal")
    said = [f"note user: Hal likes thing-{n}." for n in range(3)]
    (secret, *_) = await shared.told(session, "hal", "note user: Hal fears spiders.", *said)
    await shared.shows(session, "hal", "<Consolidated>", "spiders", "thing-2")
    more = [f"note user: Hal reads book-{n}." for n in range(4)]
    await shared.session("hal", id="hal-later")
    await shared.told("hal-later", "hal", *more)
    key = user_key("hal")
    before = await shared.snapshot(key)
    assert before["blob_version"] >= 1
    await shared.forget("message", secret)
    await shared.shows("hal-later", "hal", "thing-0", "thing-2", "book-3", without=["spiders"])
    await gone(shared, "spiders")

    async def anew() -> bool:
        found = await shared.snapshot(key)
        return found["blob_version"] > before["highest_blob_version"] and not found["buffer"]

    await until(anew, "consolidated at once from the rest")
    blob = (await shared.snapshot(key))["blob"]
    assert all(f"thing-{n}" in blob for n in range(3))
    assert "book-0" in blob
    stale = await shared.memory("blobs").find({"scope_key": key, "gone": True}).to_list()
    assert [one["version"] for one in stale] == list(range(1, before["highest_blob_version"] + 1))
    await until_quiet(shared)
    assert (await shared.snapshot(key))["blob"] == blob


async def test_a_forgotten_session_leaves_nothing_and_others_are_untouched(shared: System) -> None:
    session, other = await shared.session("ida"), await shared.session("ida")
    await shared.told(
        session,
        "ida",
        "fact user: Ida banks at Brindle.",
        "note session: The talk is about Brindle.",
        "note user: Ida trusts Brindle.",
    )
    await shared.told(other, "ida", "fact user: Ida rows at Skye.", "note session: The talk is about Skye.")
    (waiting,) = await shared.write(session, "ida", "Brindle is not formed yet.")
    await until(lambda: held(shared, waiting), "it waits")
    await shared.forget("session", session)
    await gone(shared, "Brindle")
    await shared.shows(other, "ida", "Ida rows at Skye.", "about Skye", without=["Brindle"])
    assert len([one for one in (await standing(shared, "chat.messages")).values() if "Skye" in one]) == 2
    assert not await holds(shared, "messages", "Brindle")
    assert not await holds(shared, "windows", "Brindle")
    marks = await shared.memory("forgotten").find({"kind": "message"}).to_list()
    assert encode_id(waiting) not in {one["target"] for one in marks}, "its tombstone is no new deletion"
    await after_this_second(shared)
    await shared.told(session, "ida", "fact user: Ida skates at Umea.")
    await shared.shows(session, "ida", "Ida skates at Umea.")


async def after_this_second(shared: System) -> None:
    """Until the server counts another second: records carry whole ones, and all of one is forgotten together."""
    (mark,) = await shared.memory("forgotten").find({"reach": "created_up_to"}).sort("until", -1).to_list(1)

    async def passed() -> bool:
        now = (await shared.database.command("hello"))["localTime"]
        return now.replace(microsecond=0, tzinfo=UTC) > mark["until"]

    await until(passed, "the second is over")


async def held(shared: System, message: str) -> bool:
    return await shared.memory("messages").find_one({"_id": encode_id(message)}) is not None


async def test_a_forgotten_user_leaves_nothing_and_others_are_untouched(shared: System) -> None:
    session, other = await shared.session("jon"), await shared.session("kim")
    await shared.told(
        session,
        "jon",
        "fact user: Jon is from Pskov.",
        "note agent: The office in Pskov serves tea.",
        "hello",
    )
    await shared.told(other, "kim", "fact user: Kim is from Turku.")
    await shared.shows(other, "kim", "Pskov serves tea", "Kim is from Turku.")
    await shared.forget("user", "jon")
    await gone(shared, "Pskov")
    await shared.shows(other, "kim", "Kim is from Turku.", without=["Pskov"])
    assert not await holds(shared, "messages", "Pskov")
    await after_this_second(shared)
    await shared.told(session, "jon", "fact user: Jon moved to Oslo.")
    assert await shared.facts("jon") == ["Jon moved to Oslo."]


async def test_a_forgotten_users_name_goes_and_that_of_others_stays(shared: System) -> None:
    await shared.source["users"].insert_many(
        [{"_id": "nia.b", "name": "Nia Quillfeather"}, {"_id": "oto", "name": "Oto Brambleby"}]
    )
    session = await shared.session("nia.b", "oto")
    await shared.told(session, "nia.b", "note session: They like figs.")
    await shared.told(session, "oto", "note session: The meeting is on Monday.")
    assert await holds(shared, "windows", "Quillfeather")
    assert await holds(shared, "windows", "Brambleby")
    await shared.forget("user", "nia.b")
    await gone(shared, "figs")

    async def nameless() -> bool:
        return not await holds(shared, "windows", "Quillfeather")

    await until(nameless, "no window names her")
    assert await holds(shared, "windows", "Brambleby")


async def test_a_fact_is_forgotten_by_its_id(shared: System) -> None:
    session = await shared.session("lea")
    await shared.told(session, "lea", "fact user: Lea drives a Volvo.", "note user: Lea is brisk.")
    row = await shared.memory("facts").find_one({"user_id": encode_id("lea")})
    assert row is not None
    found = {"_id": row["_id"], "access_count": 3, "last_accessed_at": row["formed_at"]}
    await shared.memory("access").insert_one(found)
    await shared.forget("fact", row["_id"])
    await shared.shows(session, "lea", "brisk", without=["Volvo"])

    async def erased() -> bool:
        return not any("Volvo" in one for one in (await standing(shared, "memory.facts")).values())

    await until(erased, "its records are tombstoned")
    assert await shared.memory("access").find_one({"_id": row["_id"]}) is None


async def test_what_is_formed_of_a_message_forgotten_meanwhile_is_dropped(shared: System) -> None:
    session = await shared.session("max")
    shared.models.change(held=True)
    try:
        names = await shared.write(
            session, "max", "fact user: Max hid gold.", "note user: Max is rich.", "fact user: Max is 40."
        )
        await shared.form(session)
        asked = shared.models.tally.calls["facts"]
        await until(lambda: in_flight(shared, asked), "a question is on its way")
        await shared.forget("message", names[0])
        await shared.source["messages"].delete_one({"_id": names[1]})
        await until(lambda: marked(shared, names[:2]), "both are marked")
    finally:
        shared.models.change(held=False)
    await shared.shows(session, "max", "Max is 40.", without=["gold", "rich"])
    await until_quiet(shared)
    await gone(shared, "hid gold")
    await gone(shared, "Max is rich")
    assert not await holds(shared, "windows", "hid gold")

    async def deleted() -> bool:
        return not await holds(shared, "answers", "hid gold")

    await until(deleted, "the answer that came late is deleted")


async def in_flight(shared: System, before: int) -> bool:
    return shared.models.tally.running > 0 and shared.models.tally.calls["facts"] >= before


async def marked(shared: System, messages: list[str]) -> bool:
    wanted = {"kind": "message", "target": {"$in": [encode_id(one) for one in messages]}}
    return await shared.memory("forgotten").count_documents(wanted) == len(messages)


@pytest.fixture
def counts_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of searches wait in their process until it closes."""
    defaults = AccessCounting.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "seconds", 3_600.0)


async def count_of(shared: System, fact_id: str) -> int:
    """How often searches have found it, by the newest write."""
    access = shared.memory("access").with_options(read_concern=ReadConcern("local"))
    row = await access.find_one({"_id": fact_id})
    return 0 if row is None else row["access_count"]


async def fact_erased(shared: System, fact_id: str) -> None:
    """Forget a fact, and wait until the writer has erased it."""
    await shared.forget("fact", fact_id)

    async def erased() -> bool:
        return await shared.memory("facts").find_one({"_id": fact_id}) is None

    await until(erased, "the fact is erased")


async def found_by(service: MemoryService, user: str, query: str) -> str:
    """The id of the fact that a search finds first."""
    (found, *_) = await service.search_facts(query, user=user)
    return found.fact_id


@pytest.mark.usefixtures("counts_held")
async def test_searches_counted_after_their_fact_was_forgotten_leave_no_count(shared: System) -> None:
    session = await shared.session("uma")
    await shared.told(session, "uma", "fact user: Uma sails the Petrel.", "fact user: Uma keeps bees.")
    async with (
        MemoryService(AGENT, settings=shared.settings) as one,
        MemoryService(AGENT, settings=shared.settings) as two,
    ):
        sails = await found_by(one, "uma", "Uma sails the Petrel.")
        bees = await found_by(one, "uma", "Uma keeps bees.")
        assert sails != bees
        async with MemoryService(AGENT, settings=shared.settings) as early:
            await found_by(early, "uma", "Uma sails the Petrel.")
        assert await count_of(shared, sails) > 0
        await found_by(two, "uma", "Uma sails the Petrel.")
        await found_by(two, "uma", "Uma keeps bees.")
        await fact_erased(shared, sails)
        assert await count_of(shared, sails) == 0
    assert await count_of(shared, sails) == 0
    assert await count_of(shared, bees) > 1, "others still count"


@pytest.mark.usefixtures("counts_held")
async def test_a_fact_forgotten_while_its_first_count_is_written_leaves_no_count(
    shared: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await shared.session("vito")
    await shared.told(session, "vito", "fact user: Vito restores the Kestrel.")
    real, fact = MongoAccesses._remembered, ""  # pyright: ignore[reportPrivateUsage]

    async def meanwhile(self: MongoAccesses, fact_ids: Set[str]) -> set[str]:
        found = await real(self, fact_ids)
        monkeypatch.setattr(MongoAccesses, "_remembered", real)
        assert fact in found
        await fact_erased(shared, fact)
        return found

    async with MemoryService(AGENT, settings=shared.settings) as service:
        fact = await found_by(service, "vito", "Vito restores the Kestrel.")
        monkeypatch.setattr(MongoAccesses, "_remembered", meanwhile)
    assert await count_of(shared, fact) == 0


async def test_a_count_left_by_a_killed_process_goes_with_the_next_round(shared: System) -> None:
    session = await shared.session("wim")
    await shared.told(session, "wim", "fact user: Wim owns the Avocet.", "fact user: Wim paints.")
    rows = await shared.memory("facts").find({"user_id": encode_id("wim")}).to_list()
    of = {row["content"]: row["_id"] for row in rows}
    lost, kept = of["Wim owns the Avocet."], of["Wim paints."]
    await fact_erased(shared, lost)
    left = [
        {"_id": name, "access_count": 1, "last_accessed_at": rows[0]["formed_at"]} for name in (lost, kept)
    ]
    await shared.memory("access").insert_many(left)
    janitor = housekeeping(shared.settings, shared.database.client)
    working = asyncio.create_task(janitor.run())

    async def removed() -> bool:
        return await shared.memory("access").find_one({"_id": lost}) is None

    await until(removed, "the janitor's round")
    janitor.stop()
    await working
    assert await shared.memory("access").find_one({"_id": kept}) is not None
