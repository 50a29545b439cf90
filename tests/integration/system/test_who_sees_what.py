"""Whose memory is formed and shown: switched off, several users, users who come and go."""

import pytest

from eden_memory.mongo.ids import encode_id
from tests.integration.system.running_system import System, until

pytestmark = pytest.mark.servers


async def test_nothing_is_formed_of_a_session_that_is_incognito(shared: System) -> None:
    hidden, open_one = await shared.session("nan", incognito=True), await shared.session("nan")
    names = await shared.write(
        hidden, "nan", "fact user: Nan robs banks.", "note session: The talk is about loot."
    )
    await shared.form(hidden)
    await shared.told(open_one, "nan", "fact user: Nan is from Kiel.")
    await shared.shows(open_one, "nan", "Nan is from Kiel.", without=["robs"])
    await until(lambda: erased(shared, names), "tombstones in the chat topic")
    assert await shared.facts("nan") == ["Nan is from Kiel."]
    for name in ("messages", "windows", "facts", "reflections"):
        assert not [row async for row in shared.memory(name).find() if "robs" in str(row)]


async def erased(shared: System, messages: list[str]) -> bool:
    last = {one.key: one for one in await shared.records("chat.messages")}
    found = [last.get(encode_id(one)) for one in messages]
    return all(one is not None and one.value is None for one in found)


async def test_nothing_is_formed_of_a_user_who_is_switched_off(shared: System) -> None:
    await shared.source["users"].insert_one({"_id": "olga", "memory": False})
    session = await shared.session("olga", "pat")
    (off, _) = [
        *await shared.write(session, "olga", "note session: Olga plans a heist."),
        *await shared.write(session, "pat", "note session: Pat plans a party."),
    ]
    await shared.form(session)
    await shared.shows(session, "pat", "Pat plans a party.", without=["heist"])
    await until(lambda: erased(shared, [off]), "a tombstone in the chat topic")
    assert not [row async for row in shared.memory("windows").find() if "heist" in str(row)]


async def test_in_a_session_of_several_users_no_memory_of_one_is_formed_or_shown(shared: System) -> None:
    alone, together = await shared.session("quin"), await shared.session("quin", "rob")
    await shared.told(alone, "quin", "fact user: Quin has gout.", "note user: Quin is shy.")
    await shared.shows(alone, "quin", "gout", "shy")
    await shared.write(together, "quin", "fact user: Quin is broke.", "note user: Quin is sad.")
    names = await shared.write(
        together, "rob", "note session: They plan a tour.", "fact agent: The office in Oslo has a fjord."
    )
    await shared.form(together)
    await shared.formed(names, 2)
    for user in ("quin", "rob", None):
        xml = await shared.shows(together, str(user) if user else "quin", "plan a tour", "Oslo has a fjord")
        assert not [one for one in ("gout", "shy", "broke", "sad") if one in xml]
    assert not [one for one in ("gout", "broke") if one in await shared.context(together)]
    assert await shared.facts("quin") == ["Quin has gout."]
    assert await shared.contents("reflections", user_id=encode_id("rob")) == []


async def test_session_memory_is_hidden_from_who_joins_and_shown_again_when_he_has_left(
    shared: System,
) -> None:
    session = await shared.session("sue")
    await shared.told(session, "sue", "note session: Sue talks of her divorce.")
    await shared.shows(session, "sue", "divorce")
    users = shared.source["sessions"]
    await users.update_one({"_id": session}, {"$set": {"users": ["sue", "tom"]}})
    await shared.shows(session, "sue", without=["divorce"])
    names = await shared.write(session, "tom", "note session: Both talk of boats.")
    await shared.form(session)
    await shared.formed(names, 1)
    await shared.shows(session, "tom", "boats", without=["divorce"])
    await users.update_one({"_id": session}, {"$set": {"users": ["sue"]}})
    await shared.shows(session, "sue", "divorce", without=["boats"])
