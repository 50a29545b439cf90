"""Applications that delete a session's messages and write all of them again, with each turn and under new ids."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eden_memory.doctor.mongodb_checks import deletions
from eden_memory.mongo.ids import encode_id
from eden_memory.settings import Settings
from eden_memory.windows.trigger_store import readers_of
from tests.integration.system.running_system import Row, System, fast, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
TURNS = 10
LONG, SHORT = 600.0, 2.0


@pytest.fixture(scope="module")
async def patient(shared_settings: Settings, shared_models: Serving) -> AsyncGenerator[System]:
    """A running system in which no deletion of these tests comes due."""
    waits = fast(shared_settings, shared_models, messages={"delete_grace_seconds": LONG})
    async with system(waits, shared_models) as running:
        yield running


class History:
    """One session's messages as a framework keeps them: it knows the texts, and no ids."""

    def __init__(self, running: System, session: str, user: str) -> None:
        self.running, self.session, self.user = running, session, user
        self.texts: list[str] = []
        self.names: list[str] = []

    async def clear(self) -> None:
        await self.running.source["messages"].delete_many({"session_id": self.session})

    async def write(self) -> None:
        self.names = await self.running.write(self.session, self.user, *self.texts)

    async def turn(self, text: str) -> None:
        """Write everything again, and one message more."""
        self.texts.append(text)
        await self.clear()
        await self.write()

    async def settled(self) -> None:
        """Until formation-trigger knows the last message."""

        async def known() -> bool:
            wanted = [encode_id(name) for name in self.names]
            return await self.running.memory("messages").count_documents({"_id": {"$in": wanted}}) == len(
                wanted
            )

        await until(known, "all messages are known")


async def calls(running: System) -> int:
    """The paid answers that are kept."""
    return await running.memory("answers").count_documents({"text": {"$ne": None}})


async def test_ten_rewritten_turns_pay_for_ten_messages_alone(patient: System) -> None:
    plain = History(patient, await patient.session("ola"), "ola")
    rewritten, other = History(patient, await patient.session("una"), "una"), await patient.session("una")

    async def say(text: str) -> None:
        plain.names += await patient.write(plain.session, "ola", text)

    async def turns(history: History, name: str, turn: Callable[[str], Awaitable[None]]) -> int:
        before = await calls(patient)
        for number in range(TURNS):
            await turn(f"fact user: {name} owns boat {number}.")
            await patient.form(history.session)
            active: Row = {"user_id": encode_id(history.user), "active": True}
            await until(lambda: _counts(patient.memory("facts"), active, number + 1), f"{number + 1} facts")  # noqa: B023
            await until(lambda: _reflected(patient, history.session, number + 1), "all stages are done")  # noqa: B023
        return await calls(patient) - before

    assert await turns(plain, "Ola", say) == await turns(rewritten, "Una", rewritten.turn)
    wanted = [f"Una owns boat {number}." for number in range(TURNS)]
    assert await patient.facts("una") == sorted(wanted)
    await patient.shows(other, "una", *wanted)
    assert "Una owns boat 3." in await _found(patient, other, "una", "boat 3")
    explained = await patient.service.why("Una owns boat 3", session=other, user="una")
    assert {one.outcome for one in explained if one.content == "Una owns boat 3."} == {"remembered"}
    found = await deletions(patient.database.client, patient.settings)
    assert (found.state, "EDEN_MESSAGES_ON_DELETE=keep" in found.hint) == ("warn", True)


async def test_a_deletion_hides_at_once_and_what_is_written_again_is_shown_again(patient: System) -> None:
    session, other = await patient.session("ada"), await patient.session("ada")
    history = History(patient, session, "ada")
    history.texts = ["fact user: Ada rides a blue bicycle.", "note user: Ada rides to work."]
    await history.write()
    await patient.form(session)
    await patient.formed(history.names, 2)
    await patient.shows(other, "ada", "blue bicycle", "rides to work")

    await history.clear()
    await patient.shows(other, "ada", without=["blue bicycle", "rides to work"])
    assert await _found(patient, other, "ada", "blue bicycle") == []
    listed = await patient.service.list_facts(session=other, user="ada")
    assert listed.items == ()
    assert await patient.facts("ada") == ["Ada rides a blue bicycle."], "nothing is erased yet"

    before = await calls(patient)
    await history.write()
    await patient.shows(other, "ada", "blue bicycle", "rides to work", without=["<Recent>"])
    assert await _found(patient, other, "ada", "blue bicycle") == ["Ada rides a blue bicycle."]
    await history.settled()
    assert await calls(patient) == before


async def test_a_deletion_hides_a_lasting_fact_that_newer_ones_have_displaced(patient: System) -> None:
    session, other = await patient.session("ina"), await patient.session("ina")
    then = datetime.now(UTC) - timedelta(days=60)
    names = await patient.told(session, "ina", "fact user: Ina is allergic to nuts.", at=then)
    for first in (0, 25):
        newer = [f"fact user: Ina mended webhook {number}." for number in range(first, first + 25)]
        await patient.told(session, "ina", "\n".join(newer), at=then + timedelta(days=1 + first))
    await patient.shows(other, "ina", "<LastingFacts>", "allergic to nuts", "webhook 49.")
    await patient.source["messages"].delete_one({"_id": names[0]})
    await patient.shows(other, "ina", "webhook 49.", without=["nuts"])
    assert "Ina is allergic to nuts." in await patient.facts("ina"), "nothing is erased yet"


