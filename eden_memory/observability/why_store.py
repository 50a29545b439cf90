"""Explain what became of a message, or why a memory is as it is: from what is stored of both."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.access.presence_store import MongoPresence
from eden_memory.access.visible import Asker, VisibleMemory, rests_on_users
from eden_memory.context.written_message_store import (
    WrittenMessage,
    WrittenMessages,
    is_asked_for,
    is_forgotten,
    named_in,
)
from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.directory.participants import ROOM_CHOICES, SessionFacts
from eden_memory.forgotten import ForgottenMarks
from eden_memory.memory.browsing_store import Browsing, Filters
from eden_memory.memory.memory_views import (
    Explained,
    ExplainedOutcome,
    ExplainedStep,
    FactHistory,
    FactView,
    RecentMessage,
    ReflectionView,
)
from eden_memory.observability.lineage_store import StoredLineage
from eden_memory.schemas.documents import Fact, Reflection, Stream
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Event, FactChanged, FactsExtracted, ReflectionFormed, decode
from eden_memory.schemas.events.formation import ExtractedFact, LeftOutBecause, LeftOutFact
from eden_memory.schemas.scopes import NotShared
from eden_memory.search.search_requests import SearchReport, find_unformed
from eden_memory.settings import Settings
from eden_memory.stages.outcome import StageOutcome
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.usage.budget_rules import HELD
from eden_memory.usage.formation_completion import outcomes_of
from eden_memory.windows.session_state import AGAIN_A_DAY
from eden_memory.windows.trigger_write_store import message_of

Row = Mapping[str, Any]

BECAUSE: Mapping[ExplainedOutcome, str] = {
    "remembered": "it is in memory",
    "retired": "the memory formed from it was retired, and only its history is kept",
    "not_recorded": "the tailer or formation-trigger has not seen it yet",
    "waiting": "no window holds it yet: the session goes on, or has too few messages",
    "waits_for_document": "its window is closed and waits for a document of the application",
    "over_budget": "its window is closed and waits for room in a budget",
    "being_formed": "its window is closed, and its memory is being formed",
    "dead": "forming its window failed for good; `eden dead list` shows the dead letter",
    "kept_nowhere": "its session keeps no facts",
    "nothing_proposed": "the model stated no fact from it",
    "rejected": "what the model stated from it was left out",
    "not_visible": "the memory formed from it is in no scope that you may see",
    "switched_off": "its session or author was switched off, or another message is shown in its place",
    "forgotten": "it was forgotten on request",
}
"""Sentences without content."""
LEFT_OUT: Mapping[LeftOutBecause, str] = {
    "no_scope": "the model named a scope that the window does not have",
    "personal": "no scope may hold it: it is not one user's alone, or concerns a person who is not to be named there",
    "expired": "the retention of its scope had ended",
    "beyond": "it was beyond the limit of facts",
    "planted": "a message that it rests on looks planted, and rules keep what that asks for out of memory",
    "empty": "nothing was left of its text",
    "unnamed": "it names somebody whose name is not known",
    "forgotten": "it rests on something that was forgotten meanwhile",
}
"""Why rules left out a statement of the model's."""
NOT_SHARED: Mapping[NotShared, str] = {
    "person": "the model judged that it is about a person",
    "sensitive": "the model judged it sensitive, or did not judge it",
    "identifier": "it holds contact data or a number of a person",
    "name": "it names a person who takes part or is known",
    "role": "it rests on a message of a role that shares nothing",
    "planted": "it rests on a message that looks planted",
    "private_user": "it rests on the words of a user whose memory is private",
    "contradicts": "a user alone says it, and it contradicts what the operator gave or pinned",
    "taken_back": "a person took the same out of shared memory before",
    "untried_model": "`eden models check` has not passed the model: it shares nothing of what users said",
}
"""Why an item is not in the broader scope that the model chose."""

CLOSED_BECAUSE: Mapping[str, str] = {
    "messages": "it held enough messages",
    "tokens": "it held enough text",
    "cold": "the session was idle",
    "stale": "the session was idle for long",
    "ended": "the session ended",
    "asked": "somebody asked for it",
    "edited": "its text had been still for a minute since it was edited",
}


