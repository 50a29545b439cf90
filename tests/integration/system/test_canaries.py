"""Canaries with `kill -9` between the steps, a seed each: `make canaries SEEDS=20`."""

import asyncio
import os
from asyncio.subprocess import Process
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest

from eden_memory.assembly.tailer import inbox_name
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.kafka_limits import limit
from tests.integration.system.canary_scans import nothing_left_after_compaction, until_erased
from tests.integration.system.commands import eden, kill, start
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
SEEDS = range(int(os.environ.get("EDEN_TEST_CANARY_SEEDS", "0")))
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Killed:
    """`eden run`, killed and started again before a step, or not."""

    def __init__(self, settings: Settings, log: Path, dice: Random) -> None:
        self._settings, self._log, self._dice = settings, log, dice
        self.process: Process | None = None

    async def perhaps(self) -> None:
        """Kill it in about half of the cases, and see to it that it runs."""
        if self.process is not None and self._dice.random() < 0.5:
            await kill(self.process)
            self.process = None
        if self.process is None:
            self.process = await start(self._settings, self._log, "run")


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_canary_is_left_whatever_was_killed(
    settings: Settings, shared_models: Serving, tmp_path: Path, unused_tcp_port: int, seed: int
) -> None:
    dice, log = Random(seed), tmp_path / "eden.log"
    word = "Zan" + "".join(dice.choices(LETTERS, k=12))
    http = {"port": unused_tcp_port}
    settings = fast(settings, shared_models, tailer={"lease_seconds": 2.0}, http=http)
    async with system(settings, shared_models, run=False) as running:
        killed = Killed(settings, log, dice)
        try:
            session = await _live(running, killed, dice, word)
            await until_erased(running, word.encode())
            await nothing_left_after_compaction(running, word.encode())
            await _no_door_answers_it(running, session, word)
            assert word not in await _metrics(settings)
        finally:
            if killed.process is not None:
                await kill(killed.process)
    assert word.encode() not in log.read_bytes()


async def _live(running: System, killed: Killed, dice: Random, word: str) -> str:
    """Say the word in every way, form, merge, consolidate, reform, dead-letter, search, export and forget it."""
    await killed.perhaps()
    session, other = await running.session("xan"), await running.session("xan")
    said = [
        f"fact user: Xan digs at {word} same-dig.",
        *(f"note user: Xan likes {word} {n}." for n in range(4)),
    ]
    names = await running.told(session, "xan", *said)
    await killed.perhaps()
    await running.told(other, "xan", "fact user: Xan digs for gold same-dig.")
    await running.service.add(f"fact user: Xan wrote of {word}.", session=session, user="xan")
    await running.service.add(f"Xan said {word}.", session=session, user="xan", verbatim=True)
    await running.form(session)
    await killed.perhaps()
    await running.shows(session, "xan", word, f"Xan said {word}.", f"Xan wrote of {word}.", "<Consolidated>")
    await _by_hand(running, session, word)
    await killed.perhaps()
    await eden(running.settings, "reform", "again", "--set", "memory.similar=0.8", "--yes", seconds=240.0)
    names += await _dead_letters(running, killed, session, word)
    await running.service.search_facts([f"Xan digs at {word}"], session=session, user="xan")
    await running.service.memory.export_user("xan")
    if dice.random() < 0.3:
        await running.source["messages"].delete_many({"_id": {"$in": names}})
        await killed.perhaps()
    await running.forget(*dice.choice([("session", session), ("user", "xan")]))
    await killed.perhaps()
    return session


async def _by_hand(running: System, session: str, word: str) -> None:
    """A person's edit of a fact that rests on the session, and an imported item of the session."""
    facts = (await running.service.list_facts(user="xan")).items
    wrote = next(fact for fact in facts if fact.content == f"Xan wrote of {word}.")
    await running.service.edit(wrote.fact_id, f"Xan wrote a book of {word}.", user="xan")
    scope = Scope.of_user(encode_id(AGENT), encode_id("xan")).model_dump(mode="json")
    item = {"kind": "fact_command", "scope": scope, "action": "add", "by": "import", "session_id": session}
    inbox = running.source[inbox_name(running.settings)]
    await inbox.insert_one({"_id": "import:mem0:1:xan", "text": f"Xan brought {word} along.", **item})
    await running.shows(session, "xan", f"Xan wrote a book of {word}.", f"Xan brought {word} along.")


async def _dead_letters(running: System, killed: Killed, session: str, word: str) -> list[str]:
    """One of a document that cannot be used, and one of a fact that its topic does not take; return the messages."""
    facts = running.settings.kafka.topic_prefix + "memory.facts"
    await asyncio.to_thread(limit, running.settings, facts, 700)
    names = await running.write(session, "xan", f"fact user: Xan sails to {word}.")
    odd: dict[str, Any] = {"session_id": session, "role": "user", "user_id": "xan", "content": len(word)}
    await running.source["messages"].insert_one(odd)
    await running.form(session)
    await until(lambda: _dead(running, "memory.facts", word), "a fact is a dead letter")
    identity = str(odd["_id"])
    await until(lambda: _dead(running, "chat.messages", identity), "a document is a dead letter")
    await killed.perhaps()
    await asyncio.to_thread(limit, running.settings, facts, 4_259_840)
    return [*names, odd["_id"]]


async def _dead(running: System, topic: str, word: str) -> bool:
    letters = await running.letters(topic)
    return any(word.encode() in (letter.value or letter.key or b"") for letter in letters)


async def _no_door_answers_it(running: System, session: str, word: str) -> None:
    assert word not in await running.context(session, "xan")
    found = await running.service.search_facts([word], session=session, user="xan")
    assert not [fact for fact in found if word in fact.content]
    assert word not in str(await running.service.memory.export_user("xan"))


async def _metrics(settings: Settings) -> str:
    async with httpx2.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{settings.http.port}/metrics")).text
