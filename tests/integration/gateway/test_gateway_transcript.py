"""The example of docs/gateway.md: OpenAI's client, the gateway, memory formed by the real stages and used."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from eden_memory.settings import Settings
from examples import gateway_chat
from tests.integration.gateway.gateway_kit import chats_of, running
from tests.integration.system.running_system import prepare, stages
from tests.model_server.chat_upstream import ChatUpstream, Reply

pytestmark = pytest.mark.servers
DOCS = Path(__file__).parents[3] / "docs" / "gateway.md"
FACT = re.compile(r"^    - \[\w+\] (.+) \(.+\)$", re.MULTILINE)
RECENT = re.compile("<Recent>.*?</Recent>", re.DOTALL)
"""The fixed example is about memory that is formed; the same words stand here until then."""
WORD = re.compile(r"\w{4,}")


def from_memory(body: dict[str, Any]) -> Reply:
    """A model without any knowledge: it says the fact in its prompt that shares most words with the question."""
    shown = unescape("\n".join(one["content"] for one in body["messages"] if one["role"] == "system"))
    shown = RECENT.sub("", shown)
    asked = set(WORD.findall(body["messages"][-1]["content"].lower()))
    facts = sorted(FACT.findall(shown), key=lambda one: -len(asked & set(WORD.findall(one.lower()))))
    if not body["messages"][-1]["content"].endswith("?"):
        return Reply(("Noted", "."))
    return Reply(("From memory: ", facts[0]) if facts else ("I do not know", "."))


@pytest.mark.slow
async def test_what_is_said_in_one_conversation_is_known_in_the_next_as_the_docs_show(
    settings: Settings, provider: ChatUpstream
) -> None:
    here = running(settings, provider.openai_url)
    provider.reply = from_memory
    await prepare(here)
    async with stages(here), chats_of(here, provider) as chats, chats.client() as client:
        lines: list[str] = []
        await gateway_chat.main(client, "m", chats.memory, 60, lines.append)
        stored = await chats.stored("tuesday")
        asked = chats.upstream.came[-2].messages
    said = "\n".join(lines)
    assert "model  From memory: User's daughter Ines was born on 12 May 2019." in said
    assert [one["role"] for one in asked] == ["system", "system", "user"]
    assert [text for role, text in stored if role == "user"] == list(gateway_chat.TUESDAY)
    assert said in DOCS.read_text()