@dataclass(frozen=True, slots=True)
class MessageFate:
    """Everything stored about what became of a message, as far as the caller may see it."""

    message: WrittenMessage
    forgotten: bool = False
    row: Row | None = None
    """Of `memory_messages`."""
    window: Row | None = None
    """Of `memory_windows`; with `waits_for` of its session."""
    outcomes: Sequence[StageOutcome] | None = None
    """None: not everything that follows from the window is decided."""
    events: Sequence[Event] = ()
    """The outcomes that are still stored."""
    calls: Sequence[Row] = ()
    facts: Sequence[Row] = ()
    reflections: Sequence[Row] = ()
    switched_off: bool = False
    """The present state, whatever it was when the message was recorded."""


def explained_message(fate: MessageFate) -> Explained:
    """Explain what became of a message; the text of one that is forgotten or switched off is not repeated."""
    outcome, message = outcome_of(fate), fate.message
    silent = outcome in ("forgotten", "switched_off")
    steps = [
        ExplainedStep("message", message.message_id, message.said_at, f"said in session {message.session_id}")
    ]
    if not silent:
        steps += [
            *_edited(fate),
            *_window(fate.window),
            *map(_call, fate.calls),
            *_answer(fate),
            *_decisions(fate),
            *_kept(fate),
        ]
    return Explained(
        what="message",
        id=message.message_id,
        content=None if silent else message.text,
        outcome=outcome,
        because=_because(outcome, fate),
        steps=tuple(steps),
    )


def outcome_of(fate: MessageFate) -> ExplainedOutcome:
    """Return what became of a message."""
    row = fate.row
    if fate.forgotten or (row is not None and row["forgotten"]):
        return "forgotten"
    if fate.switched_off or (row is not None and row["opted_out"]):
        return "switched_off"
    if row is None or row["deleted"] or (row["formation_id"] is None and row["place"] is None):
        return "not_recorded"
    return "waiting" if row["formation_id"] is None else _formed(fate)


def _formed(fate: MessageFate) -> ExplainedOutcome:
    if any(fact["active"] for fact in fate.facts) or any(
        reflection.get("retired_at") is None for reflection in fate.reflections
    ):
        return "remembered"
    if fate.facts or fate.reflections:
        return "retired"
    return _waiting_for((fate.window or {}).get("waits_for")) if fate.outcomes is None else _decided(fate)


def _waiting_for(what: str | None) -> ExplainedOutcome:
    if what is None:
        return "being_formed"
    return "over_budget" if what.startswith(HELD) else "waits_for_document"


def _decided(fate: MessageFate) -> ExplainedOutcome:
    """Return why nothing visible rests on a message whose window is decided."""
    if any(outcome.dead is not None for outcome in fate.outcomes or ()):
        return "dead"
    if _stated(fate):
        return "not_visible"
    extracted = _extracted(fate)
    if extracted and not any(_keeps_facts(facts) for facts in extracted):
        return "kept_nowhere"
    return "rejected" if _left_out(fate) else "nothing_proposed"


def _keeps_facts(extracted: FactsExtracted) -> bool:
    """Whether facts had any scope to go to: all but the session's hold them."""
    return any(scope.kind != "session" for scope in extracted.window.scopes)


def _left_out(fate: MessageFate) -> list[LeftOutFact]:
    """Return the statements of the model's that rest on the message and are not kept."""
    name = fate.message.message_id
    return [left for facts in _extracted(fate) for left in facts.left_out if name in left.message_ids]


def _reason_of(left: LeftOutFact) -> str:
    check = "" if left.not_shared is None else f" ({NOT_SHARED[left.not_shared]})"
    return LEFT_OUT[left.because] + check


def _why_nowhere(fate: MessageFate) -> str:
    """Return why the window had no scope for facts: its session's users, or switches."""
    several = any(len(facts.window.participants) > 1 for facts in _extracted(fate))
    if several:
        return f"it has several users, and nothing says where facts of all of them belong. {ROOM_CHOICES}"
    return (
        "no user, group or agent memory is formed from it: switches, streams or an unknown author rule it out"
    )


