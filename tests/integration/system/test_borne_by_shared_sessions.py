"""How much of what answers questions survives sessions of two users, with `session` and with `authors`.

Two people's conversations, written as one user's, and as two users': the share of the turns that answer questions
which stored facts bear. EDEN_TEST_CONVERSATIONS: which of the conversations (0:1, the first).
"""

import json
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.events import FactsProposed
from eden_memory.schemas.scopes import SharedSessions
from eden_memory.settings import Settings
from tests.evals.conversations import DATA, there
from tests.integration.system.running_system import System, fast, system, until
from tests.model_server.script import Asked, Said, default_script
from tests.model_server.serving import serving

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not there(), reason="the conversations are not here"),
]
Told = dict[str, Any]
FIRST, LAST = map(int, os.environ.get("EDEN_TEST_CONVERSATIONS", "0:1").split(":"))


def conversations() -> list[Told]:
    return json.loads(Path(DATA).read_text())[FIRST:LAST]


def knowing(told: Told) -> Any:
    """A model that finds the conversation's facts: those of shown turns, with the turns that bear them."""
    turns = {
        " ".join(one["text"].split()): one["id"] for session in told["sessions"] for one in session["turns"]
    }

    def answer(asked: Asked) -> Said:
        if asked.kind != "facts":
            return default_script(asked)
        said = {number: " ".join(text.partition(": ")[2].split()) for number, text in asked.messages.items()}
        numbers = {turns.get(text): number for number, text in said.items()}
        label = "user" if "user" in asked.labels else next(iter(asked.labels), "agent")
        stated = [
            {"text": fact["text"], "scope": label, "messages": [numbers[one] for one in fact["evidence"]]}
            for fact in told["facts"]
            if fact["evidence"] and all(one in numbers for one in fact["evidence"])
        ]
        return {"facts": stated[:30]}

    return answer


async def wrote(running: System, told: Told, *, one_user: bool) -> None:
    """All sessions, each formed by itself; returns once all are formed."""
    users = {
        told["speakers"][0] if one_user else one["speaker"] for s in told["sessions"] for one in s["turns"]
    }
    for number, session in enumerate(told["sessions"]):
        name = await running.session(*sorted(users), id=f"{told['id']}-{number}")
        begun = datetime.strptime(session["date_time"], "%I:%M %p on %d %B, %Y").astimezone()
        rows = [
            {
                "_id": f"{told['id']}/{turn['id']}",
                "session_id": name,
                "role": "user",
                "user_id": told["speakers"][0] if one_user else turn["speaker"],
                "content": turn["text"],
                "created_at": begun + timedelta(seconds=at),
            }
            for at, turn in enumerate(session["turns"])
        ]
        await running.source["messages"].insert_many(rows)
        await running.form(name)

    async def formed() -> bool:
        of = {"stage": "reflection-extraction"}
        return await running.database["memory_outcomes"].count_documents(of) >= len(told["sessions"])

    await until(formed, "every session is formed")


async def decided(running: System) -> bool:
    """Whether every fact that was proposed is a source of what is stored."""
    proposed = {
        source.message_id
        for came in await running.records("memory.candidates")
        for fact in cast("FactsProposed", came.event).facts
        for source in fact.sources
    }
    return proposed <= set(await running.memory("facts").distinct("message_ids"))


async def borne(running: System, told: Told) -> tuple[int, int]:
    """Of the turns that answer a question, how many a stored fact rests on; and all of them."""
    ids = {f"{told['id']}/{one}" for question in told["questions"] for one in question["evidence"]}
    wanted = {encode_id(one) for one in ids}
    found: set[str] = set(await running.memory("facts").distinct("message_ids"))
    return len(wanted & found), len(wanted)


async def share(settings: Settings, mode: SharedSessions, llm: str, *, one_user: bool) -> float:
    """Over all conversations together."""
    found = of = 0
    for at, told in enumerate(conversations()):
        async with serving(knowing(told)) as models:
            placed = fast(settings, models, memory={"sharing": "private", "shared_sessions": mode})
            kafka = placed.kafka.model_copy(
                update={
                    name: f"{getattr(placed.kafka, name)}{mode}{at}{one_user:d}."
                    for name in ("topic_prefix", "group_prefix")
                }
            )
            mongodb = placed.mongodb.model_copy(
                update={"database": f"{placed.mongodb.database}{mode}{at}{one_user:d}"}
            )
            placed = placed.model_copy(update={"kafka": kafka, "mongodb": mongodb})
            if llm == "offline":
                placed = placed.model_copy(update={"llm": "offline"})
            async with system(placed, models) as running:
                await wrote(running, told, one_user=one_user)
                await until(lambda: decided(running), "every proposal is decided and stored")
                one, all_of_them = await borne(running, told)
            async with connect(endpoints(placed).mongodb) as client:
                await client.drop_database(placed.mongodb.database)
        found, of = found + one, of + all_of_them
    return found / of


@pytest.mark.slow
@pytest.mark.parametrize("llm", ["scripted", "offline"])
async def test_with_authors_sessions_of_two_keep_most_of_what_one_user_would(
    settings: Settings, llm: str, record_property: Callable[[str, object], None]
) -> None:
    found = {
        "one user": await share(settings, "session", llm, one_user=True),
        "session": await share(settings, "session", llm, one_user=False),
        "authors": await share(settings, "authors", llm, one_user=False),
    }
    for name, one in found.items():
        record_property(name, f"{one:.3f}")
    assert found["session"] == 0.0, "no fact has a scope"
    assert found["authors"] > 0.5 * found["one user"] > 0
