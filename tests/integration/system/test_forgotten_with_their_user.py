"""A user or session is forgotten with everything of theirs: texts that absorbed nothing, and the agent's answers."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId

from eden_memory.mongo.ids import encode_id
from eden_memory.processors import pipeline
from eden_memory.receipts.signing_key import ensured_key
from eden_memory.schemas.events import MessageRecorded
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.awaiting import gives
from tests.integration.system.commands import eden
from tests.integration.system.running_system import AGENT, System, fast, stages, system, until
from tests.integration.system.test_forgetting import after_this_second, gone, holds, standing, until_quiet
from tests.integration.system.test_imports import imported, v1_memories
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
MINE = ("--agent", AGENT)
HOME = "fact user: Ada lives at 5 Main Street."
Row = dict[str, Any]


def of_user(user: str) -> Scope:
    return Scope.of_user(encode_id(AGENT), encode_id(user))


async def answered(at: System, session: str, *texts: str) -> list[str]:
    """Answers of the agent; their ids."""
    rows: list[Row] = [
        {"_id": f"a-{ObjectId()}", "session_id": session, "role": "assistant", "content": text}
        | {"created_at": at._next_moment()}  # pyright: ignore[reportPrivateUsage]
        for text in texts
    ]
    await at.source["messages"].insert_many(rows)
    return [row["_id"] for row in rows]


async def blob_version(at: System, scope: Scope) -> int:
    return (await at.snapshot(scope.key)).get("blob_version", 0)


async def waiting(at: System, messages: list[str]) -> int:
    """How many of these messages wait with their text."""
    held: Row = {"_id": {"$in": [encode_id(one) for one in messages]}, "text": {"$ne": None}}
    return await at.memory("messages").count_documents(held)


async def test_a_text_that_absorbed_nothing_is_forgotten_with_its_user(
    shared: System, tmp_path: Path
) -> None:
    assert ensured_key(shared.settings.local.folder / "receipts.key")
    folder, file, scope = tmp_path / "notes", tmp_path / "receipt.json", of_user("mia")
    folder.mkdir()
    note = "---\nid: one\nrole: summary\nconversation_id: mia\n---\n- Mia collects Quetzals.\n"
    (folder / "summary.md").write_text(note)
    assert (await imported(shared, "markdown", folder, *MINE))["taken"] == {"blob": 1}
    session = await shared.session("mia")
    await shared.shows(session, "mia", "Quetzals")
    await shared.told(session, "mia", *(f"note user: Mia likes tea {number}." for number in range(4)))
    await until(lambda: gives(blob_version(shared, scope), 2), "the reflections are consolidated")
    await shared.shows(session, "mia", "Quetzals", "tea 3")
    options = ("--yes", "--receipt", str(file))
    assert "Erased." in await eden(shared.settings, "forget", "user", "mia", *options)
    await gone(shared, "Quetzals")
    await gone(shared, "Mia likes tea")
    assert not any("Quetzals" in one for one in (await standing(shared, "memory.commands")).values())
    receipt: Row = json.loads(file.read_text())
    assert receipt["memories"][0]["blobs"] == [f"{scope.key}@1", f"{scope.key}@2"]
    assert "Nothing that it names is there" in await eden(shared.settings, "forget", "verify", str(file))
    await shared.shows(session, "mia", without=["Quetzals", "likes tea"])
    assert not await shared.service.list_blobs(user="mia", scopes=["user"])
    await until_quiet(shared)
    await eden(shared.settings, "rebuild", "imported", "--verify")  # exit code 1 if anything differs
    await after_this_second(shared)
    await eden(shared.settings, "pin", scope.key, "Never call Mia.", "--user", "mia", *MINE)
    await shared.shows(session, "mia", "Never call Mia.")


async def test_a_pinned_text_is_forgotten_with_its_session(shared: System) -> None:
    session, other = await shared.session("ned"), await shared.session("ned")
    for name, text in ((session, "Speak of Umbrella first."), (other, "Speak of Parasol first.")):
        scope = Scope.of_session(encode_id(AGENT), encode_id(name), (encode_id("ned"),))
        await shared.told(name, "ned", f"note session: The talk is about {name}.")
        await shared.service.pin(scope.key, text, session=name, user="ned")
        await shared.shows(name, "ned", text)
    await shared.forget("session", session)
    await gone(shared, "Umbrella")
    await shared.shows(session, "ned", without=["Umbrella"])
    await shared.shows(other, "ned", "Parasol")


async def test_the_previous_systems_memory_is_forgotten_with_its_user(shared: System, tmp_path: Path) -> None:
    agent, user = ObjectId(), ObjectId()
    session, later = await shared.session("oda"), await shared.session("pim")
    old = shared.database.client[f"{shared.database.name}_v1"]
    for name, rows in v1_memories(agent, user, session).items():
        await old[name].insert_many(rows)
    assert shared.settings.mongodb.uri is not None
    address = shared.settings.mongodb.uri.get_secret_value().rstrip("/")
    place = address.replace("/?", f"/{old.name}?") if "/?" in address else f"{address}/{old.name}"
    mapping = tmp_path / "mapping.json"
    mapping.write_text(json.dumps({"agents": {str(agent): AGENT}, "users": {str(user): "oda"}}))
    await imported(shared, "v1", place, "--mapping", mapping)
    await shared.shows(
        session, "oda", "Mia runs a bakery.", "Talked about the fair.", "The fair needs helpers."
    )
    await shared.forget("user", "oda")
    for text in ("Mia runs a bakery.", "Talked about the fair.", "Wants brief answers."):
        await gone(shared, text)
        assert not any(text in one for one in (await standing(shared, "memory.commands")).values())
    await shared.shows(later, "pim", "The fair needs helpers.", without=["bakery"])
    await until_quiet(shared)
    await eden(shared.settings, "rebuild", "from-v1", "--verify")
    again = await imported(shared, "v1", place, "--mapping", mapping)
    assert again["taken"] == {}, "an import does not bring it back"
    await shared.database.client.drop_database(old.name)


async def test_answers_that_wait_form_nothing_of_the_only_user_who_heard_them(shared: System) -> None:
    session, other = await shared.session("ada"), await shared.session("ben")
    said = await shared.write(session, "ada", "My address is 5 Main Street.")
    said += await answered(shared, session, HOME)
    bens = await answered(shared, other, "fact user: Ben lives at 7 Side Street.")
    await until(lambda: gives(waiting(shared, [*said, *bens]), 3), "they wait")
    await shared.forget("user", "ada")
    await until(lambda: gives(waiting(shared, said), 1), "what she said is erased")
    await after_this_second(shared)
    await shared.told(session, "ada", "fact user: Ada moved to Oslo.")
    assert await shared.facts("ada") == ["Ada moved to Oslo."]
    assert await waiting(shared, bens) == 1
    await shared.form(other)
    await until(lambda: gives(shared.facts("ben"), ["Ben lives at 7 Side Street."]), "Ben's is formed")


async def test_answers_to_several_stay_with_those_who_are_left(shared: System) -> None:
    session = await shared.session("cat", "dan")
    said = await shared.write(session, "cat", "I have a Heron.")
    said += await shared.write(session, "dan", "fact user: Dan has a Plover.")
    said += await answered(shared, session, "note session: The talk is about birds.")
    await until(lambda: gives(waiting(shared, said), 3), "they wait")
    await shared.forget("user", "cat")
    await until(lambda: gives(waiting(shared, said), 2), "only what she said is erased")
    await shared.form(session)
    await shared.shows(session, "dan", "about birds")


@pytest.fixture
async def unread(settings: Settings, shared_models: Serving) -> AsyncGenerator[System]:
    """Nothing runs yet."""
    async with system(fast(settings, shared_models), shared_models, run=False) as found:
        yield found


async def test_a_window_that_closed_before_the_request_forms_nothing_of_the_answers_after_it(
    unread: System,
) -> None:
    session = await unread.session("eli")
    without = [name for name in pipeline.NAMES if name != pipeline.FACT_EXTRACTION]
    async with stages(unread.settings, without):
        said = await unread.write(session, "eli", "fact user: Eli sails.")
        said += await answered(unread, session, "fact user: Eli lives at 9 Long Lane.")
        await until(lambda: gives(waiting(unread, said), 2), "they wait")
        await unread.form(session)
        await until(lambda: gives(waiting(unread, said), 0), "the window is closed")
        await unread.forget("user", "eli")
        await until(lambda: _marked(unread, "user", "eli"), "the user is forgotten")
    async with stages(unread.settings):
        await after_this_second(unread)
        await unread.told(session, "eli", "fact user: Eli moved to Oslo.")
        await until_quiet(unread)
        assert await unread.facts("eli") == ["Eli moved to Oslo."]
        await eden(unread.settings, "rebuild", "again", "--verify")


async def _marked(at: System, kind: str, name: str) -> bool:
    return await at.memory("forgotten").find_one({"kind": kind, "target": encode_id(name)}) is not None


async def test_answers_that_nobody_has_read_form_nothing_after_the_request(unread: System) -> None:
    """formation-trigger is behind: forgetting does not know yet whose the session is."""
    session = await unread.session("fee")
    without = [name for name in pipeline.NAMES if name != pipeline.FORMATION_TRIGGER]
    async with stages(unread.settings, without):
        await unread.write(session, "fee", "My address is 3 High Road.")
        await answered(unread, session, "fact user: Fee lives at 3 High Road.")
        await until(lambda: _recorded(unread, 2), "both are in the topic")
        await unread.forget("user", "fee")
        await until(lambda: _marked(unread, "user", "fee"), "the user is forgotten")
    async with stages(unread.settings):
        await after_this_second(unread)
        await unread.form(session)
        await unread.told(session, "fee", "fact user: Fee moved to Oslo.")
        assert await unread.facts("fee") == ["Fee moved to Oslo."]


async def _recorded(at: System, number: int) -> bool:
    records = await at.records("chat.messages")
    return sum(record.envelope.name == MessageRecorded.NAME for record in records) == number


async def test_a_session_that_others_joined_loses_what_its_first_user_alone_could_see(shared: System) -> None:
    session = await shared.session("gil")
    said = await shared.write(session, "gil", "Hello.")
    said += await answered(shared, session, "note session: The code is Bluebell.")
    await shared.form(session)
    await shared.formed(said, 1)
    await shared.source["sessions"].update_one({"_id": session}, {"$set": {"users": ["gil", "hoa"]}})
    await shared.told(session, "hoa", "note session: The plan is Foxglove.")
    await shared.forget("user", "gil")

    async def erased() -> bool:
        places = ("reflections", "snapshots", "contexts")
        topic = await standing(shared, "memory.reflections")
        left = any("Bluebell" in one for one in topic.values())
        return not left and not any([await holds(shared, name, "Bluebell") for name in places])

    await until(erased, "no memory of it is left")
    await shared.shows(session, "hoa", "Foxglove", without=["Bluebell"])


async def test_the_command_behind_a_withdrawn_text_leaves_its_topic(shared: System) -> None:
    session, scope = await shared.session("ivo"), of_user("ivo")
    said = [f"note user: Ivo likes stamp {number}." for number in range(4)]
    (first, *_) = await shared.told(session, "ivo", *said)
    await until(lambda: gives(blob_version(shared, scope), 1), "a consolidated text")
    text = (await shared.snapshot(scope.key))["blob"]
    await shared.service.edit(scope.key, f"{text}\nHas a Marmot.", user="ivo", expected_version=1)
    await shared.shows(session, "ivo", "Marmot")
    assert any("Marmot" in one for one in (await standing(shared, "memory.commands")).values())
    await shared.forget("message", first)
    await gone(shared, "Marmot")

    async def ended() -> bool:
        return not any("Marmot" in one for one in (await standing(shared, "memory.commands")).values())

    await until(ended, "its command is tombstoned")