def _edited(fate: MessageFate) -> Iterable[ExplainedStep]:
    """Yield what became of the text that the message had before it was edited, and of the one that it has now."""
    row = fate.row
    edit = None if row is None else row.get("edit")
    if row is None or edit is None or edit["formed_in"] is None:
        return
    gone = f"edited after it was formed: what rested on it up to version {edit['up_to']} is forgotten"
    yield ExplainedStep(
        "message", fate.message.message_id, row["edited_at"], f"{gone}; {_formed_again(row, edit)}"
    )


def _formed_again(row: Row, edit: Row) -> str:
    """Return whether the text that an edit left forms, and when."""
    if row["formation_id"] == edit["formed_in"]:
        return "its text forms nothing: EDEN_MESSAGES_ON_EDIT is forget, memory is off, or the text is empty"
    if row["formation_id"] is not None:
        return f"formed again in window {row['formation_id']}"
    message = message_of({**row, "text": None})
    if message.place is None:
        return "its text is empty"
    if message.formed_again_too_often:
        until = f"{message.forms_again_at:%Y-%m-%d %H:%M} UTC"
        return f"formed again {AGAIN_A_DAY} times within a day: it waits until {until}"
    return "it forms again once its text has been still for a minute"


def _because(outcome: ExplainedOutcome, fate: MessageFate) -> str:
    row, edited = fate.row, [step.told for step in _edited(fate)]
    told = edited and outcome not in ("forgotten", "switched_off")
    if told and row is not None and row["formation_id"] in (None, row["edit"]["formed_in"]):
        return edited[0]
    more = _more(outcome, fate)
    if outcome == "retired":
        return f"{BECAUSE[outcome]} ({more})" if more else BECAUSE[outcome]
    if outcome == "nothing_proposed" and more:
        return more
    return f"{BECAUSE[outcome]}: {more}" if more else BECAUSE[outcome]


def _more(outcome: ExplainedOutcome, fate: MessageFate) -> str:  # noqa: PLR0911 - one for each outcome
    """Return what the stored outcomes say of the reason; empty if nothing."""
    match outcome:
        case "retired":
            found = sorted({fact["retired_because"] for fact in fate.facts if fact.get("retired_because")})
            return ", ".join(found)
        case "waits_for_document" | "over_budget":
            return str((fate.window or {}).get("waits_for"))
        case "kept_nowhere":
            return _why_nowhere(fate)
        case "rejected":
            return "; ".join(dict.fromkeys(map(_reason_of, _left_out(fate))))
        case "not_visible":
            kinds = dict.fromkeys(fact.scope.kind for fact in _stated(fate))
            return f"it was formed for the {' and the '.join(kinds)}" if kinds else ""
        case "nothing_proposed" if not _extracted(fate):
            return "nothing formed from it; what the stages decided is no longer stored, so the reason is not known"
        case "nothing_proposed":
            found = sorted({facts.reason for facts in _extracted(fate) if facts.reason is not None})
            return f"no model was asked: {', '.join(found)}" if found else ""
        case _:
            return ""


def _extracted(fate: MessageFate) -> list[FactsExtracted]:
    return [event for event in fate.events if isinstance(event, FactsExtracted)]


def _stated(fate: MessageFate) -> list[ExtractedFact]:
    """Return the statements that rest on the message."""
    name = fate.message.message_id
    facts = (fact for extracted in _extracted(fate) for fact in extracted.facts)
    return [fact for fact in facts if any(source.message_id == name for source in fact.sources)]


def _window(row: Row | None) -> Iterable[ExplainedStep]:
    if row is not None:
        closed, count = row["closed"], len(row["messages"])
        because = CLOSED_BECAUSE.get(closed["because"], closed["because"])
        told = f"{count} message{'s' * (count != 1)}, closed because {because}"
        yield ExplainedStep("window", row["_id"], closed["at"], told)


