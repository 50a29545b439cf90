"""The run behind docs/notebooks/growth.ipynb: the boatyard's conversation becomes memory, session by session."""

import os
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from eden_memory.api.service import MemoryService
from eden_memory.demo.conversation import PEOPLE, Conversation, read_conversation
from eden_memory.demo.judgement import (
    Expectations,
    ExpectedItem,
    FormedMemory,
    formed_memory,
    judged,
    read_expectations,
)
from eden_memory.processors import pipeline
from eden_memory.settings import Settings
from eden_memory.usage.usage_store import MongoTotals, UsageQuery, UsageSum, together
from tests.integration.replay.reform_kit import quiet
from tests.integration.system.running_system import System, fast, system, until
from tests.model_server.serving import Serving, serving
from tests.servers import running_servers
from tests.transcripts.boatyard_model import answer
from tests.transcripts.stage import on_servers

AGENT = "juniper"
ROOT = Path(__file__).parents[2]
MODELS = {"fast": "gpt-5-mini", "free": "gpt-5-mini", "paid": "gpt-5-mini", "embeddings": None}
"""The stand-in's answers are counted at the list price of this model."""
FIRST_FOUND = 10


@dataclass(frozen=True, slots=True)
class MemoryMeasure:
    """Memory after a session, and what it took; tokens and US dollars since the beginning."""

    session: str
    messages: int
    said_words: int
    facts: int
    reflections: int
    context_words: int
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float
    expected: int
    """Items that a person listed, of those that were said up to here."""
    held: int
    """Of them, in memory."""
    searched: int
    """Of them, facts: reflections are not searched."""
    found: int
    """Of these, among the ten facts that a search for the item in the person's own words finds first."""


async def remembered() -> list[MemoryMeasure]:
    """Play the conversation on servers of its own, or those of EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP."""
    with (
        tempfile.TemporaryDirectory() as made,
        running_servers(os.environ, Path(made), ROOT / ".eden/jars") as servers,
        on_servers(servers, Path(made)) as settings,
    ):
        async with _running(settings) as running:
            return await _played(running, read_conversation())


@asynccontextmanager
async def _running(settings: Settings) -> AsyncGenerator[System]:
    async with serving(answer) as models:
        account = {"OPENAI_API_KEY": "stand-in", "OPENAI_BASE_URL": models.openai_url}
        with patch.dict(os.environ, account):
            async with system(_settings(settings, models), models) as running:
                yield running


def _settings(settings: Settings, models: Serving) -> Settings:
    mapped: dict[str, dict[str, Any]] = {name: {"collection": name} for name in PEOPLE}
    chosen = fast(settings, models, **mapped)
    names = chosen.models.model_copy(update=MODELS)
    return chosen.model_copy(update={"llm": "openai", "embedder": "local", "models": names})


async def _played(running: System, conversation: Conversation) -> list[MemoryMeasure]:
    for name, people in conversation.people.items():
        if people:
            await running.source[name].insert_many(people)
    sessions = list(dict.fromkeys(message.session for message in conversation.messages))
    measures: list[MemoryMeasure] = []
    for number, session in enumerate(sessions, 1):
        await _write(running, conversation, session)
        await running.end(session)
        await until(partial(_is_formed, running, number), f"{session} to be formed")
        await quiet(running)
        measures.append(await _measured(running, conversation, sessions[:number]))
    return measures


async def _write(running: System, conversation: Conversation, session: str) -> None:
    rows = [message for message in conversation.messages if message.session == session]
    fields = {"role", "content", "created_at"}
    await running.source["messages"].insert_many(
        [
            {"_id": row.id, "session_id": session, "user_id": row.user, **row.model_dump(include=fields)}
            for row in rows
        ]
    )


async def _is_formed(running: System, sessions: int) -> bool:
    windows, outcomes = running.memory("windows"), running.memory("outcomes")
    if await windows.count_documents({"closed.because": "ended"}) < sessions:
        return False
    stages = pipeline.FACT_EXTRACTION, pipeline.REFLECTION_EXTRACTION
    decided = [await outcomes.count_documents({"stage": stage}) for stage in stages]
    return min(decided) >= await windows.count_documents({})


async def _measured(running: System, conversation: Conversation, sessions: Sequence[str]) -> MemoryMeasure:
    said = {row.id: row for row in conversation.messages if row.session in sessions}
    facts, reflections = (
        [item for item in listed if said.keys() >= set(item.messages)]
        for listed in (read_expectations().facts, read_expectations().reflections)
    )
    formed = await formed_memory(running.database, running.settings.names)
    spent = await _spent(running)
    client = running.database.client
    async with MemoryService(AGENT, client=client, settings=running.settings) as memory:
        asked = [(item, _asker(conversation, said[item.messages[0]].session)) for item in facts]
        found = [await _is_found(memory, item, asker) for item, asker in asked]
        context = await memory.get_memory_context(*_asker(conversation, sessions[-1]))
    return MemoryMeasure(
        session=sessions[-1],
        messages=len(said),
        said_words=sum(len(str(row.content).split()) for row in said.values()),
        facts=sum(memory.kind == "fact" for memory in formed),
        reflections=sum(memory.kind == "reflection" for memory in formed),
        context_words=len(context.split()),
        calls=spent.counts["calls"],
        input_tokens=spent.counts["input_tokens"],
        output_tokens=spent.counts["output_tokens"],
        usd=float(spent.cost_usd),
        expected=len(facts) + len(reflections),
        held=len(judged(_only([*facts, *reflections]), formed).found),
        searched=len(facts),
        found=sum(found),
    )


def _only(items: Sequence[ExpectedItem]) -> Expectations:
    return Expectations(version=1, facts=tuple(items), reflections=(), must_not=())


async def _spent(running: System) -> UsageSum:
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    totals = MongoTotals(running.database, running.settings.names)
    return together(await totals.sums(UsageQuery(today, today)))


async def _is_found(memory: MemoryService, item: ExpectedItem, asker: tuple[str, str]) -> bool:
    session, user = asker
    facts = await memory.search_facts(item.says, session=session, user=user, top_k=FIRST_FOUND)
    shown = [FormedMemory("fact", item.scope, fact.content) for fact in facts]
    return bool(judged(_only([item]), shown).found)


def _asker(conversation: Conversation, session: str) -> tuple[str, str]:
    """A session, and its first user."""
    people: Mapping[str, Any] = next(row for row in conversation.people["sessions"] if row["_id"] == session)
    return session, people["users"][0]
