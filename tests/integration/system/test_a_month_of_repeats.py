"""Day after day the same cron prompt, the same boot file, an agent that quotes its memory: no copy grows.

The model is scripted to be careless: every sentence about Ana that it is shown becomes a fact, whoever says it. It
judges well: what only adds "still" or "as noted" to a known fact says the same.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eden_memory.limits import MOST_SOURCES
from tests.integration.system.obedient_model import KNOWN, obey
from tests.integration.system.running_system import System
from tests.model_server.script import Asked, Said

pytestmark = pytest.mark.servers
BEGIN = datetime.now(UTC).replace(microsecond=0) - timedelta(days=31)
NEW = re.compile(r"^(N\d+) (?:\([^)]*\) )?near((?: [KN]\d+)*): (.+)$", re.MULTILINE)
SENTENCE = re.compile(r"\bAna [^.!?\n<]+")
BOOT = (
    "Ana lives in Vigo with a tortoise called Plato",
    "Ana drives the ferry to Cangas on weekdays",
    "Ana answers only before noon",
)
CRON = "Ana wants the weather of the harbour each morning"
NEWS = [
    "copper lantern",
    "walnut ladder",
    "marble basin",
    "velvet curtain",
    "silver whistle",
    "bamboo trellis",
    "cotton hammock",
    "leather satchel",
    "granite bench",
    "crystal vase",
    "bronze sundial",
    "wicker basket",
    "rubber anchor",
    "linen sail",
    "ceramic teapot",
    "canvas awning",
    "pewter tankard",
    "mahogany rudder",
    "porcelain figurine",
    "woollen blanket",
    "plaster mermaid",
    "brass telescope",
    "timber jetty",
    "enamel kettle",
    "clay oven",
    "slate roof",
    "paper kite",
    "rope swing",
    "glass float",
    "steel winch",
]
"""One for each day."""


ADDED = {"still", "as", "noted"}


def carelessly(asked: Asked) -> Said:
    """State whatever is said of Ana; known facts in other words are no new ones."""
    if asked.kind == "facts":
        return {
            "facts": [
                {"text": text.strip(), "scope": "user", "messages": [number]}
                for number, said in asked.messages.items()
                for text in SENTENCE.findall(said)
            ]
        }
    if asked.kind == "decisions":
        new = NEW.findall(asked.user)
        known = {label: _words(text) for label, text in KNOWN.findall(asked.user)}
        known |= {label: _words(text) for label, _, text in new}
        return {
            "decisions": [
                {"fact": label, "decision": "NONE", "existing": same[0], "text": None, "reason": "same"}
                for label, near, text in new
                if (same := [one for one in near.split() if _words(text) - known.get(one, set()) <= ADDED])
            ]
        }
    return obey(asked)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def news_of(day: int) -> str:
    return f"Ana repaired the {NEWS[day]}"


async def a_day(running: System, day: int) -> int:
    """One session, in which the agent has its memory in front of it; how many messages it has."""
    at, session = BEGIN + timedelta(days=day), await running.session("ana")
    memory = await running.service.get_memory_context(session, "ana", force_refresh=True)
    texts = [
        ("system", f"Boot file. {'. '.join(BOOT)}."),
        ("user", f"Cron at seven: {CRON}."),
        ("user", f"{memory}\nAnything new today? {news_of(day)}."),
        (
            "assistant",
            f"{memory}\nYou told me: {BOOT[0]}. {BOOT[1].replace(' drives', ' as noted drives')}.",
        ),
        ("assistant", f"Ana still {CRON.removeprefix('Ana ')}."),
    ]
    rows: list[dict[str, Any]] = [
        {
            "_id": f"day-{day}-{number}",
            "session_id": session,
            "role": role,
            "content": text,
            "created_at": at + timedelta(minutes=number),
        }
        | ({"user_id": "ana"} if role == "user" else {})
        for number, (role, text) in enumerate(texts)
    ]
    await running.source["messages"].insert_many(rows)
    await running.form(session)
    await running.formed([row["_id"] for row in rows], len(BOOT) + 2)
    return len(rows)


@pytest.mark.parametrize("days", [5, pytest.param(30, marks=pytest.mark.slow)])
async def test_no_copy_grows(shared: System, days: int) -> None:
    shared.models.script = carelessly
    try:
        messages = sum([await a_day(shared, day) for day in range(days)])
    finally:
        shared.models.script = obey
    facts = await shared.facts("ana")
    assert facts == sorted([*BOOT, CRON, *map(news_of, range(days))])
    async for row in shared.memory("facts").find({"user_id": "s.ana"}):
        assert len(row["sources"]) <= MOST_SOURCES
        assert row["retired_at"] is None
    found = await shared.service.audit(user="ana")
    assert found.facts == found.with_messages == len(facts)
    assert {junk.kind: junk.count for junk in found.kinds if junk.count} == {}
    print(f"{days} days, {messages} messages, {len(facts)} facts, no junk")  # noqa: T201 - the figures of docs/eval.md