def _call(row: Row) -> ExplainedStep:
    prompt = f", {row['prompt']}" if row.get("prompt") else ""
    told = f"{row['stage']}: {row['model']}{prompt}, {row['outcome']}"
    return ExplainedStep("call", row["_id"], row["started_at"], told)


def _answer(fate: MessageFate) -> Iterable[ExplainedStep]:
    for extracted in _extracted(fate):
        if not _keeps_facts(extracted):
            yield ExplainedStep(
                "answer", None, None, "no fact was asked for: no scope of the window holds facts"
            )
            continue
        facts = len(extracted.facts)
        told = (
            f"{facts} fact{'s' * (facts != 1)} of the window, from this message: {len(_stated(fate))}; "
            f"{extracted.dropped} dropped by rules, {extracted.cut} beyond the limit"
        )
        yield ExplainedStep("answer", None, None, told)
        for check in dict.fromkeys(extracted.not_shared):
            told = f"{extracted.not_shared.count(check)} of the window dropped: {NOT_SHARED[check]}"
            yield ExplainedStep("check", None, None, told)
    for left in _left_out(fate):
        yield ExplainedStep(
            "check", None, None, f"a statement from this message was left out: {_reason_of(left)}"
        )
    name, formed = (
        fate.message.message_id,
        [fact for extracted in _extracted(fate) for fact in extracted.facts],
    )
    for item in (*formed, *(event for event in fate.events if isinstance(event, ReflectionFormed))):
        if item.not_shared is not None and any(source.message_id == name for source in item.sources):
            told = f"{item.scope.kind} instead of {item.demoted_from}: {NOT_SHARED[item.not_shared]}"
            yield ExplainedStep("check", None, None, told)


def _decisions(fate: MessageFate) -> Iterable[ExplainedStep]:
    """Yield the decisions about statements that rest on the message."""
    name = fate.message.message_id
    for event in fate.events:
        if isinstance(event, FactChanged) and any(source.message_id == name for source in event.sources):
            told = _decided_on(event.decision, event.text, event.reason)
            yield ExplainedStep("decision", event.key(), None, told)


def _decided_on(decision: str, text: str, reason: str | None, *by: str | None) -> str:
    """Return `ADD by MODEL: text (reason)`."""
    who = " and ".join(name for name in by if name)
    return (f"{decision} by {who}" if who else decision) + f": {text}" + (f" ({reason})" if reason else "")


def _kept(fate: MessageFate) -> Iterable[ExplainedStep]:
    """Yield the memories that rest on the message now."""
    for fact in fate.facts:
        yield ExplainedStep(
            "memory", fact["_id"], fact["formed_at"], f"fact of {fact['scope']}: {fact['content']}"
        )
    for reflection in fate.reflections:
        told = f"reflection of {reflection['scope']}: {reflection['content']}"
        yield ExplainedStep("memory", reflection["_id"], reflection["formed_at"], told)


def explained_fact(found: FactHistory, before: Iterable[ExplainedStep]) -> Explained:
    """Explain why a fact is as it is; `before`: the steps that led to it, as far as the caller may see them."""
    fact = found.fact
    because = BECAUSE["remembered"] if fact.active else f"it was retired: {fact.retired_because}"
    decided = [
        ExplainedStep(
            "decision",
            f"{fact.fact_id}@{version.version}",
            version.valid_from,
            _decided_on(version.decision, version.content, version.reason, version.model, version.by),
        )
        for version in found.versions
    ]
    own = [
        step for step in before if step.what != "call" or not step.told.startswith("reflection-extraction")
    ]
    return Explained(
        what="fact",
        id=fact.fact_id,
        content=fact.content,
        outcome="remembered" if fact.active else "retired",
        because=because,
        steps=(*own, *decided),
    )


def explained_reflection(found: ReflectionView, before: Iterable[ExplainedStep]) -> Explained:
    """Explain why a reflection is as it is."""
    absorbed = (
        f"absorbed by version {found.absorbed_into} of the blob" if found.absorbed else "not absorbed yet"
    )
    commands = [found.command] if found.command is not None else []
    decided = [
        ExplainedStep("decision", None, command.asked_at, f"{command.action} by {command.by}")
        for command in commands
    ]
    return Explained(
        what="reflection",
        id=found.reflection_id,
        content=found.content,
        outcome="remembered" if found.retired_at is None else "retired",
        because=absorbed if found.retired_at is None else "it was retired",
        steps=(*before, *decided),
    )


