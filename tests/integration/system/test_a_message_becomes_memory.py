"""A chat message becomes facts, reflections, blobs and a fresh context, hands-free."""

import asyncio
from collections.abc import Awaitable

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.source.messages_store import inbox_name
from tests.integration.system.commands import eden
from tests.integration.system.running_system import System, until

pytestmark = pytest.mark.servers


async def test_what_an_application_writes_stands_in_the_next_context(shared: System) -> None:
    session = await shared.session("ann")
    other = await shared.session("ann")
    await shared.context(session, "ann")
    await shared.told(
        session,
        "ann",
        "fact user: Ann keeps nine bees in Tarn since May.",
        "note user: Wants short answers.",
        "note user: Wants no jokes.",
        "note user: Knows beekeeping well.",
        "note user: Likes tables.",
        "note session: The talk is about hives.",
    )
    xml = await shared.shows(session, "ann", "Ann keeps nine bees", "about hives", "<Consolidated>")
    assert "Wants short answers." in xml
    await shared.shows(other, "ann", "Ann keeps nine bees", "Likes tables", without=["about hives"])
    blob = await shared.memory("consolidated").find_one({"user_id": encode_id("ann")})
    assert blob is not None
    assert (blob["version"], len(blob["absorbed"])) == (1, 4)

    async def ready() -> bool:
        kept = await shared.memory("contexts").find_one({"session_id": encode_id(session)})
        return kept is not None and all(one in kept["xml"] for one in ("nine bees", "about hives", "tables"))

    await until(ready, "memory_contexts holds it")


async def test_what_two_sessions_say_alike_stands_once_in_the_context(shared: System) -> None:
    for _ in range(2):
        await shared.told(await shared.session("pia"), "pia", "note user: Wants short answers.")
    session = await shared.session("pia")
    xml = await shared.shows(session, "pia", "Wants short answers.")
    assert len(await shared.contents("reflections", user_id=encode_id("pia"))) == 2
    assert xml.count("Wants short answers.") == 1


async def test_a_session_that_ends_is_consolidated_whatever_its_buffer(shared: System) -> None:
    session = await shared.session("eve")
    await shared.write(session, "eve", "note session: Eve plans a trip to Rome.")
    await shared.end(session)
    await shared.shows(session, "eve", "<Consolidated>- Eve plans a trip to Rome.")


async def test_a_fact_said_in_twenty_sessions_at_once_is_one_fact_with_all_its_sources(
    shared: System,
) -> None:
    words = (
        "Bob's boat Tern lies at berth nine same-boat",
        "The berth nine holds the boat Tern of Bob same-boat",
    )
    sessions = [await shared.session("bob") for _ in range(20)]
    said = [await shared.write(one, "bob", f"fact user: {words[n % 2]}") for n, one in enumerate(sessions)]
    await asyncio.gather(*(shared.form(one) for one in sessions))
    wanted = {encode_id(name) for (name,) in said}

    async def merged() -> bool:
        found = await shared.memory("facts").find({"user_id": encode_id("bob"), "active": True}).to_list()
        return len(found) == 1 and set(found[0]["message_ids"]) == wanted

    await until(merged, "one fact of twenty messages")
    assert len(await shared.facts("bob")) == 1


async def _unheard_of(shared: System, user: str, word: str) -> bool:
    return word not in repr(await shared.service.export_user(user))


async def test_an_added_text_becomes_memory_without_a_session_or_a_chat(shared: System) -> None:
    """Sessions are mapped, and nobody writes a document for it."""
    await shared.service.add("fact user: Dora keeps two goats.", user="dora")
    await until(lambda: _are(shared.facts("dora"), ["Dora keeps two goats."]), "the added fact")
    (fact,) = (await shared.service.list_facts(user="dora", scopes=["user"])).items
    assert fact.scope.user_id == encode_id("dora")
    assert [one.user_id for one in fact.sources] == [encode_id("dora")]
    await shared.service.edit(fact.fact_id, "Dora keeps three goats.", user="dora", expected_version=1)
    await until(lambda: _are(shared.facts("dora"), ["Dora keeps three goats."]), "the edited fact")
    history = await shared.service.history(fact.fact_id, user="dora")
    assert [one.content for one in history.versions] == ["Dora keeps three goats.", "Dora keeps two goats."]
    assert [one.action for one in history.versions] == ["edit", None]
    await shared.service.forget("user", "dora", user="dora")
    await until(lambda: _are(shared.facts("dora"), []), "all of it forgotten")
    await until(
        lambda: _unheard_of(shared, "dora", "goats"), "what asked for it erased, once the tailer is past it"
    )


async def test_a_session_that_only_added_texts_name_is_asked_like_any_other(shared: System) -> None:
    inbox = shared.source[inbox_name(shared.settings)]
    await shared.service.add("fact user: Ewa plays chess.", session="added-only", user="ewa")

    async def carried() -> bool:
        recorded = await shared.memory("messages").find_one({"session_id": "s.added-only"})
        return recorded is not None and await inbox.find_one({"session_id": "added-only"}) is None

    await until(carried, "the added text is recorded, and the request for it erased")
    said = await eden(shared.settings, "session", "form", "added-only")
    assert said.startswith("asked: what is pending is formed now")
    assert '"session_id": "s.added-only"' in await eden(shared.settings, "windows", "added-only", "--json")


async def _are(found: Awaitable[list[str]], wanted: list[str]) -> bool:
    return await found == wanted


async def test_asking_whether_something_is_due_forms_nothing_early_and_asking_for_it_now_does(
    shared: System,
) -> None:
    session = await shared.session("una")
    names = await shared.write(session, "una", "fact user: Una sails a yawl.", "fact user: Una has two sons.")
    assert not (await shared.service.maybe_form_memories(session)).formed
    await shared.service.process_cold_session(session)
    names += await shared.write(session, "una", "fact user: Una was born in Cork.")
    await shared.service.form_now(session)
    await shared.formed(names, 3)
    windows = await shared.memory("windows").find({"session_id": encode_id(session)}).to_list()
    assert [(len(one["messages"]), one["closed"]["because"]) for one in windows] == [(3, "asked")]
    assert not (await shared.service.maybe_form_memories(session)).formed
