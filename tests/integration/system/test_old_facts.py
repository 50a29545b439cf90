"""What a user said weeks ago: shown while there is room, and brought back by the message to which it matters."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tests.integration.gateway.gateway_kit import chats_of
from tests.integration.system.every_door import Asker, every_door
from tests.integration.system.running_system import AGENT, System
from tests.model_server.chat_upstream import chat_upstream

pytestmark = pytest.mark.servers
ALLERGY = "The user is allergic to shrimp."
ASKED = "Am I allergic to shrimp?"


async def test_an_allergy_is_in_the_context_after_weeks_and_at_every_door_behind_many_newer_facts(
    shared: System,
) -> None:
    user, then = f"u{uuid4().hex[:8]}", datetime.now(UTC) - timedelta(days=60)
    told, asked_in = await shared.session(user), await shared.session(user)
    await shared.told(told, user, f"fact user: {ALLERGY}", at=then)
    assert ALLERGY in await shared.shows(asked_in, user, "(60d ago)")
    for first in range(0, 45, 5):
        newer = [f"fact user: The user mended webhook number {first + more}." for more in range(5)]
        await shared.told(told, user, *newer, at=then + timedelta(days=40, hours=first))
    await shared.shows(asked_in, user, "webhook number 44", without=[ALLERGY])
    assert ALLERGY in await shared.service.get_memory_context(asked_in, user, ASKED)
    assert "shrimp" not in await shared.service.get_memory_context(asked_in, user, "Thanks!")
    async with every_door(shared) as doors:
        said = await doors.quick(Asker(asked_in, user), [ASKED])
    for door in (f"python context, {ASKED}", "mcp get_memory_context"):
        assert any(ALLERGY in text for name, text in said.items() if name.startswith(door)), door
    async with chat_upstream() as upstream:
        fields = {"upstream": upstream.openai_url, "agent_id": AGENT, "memory_seconds": 60.0}
        gateway = shared.settings.gateway.model_copy(update=fields)
        async with chats_of(shared.settings.model_copy(update={"gateway": gateway}), upstream) as chats:
            await chats.say(ASKED, user=user, memory_id=asked_in)
            assert ALLERGY in str(chats.came.messages)