def steps_to(fates: Iterable[MessageFate]) -> list[ExplainedStep]:
    """Return the messages, windows and calls that led to a memory, each once."""
    steps = [
        step
        for fate in fates
        for step in explained_message(fate).steps
        if step.what in ("message", "window", "call", "check")
    ]
    return list(dict.fromkeys(steps))


Database = AsyncDatabase[dict[str, Any]]

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
        self._stored = StoredLineage(memory, names)

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
            self.fates(asked, view, own),
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
        return await self.fates(asked, view, messages)

    async def fates(
        self, asked: Asker, view: VisibleMemory, messages: Sequence[WrittenMessage]
    ) -> list[MessageFate]:
        """Return what became of messages, and of their memory what is visible in `view`.

        The caller has checked that the messages are the asker's to see.
        """
        if not messages:
            return []
        recorded = await self._written.recorded(message.message_id for message in messages)
        rows: dict[str, Row] = {}
        for index, message in enumerate(messages := list(messages)):
            if (row := recorded.get(message.message_id)) is not None:
                first = row.get("alias_of") or message.message_id
                messages[index], rows[first] = message._replace(message_id=first), row
        names = [message.message_id for message in messages]
        formations = {row["formation_id"] for row in rows.values()} - {None}
        windows, outcomes, calls, facts, reflections = await asyncio.gather(
            self._stored.windows(formations),
            outcomes_of(self._ledger, list(formations)),
            self._stored.calls(formations),
            self._resting(self._facts, names, view),
            self._resting(self._reflections, names, view),
        )
        user = asked.user_id or ""
        leaving = await self._written.being_forgotten()  # a request is erased once its mark is stored
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
                    [call for call in calls.values() if call["formation_id"] == formation],
                    [fact for fact in facts if message.message_id in fact["message_ids"]],
                    [found for found in reflections if message.message_id in found["message_ids"]],
                )
            )
        return fates

    async def _resting(self, collection: Any, message_ids: Sequence[str], view: VisibleMemory) -> list[Row]:
        """Return the visible memories that rest on any of the messages."""
        query = {"message_ids": {"$in": list(message_ids)}, "scope_key": {"$in": list(view.scope_keys)}}
        rows = await collection.find(query, {"embedding": 0, "history": 0}).to_list()
        return [
            row
            for row in rows
            if row["_id"] not in view.private
            and not _is_private(row["scope_key"], row.get("sources", ()), view)
        ]


def _as_message(name: str, text: str, dated: ReflectionView | WrittenMessage) -> RecentMessage:
    """Return a text in the form in which the search by words takes it."""
    return RecentMessage(name, "", "user", text, dated.said_at)


def _is_of(facts: Any, agent_id: str) -> bool:
    return isinstance(facts, SessionFacts) and facts.agent_id == agent_id


def _is_private(scope_key: str, sources: Iterable[Row], view: VisibleMemory) -> bool:
    return scope_key in view.private and rests_on_users(scope_key, sources)


def _shows(event: Event, view: VisibleMemory) -> bool:
    """Tell whether to use an event: an answer, of which only numbers are told, or a memory that is visible."""
    if not isinstance(event, FactChanged | ReflectionFormed):
        return isinstance(event, FactsExtracted)
    key, sources = event.scope.key, [source.model_dump() for source in event.sources]
    if (event.fact_id if isinstance(event, FactChanged) else event.reflection_id) in view.private:
        return False
    return key in view.scope_keys and not _is_private(key, sources, view)


def _events(outcomes: Iterable[StageOutcome]) -> list[Event]:
    """Return the events that stages decided, as far as they are still stored."""
    records = (record for outcome in outcomes for record in outcome.records)
    read = ((Envelope.of_headers(record.headers), record.value) for record in records)
    return [decode(envelope.name, envelope.version, value) for envelope, value in read if value is not None]
