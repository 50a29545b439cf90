"""What a user said weeks ago: shown while there is room or if it lasts, else brought back by a message."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.gateway.gateway_kit import behind, chats_of
from tests.integration.system.commands import eden
from tests.integration.system.every_door import HEADERS, Asker, every_door
from tests.integration.system.running_system import AGENT, System, until
from tests.model_server.chat_upstream import chat_upstream

pytestmark = pytest.mark.servers
ALLERGY = "The user is allergic to shrimp."
CUPBOARD = "The user keeps the router in the cupboard."
ASKED = "Do I keep the router in the cupboard?"
THEN = datetime.now(UTC) - timedelta(days=60)


async def webhooks(shared: System, session: str, user: str, count: int) -> None:
    """Newer facts, 15 by message, 30 by window."""
    facts = [f"fact user: The user mended webhook number {number}." for number in range(count)]
    for first in range(0, count, 30):
        texts = ["\n".join(facts[at : at + 15]) for at in range(first, min(first + 30, count), 15)]
        await shared.told(session, user, *texts, at=THEN + timedelta(days=20, hours=first))


async def test_what_no_longer_fits_is_brought_back_by_the_message_to_which_it_matters(
    shared: System,
) -> None:
    user = f"u{uuid4().hex[:8]}"
    told, asked_in = await shared.session(user), await shared.session(user)
    await shared.told(told, user, f"fact user: {CUPBOARD}", at=THEN)
    assert CUPBOARD in await shared.shows(asked_in, user, "(60d ago)")
    await webhooks(shared, told, user, 45)
    await shared.shows(asked_in, user, "webhook number 44", without=[CUPBOARD])
    assert CUPBOARD in await shared.service.get_memory_context(asked_in, user, ASKED)
    assert "router" not in await shared.service.get_memory_context(asked_in, user, "Thanks!")
    async with every_door(shared) as doors:
        said = await doors.quick(Asker(asked_in, user), [ASKED])
    for door in (f"python context, {ASKED}", "mcp get_memory_context"):
        assert any(CUPBOARD in text for name, text in said.items() if name.startswith(door)), door
    async with chat_upstream() as upstream:
        placed = behind(shared.settings, upstream.openai_url, AGENT)
        searching = placed.model_copy(update={"memory": shared.settings.memory})
        async with chats_of(searching, upstream) as chats:
            await chats.say(ASKED, user=user, memory_id=asked_in)
            assert CUPBOARD in str(chats.came.messages)


async def test_an_allergy_stays_in_the_context_of_every_door_behind_300_newer_facts_until_it_is_forgotten(
    shared: System,
) -> None:
    user, other = (f"u{uuid4().hex[:8]}" for _ in range(2))
    told, asked_in = await shared.session(user), await shared.session(user)
    room, theirs = await shared.session(user, other), await shared.session(other)
    (said,) = await shared.told(told, user, f"fact user: {ALLERGY} <b>", at=THEN)
    await shared.told(theirs, other, "fact user: The user has a nut allergy.", at=THEN)
    assert "<LastingFacts>" not in await shared.shows(asked_in, user, ALLERGY), "it is among the newest"
    await shared.told(asked_in, user, "note session: They said hello.")
    await webhooks(shared, told, user, 300)
    line = f"- [user] {ALLERGY} &lt;b&gt; ({THEN:%Y-%m-%d})"
    context = await shared.shows(asked_in, user, "webhook number 299", line, without=["webhook number 239."])
    assert context.count("shrimp") == 1
    assert "shrimp" not in await shared.context(room, user)
    assert "shrimp" not in await shared.shows(theirs, other, "a nut allergy", without=["webhook"])
    assert "nut" not in context
    async with every_door(shared) as doors:

        async def ready() -> bool:
            return line in await doors.ready(Asker(asked_in, user))

        await until(ready, "the ready context shows it")
        named = {"session": asked_in, "user": user}
        seen = {"http": (await doors.http.get(f"/v1/agents/{AGENT}/context", params=named)).text}
        call: dict[str, Any] = {"name": "get_memory_context", "arguments": named}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        seen["mcp"] = (await doors.http.post("/mcp", content=json.dumps(body), headers=HEADERS)).text
        seen["command"] = await eden(shared.settings, "context", asked_in, "--user", user, "--agent", AGENT)
        await doors.chats.say("Hello.", user=user, memory_id=asked_in)
        seen["gateway"] = str(doors.chats.came.messages)
    assert [door for door, text in seen.items() if "allergic to shrimp" not in text] == []
    await shared.forget("message", said)
    await shared.shows(asked_in, user, "webhook number 299", without=["shrimp", "LastingFacts"])
