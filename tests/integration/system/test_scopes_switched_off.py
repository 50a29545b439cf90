"""`eden stream off` on a running system: the scope is neither formed nor shown, until it is switched on again."""

import pytest

from eden_memory.mongo.ids import encode_id
from tests.integration.system.commands import eden
from tests.integration.system.running_system import AGENT, System

pytestmark = pytest.mark.servers


async def test_a_scope_that_a_stream_switches_off_is_neither_formed_nor_shown(shared: System) -> None:
    before = await shared.session("ola")
    await shared.told(before, "ola", "fact user: Ola owns a kiln.", "note user: Ola hates noise.")
    await shared.shows(before, "ola", "kiln", "noise")
    assert "is off" in await eden(shared.settings, "stream", "off", AGENT, "user")
    await shared.shows(before, "ola", without=["kiln", "noise"])
    session = await shared.session("ola")
    names = await shared.write(
        session,
        "ola",
        "fact user: Ola sold the kiln.",
        "note user: Ola likes jazz.",
        "note session: Planning.",
    )
    await shared.form(session)
    await shared.formed(names, 1)
    await shared.shows(session, "ola", "Planning.", without=["kiln", "noise", "jazz"])
    (window,) = [one for one in await shared.records("memory.formations") if session in one.key]
    assert window.value is not None
    assert b'"kind":"user"' not in window.value
    await eden(shared.settings, "stream", "set", AGENT, "user", "active=true")
    await shared.told(session, "ola", "fact user: Ola bought a wheel.")
    await shared.shows(session, "ola", "kiln", "wheel", without=["jazz"])


async def test_a_sessions_memory_is_formed_whatever_its_stream_says(shared: System) -> None:
    streams = shared.memory("streams")
    agent = encode_id(AGENT)
    await streams.insert_one({"_id": "by-hand", "agent_id": agent, "scope": "session", "active": False})
    session = await shared.session("pia")
    await shared.told(session, "pia", "note session: Pia plans a trip.")
    await shared.shows(session, "pia", "Pia plans a trip.")
    await streams.delete_one({"_id": "by-hand"})
