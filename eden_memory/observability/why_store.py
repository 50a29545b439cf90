"""Find what a text is about among memories and messages that the asker may see, and read what became of it."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.access.presence_store import MongoPresence
from eden_memory.access.sharing import rests_on_users
from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.directory.participants import SessionFacts
from eden_memory.forgotten import ForgottenMarks
from eden_memory.memory.browsing_store import Browsing, Filters
from eden_memory.memory.results import Explained, FactView, RecentMessage, ReflectionView
from eden_memory.observability.why import (
    MessageFate,
    explained_fact,
    explained_message,
    explained_reflection,
    steps_to,
)
from eden_memory.recent.recent_rules import WrittenMessage, is_asked_for, is_forgotten, named_in
from eden_memory.recent.written_message_store import WrittenMessages
from eden_memory.schemas.documents import (
    CountedCall,
    Fact,
    Reflection,
    SessionState,
    Stream,
    WindowTexts,
)
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Event, FactChanged, FactsExtracted, decode
from eden_memory.search.search_requests import SearchReport, find_unformed
from eden_memory.settings import Settings
from eden_memory.stages.outcome import StageOutcome
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.usage.formation_completion import outcomes_of

Database = AsyncDatabase[dict[str, Any]]
Row = Mapping[str, Any]
MOST_EXPLAINED = 3
"""Facts, reflections and messages of each kind."""
MOST_SOURCES = 3
"""Messages of a memory whose windows and calls are shown."""
MOST_REFLECTIONS = 200


class Explanations:
    """Of one namespace; `source` is the application's database, `memory` our own."""

    def __init__(
        self, source: Database, memory: Database, settings: Settings, forgotten: ForgottenMarks
    ) -> None:
        names = settings.names
        self._written, self._forgotten = WrittenMessages(source, memory, settings), forgotten
        self._directory = MongoDirectory(source, memory[names[Stream.COLLECTION]], settings)
        self._presence = MongoPresence(source, memory, settings)
        self._browsing, self._ledger = Browsing(memory, names), MongoLedger(memory, names)
        self._facts, self._reflections = memory[names[Fact.COLLECTION]], memory[names[Reflection.COLLECTION]]
        self._windows, self._states = (
            memory[names[WindowTexts.COLLECTION]],
            memory[names[SessionState.COLLECTION]],
        )
        self._calls = memory[names[CountedCall.COLLECTION]]

    async def of(
        self, asked: Asker, view: VisibleMemory, text: str, report: SearchReport
    ) -> tuple[Explained, ...]:
        """Explain the facts of a search, and the reflections and own messages that have the text's words."""
        facts, reflections, messages = await asyncio.gather(
            self._of_facts(asked, view, report),
            self._of_reflections(asked, view, text),
            self._of_messages(asked, view, text),
        )
        return (*facts, *reflections, *messages)

    async def _of_facts(self, asked: Asker, view: VisibleMemory, report: SearchReport) -> list[Explained]:
        found = [
            await self._browsing.history(asked, view, fact.fact_id) for fact in report.facts[:MOST_EXPLAINED]
        ]
        return [
            explained_fact(history, steps_to(await self._fates_behind(asked, view, history.fact)))
            for history in found
        ]

    async def _of_reflections(self, asked: Asker, view: VisibleMemory, text: str) -> list[Explained]:
        page = await self._browsing.reflections(asked, view, Filters(limit=MOST_REFLECTIONS))
        by_id = {reflection.reflection_id: reflection for reflection in page.items}
        texts = [_as_message(name, found.content, found) for name, found in by_id.items()]
        best = await find_unformed([text], texts, MOST_EXPLAINED)
        chosen = [by_id[message.message_id] for message in best]
        return [
            explained_reflection(found, steps_to(await self._fates_behind(asked, view, found)))
            for found in chosen
        ]

    async def _of_messages(self, asked: Asker, view: VisibleMemory, text: str) -> list[Explained]:
        """Explain messages of the asker's own, with the same agent; only where no one else is shown the answer.

        What is switched off, and who else is present, is read after the texts: a change between is heeded.
        """
        user = asked.user_id
        if user is None or not is_asked_for(asked, view):
            return []
        written = {message.message_id: message for message in await self._written.written_by(user)}
        told = [_as_message(name, message.text, message) for name, message in written.items()]
        found = await find_unformed([text], told, MOST_EXPLAINED)
        texts = await self._written.redacted.of([message.content for message in found])
        best = [
            written[message.message_id]._replace(text=shown)
            for message, shown in zip(found, texts, strict=True)
        ]
        facts = await self._directory.look_up({message.session_id for message in best})
        own = [message for message in best if _is_of(facts[message.session_id], asked.agent_id)]
        fates, off = await asyncio.gather(
            self._fates(asked, view, own),
            self._directory.off({message.session_id: (user,) for message in own}, ()),
        )
        if not await self._presence.is_alone(asked):
            return []
        return [
            explained_message(replace(fate, switched_off=off.of(fate.message.session_id, user)))
            for fate in fates
        ]

    async def _fates_behind(
        self, asked: Asker, view: VisibleMemory, found: FactView | ReflectionView
    ) -> list[MessageFate]:
        """Return what is stored of the messages that a memory rests on, as far as they are the asker's to see."""
        messages = [
            WrittenMessage(source.message_id, source.session_id, "", "", source.said_at, source.time)
            for source in found.sources[:MOST_SOURCES]
        ]
        return await self._fates(asked, view, messages)

    async def _fates(
        self, asked: Asker, view: VisibleMemory, messages: Sequence[WrittenMessage]
    ) -> list[MessageFate]:
        if not messages:
            return []
        names = [message.message_id for message in messages]
        rows = await self._written.recorded(names)
        formations = {row["formation_id"] for row in rows.values()} - {None}
        windows, outcomes, calls, facts, reflections = await asyncio.gather(
            self._windows_of(formations),
            outcomes_of(self._ledger, list(formations)),
            self._calls.find({"formation_id": {"$in": list(formations)}}, sort=[("started_at", 1)]).to_list(),
            self._resting(self._facts, names, view),
            self._resting(self._reflections, names, view),
        )
        user = asked.user_id or ""
        leaving = await self._written.being_forgotten()  # a request goes once its mark stands
        marks = await self._forgotten.among(named_in(user, messages)), leaving
        fates: list[MessageFate] = []
        for message in messages:
            row = rows.get(message.message_id)
            formation = None if row is None else row["formation_id"]
            decided = outcomes.get(formation) if formation is not None else None
            fates.append(
                MessageFate(
                    message,
                    is_forgotten(user, message, row, marks),
                    row,
                    windows.get(formation or ""),
                    decided,
                    [event for event in _events(decided or ()) if _shows(event, view)],
                    [call for call in calls if call["formation_id"] == formation],
                    [fact for fact in facts if message.message_id in fact["message_ids"]],
                    [found for found in reflections if message.message_id in found["message_ids"]],
                )
            )
        return fates

    async def _windows_of(self, formation_ids: Iterable[str]) -> dict[str, Row]:
        """Return closed windows without their texts, each with what its session waits for."""
        without = {"messages.text": 0, "before": 0, "names": 0}
        found = self._windows.find({"_id": {"$in": list(formation_ids)}}, without)
        rows = await found.to_list()
        sessions = [row["session_id"] for row in rows if row["requested"] is None]
        states = self._states.find({"_id": {"$in": sessions}}, {"waits_for": 1})
        waiting = {row["_id"]: row["waits_for"] async for row in states}
        return {row["_id"]: row | {"waits_for": waiting.get(row["session_id"])} for row in rows}

    async def _resting(self, collection: Any, message_ids: Sequence[str], view: VisibleMemory) -> list[Row]:
        """Return the visible memories that rest on any of the messages."""
        query = {"message_ids": {"$in": list(message_ids)}, "scope_key": {"$in": list(view.scope_keys)}}
        rows = await collection.find(query, {"embedding": 0, "history": 0}).to_list()
        return [row for row in rows if not _is_private(row["scope_key"], row.get("sources", ()), view)]


def _as_message(name: str, text: str, dated: ReflectionView | WrittenMessage) -> RecentMessage:
    """Return a text as the search by words takes it."""
    return RecentMessage(name, "", "user", text, dated.said_at)


def _is_of(facts: Any, agent_id: str) -> bool:
    return isinstance(facts, SessionFacts) and facts.agent_id == agent_id


def _is_private(scope_key: str, sources: Iterable[Row], view: VisibleMemory) -> bool:
    return scope_key in view.private and rests_on_users(scope_key, sources)


def _shows(event: Event, view: VisibleMemory) -> bool:
    """Tell whether to use an event: an answer, of which only numbers are told, or a fact that is visible."""
    if not isinstance(event, FactChanged):
        return isinstance(event, FactsExtracted)
    key, sources = event.scope.key, [source.model_dump() for source in event.sources]
    return key in view.scope_keys and not _is_private(key, sources, view)


def _events(outcomes: Iterable[StageOutcome]) -> list[Event]:
    """Return the events that stages decided, as far as they are kept."""
    records = (record for outcome in outcomes for record in outcome.records)
    read = ((Envelope.of_headers(record.headers), record.value) for record in records)
    return [decode(envelope.name, envelope.version, value) for envelope, value in read if value is not None]