async def test_a_deletion_hides_a_blob_that_absorbed_it_and_nothing_else_of_its_scope(
    patient: System,
) -> None:
    session, other = await patient.session("hal"), await patient.session("hal")
    notes = [f"note user: Hal likes thing-{number}." for number in range(3)]
    names = await patient.told(
        session, "hal", "note user: Hal fears spiders.", *notes, "fact user: Hal skis."
    )
    await patient.shows(other, "hal", "<Consolidated>", "spiders", "Hal skis.")
    await patient.source["messages"].delete_one({"_id": names[0]})
    await patient.shows(other, "hal", "Hal skis.", without=["spiders", "<Consolidated>"])
    found = await patient.service.list_facts(session=other, user="hal")
    assert [fact.content for fact in found.items] == ["Hal skis."]


async def test_another_text_under_the_id_of_a_deleted_message_is_shown(patient: System) -> None:
    session, other = await patient.session("eli"), await patient.session("eli")
    (name,) = await patient.told(session, "eli", "fact user: Eli sails.")
    row = await patient.source["messages"].find_one_and_delete({"_id": name})
    await patient.shows(other, "eli", without=["Eli sails."])
    await patient.source["messages"].insert_one({**(row or {}), "content": "fact user: Eli rows."})
    await patient.form(session)
    await until(lambda: _are(patient.facts("eli"), ["Eli rows.", "Eli sails."]), "nothing is erased yet")
    await patient.shows(other, "eli", "Eli rows.", without=["Eli sails.", "<Recent>"])


async def test_equal_texts_are_matched_one_to_one(patient: System) -> None:
    session = await patient.session("eve")
    history = History(patient, session, "eve")
    history.texts = ["fact user: Eve sails.", "ok", "ok"]
    await history.write()
    await patient.form(session)
    await patient.formed(history.names, 1)
    firsts = [encode_id(name) for name in history.names]
    await history.turn("ok")
    await history.settled()
    wanted: Row = {"_id": {"$in": [encode_id(name) for name in history.names]}}
    rows = {row["_id"]: row async for row in patient.memory("messages").find(wanted)}
    known = [rows[encode_id(name)].get("alias_of") for name in history.names]
    assert known == [*firsts, None], "the third `ok` is a new message"
    assert rows[encode_id(history.names[-1])]["place"] is not None, "and waits for its window"


async def test_forgetting_by_the_new_id_erases_at_once(patient: System) -> None:
    session, other = await patient.session("ivo"), await patient.session("ivo")
    history = History(patient, session, "ivo")
    history.texts = ["fact user: Ivo keeps bees."]
    await history.write()
    await patient.form(session)
    await patient.formed(history.names, 1)
    await history.turn("Something else.")
    await history.settled()
    await patient.shows(other, "ivo", "keeps bees")
    await patient.forget("message", history.names[0])
    await until(lambda: _are(patient.facts("ivo"), []), "the fact is erased")
    left = [
        came.value
        for came in await patient.records("chat.messages")
        if came.key == encode_id(history.names[0])
    ]
    assert left[-1] is None, "the text is gone from the topic"


@pytest.mark.slow
async def test_what_is_not_written_again_is_erased_after_the_grace_also_by_its_new_id(
    settings: Settings, shared_models: Serving
) -> None:
    soon = fast(settings, shared_models, messages={"delete_grace_seconds": SHORT})
    async with system(soon, shared_models) as running:
        session, other = await running.session("ulf"), await running.session("ulf")
        history = History(running, session, "ulf")
        history.texts = ["fact user: Ulf plays chess.", "fact user: Ulf plays go."]
        await history.write()
        await running.form(session)
        await running.formed(history.names, 2)
        await history.turn("Something else.")
        await history.settled()
        await running.source["messages"].delete_one({"_id": history.names[0]})
        await until(lambda: _are(running.facts("ulf"), ["Ulf plays go."]), "the fact is erased")
        await running.shows(other, "ulf", "plays go", without=["plays chess"])
        assert (await deletions(running.database.client, running.settings)).state == "ok"
        for user in ("uma", "ute", "udo"):
            trimmed = await running.session(user)
            names = await running.told(
                trimmed, user, f"fact user: {user} is old.", f"fact user: {user} is new."
            )
            await running.source["messages"].delete_one({"_id": names[0]})
            await until(lambda: _are(running.facts(user), [f"{user} is new."]), "the oldest is erased")  # noqa: B023
        assert (await deletions(running.database.client, running.settings)).state == "warn"


async def _found(running: System, session: str, user: str, text: str) -> list[str]:
    return [fact.content for fact in await running.service.search_facts([text], session=session, user=user)]


async def _are(found: Any, wanted: list[str]) -> bool:
    return await found == wanted


async def _reflected(running: System, session: str, wanted: int) -> bool:
    """Whether reflection-extraction has decided on so many windows of a session."""
    windows = await running.memory("windows").find({"session_id": encode_id(session)}).to_list()
    done: Row = {"members": {"$in": [readers_of(window["_id"])[1] for window in windows]}}
    return await running.memory("outcomes").count_documents(done) == wanted


async def _counts(collection: Any, query: Row, wanted: int) -> bool:
    return await collection.count_documents(query) >= wanted
