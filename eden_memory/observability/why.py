"""Explain what became of a message, or why a memory is as it is: from what is stored of both. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eden_memory.memory.results import Explained, ExplainedOutcome, ExplainedStep, FactHistory, ReflectionView
from eden_memory.recent.recent_rules import WrittenMessage
from eden_memory.schemas.events import Event, FactChanged, FactsExtracted, ReflectionFormed
from eden_memory.schemas.scopes import NotShared
from eden_memory.stages.outcome import StageOutcome
from eden_memory.usage.budget_rules import HELD

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
    "nothing_proposed": "the model found nothing in it to remember",
    "rejected": "rules left out what the model proposed: no scope may hold it, or it was beyond a limit",
    "not_visible": "the memory formed from it is in no scope that you may see",
    "switched_off": "its session or author was switched off",
    "forgotten": "it was forgotten on request",
}
"""Sentences without any content."""
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
}


@dataclass(frozen=True, slots=True)
class MessageFate:
    """Everything that is stored about what became of a message; only what the asker may see."""

    message: WrittenMessage
    forgotten: bool = False
    row: Row | None = None
    """Of `memory_messages`."""
    window: Row | None = None
    """Of `memory_windows`; with `waits_for` of its session."""
    outcomes: Sequence[StageOutcome] | None = None
    """None: not all that follows from the window is decided."""
    events: Sequence[Event] = ()
    """Of the outcomes, as far as they are kept."""
    calls: Sequence[Row] = ()
    facts: Sequence[Row] = ()
    reflections: Sequence[Row] = ()
    switched_off: bool = False
    """Now, whatever was known when the message was recorded."""


def explained_message(fate: MessageFate) -> Explained:
    """Explain what became of a message; the text of one that is forgotten or switched off is not repeated."""
    outcome, message = outcome_of(fate), fate.message
    silent = outcome in ("forgotten", "switched_off")
    steps = [
        ExplainedStep("message", message.message_id, message.said_at, f"said in session {message.session_id}")
    ]
    if not silent:
        steps += [
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
    return "rejected" if any(facts.dropped or facts.cut for facts in _extracted(fate)) else "nothing_proposed"


def _because(outcome: ExplainedOutcome, fate: MessageFate) -> str:
    reasons = {fact["retired_because"] for fact in fate.facts if fact.get("retired_because")}
    waits_for = (fate.window or {}).get("waits_for")
    if outcome == "retired" and reasons:
        return f"{BECAUSE[outcome]} ({', '.join(sorted(reasons))})"
    if outcome in ("waits_for_document", "over_budget"):
        return f"{BECAUSE[outcome]}: {waits_for}"
    return BECAUSE[outcome]


def _extracted(fate: MessageFate) -> list[FactsExtracted]:
    return [event for event in fate.events if isinstance(event, FactsExtracted)]


def _stated(fate: MessageFate) -> int:
    """Count the statements that rest on the message."""
    name = fate.message.message_id
    facts = (fact for extracted in _extracted(fate) for fact in extracted.facts)
    return sum(any(source.message_id == name for source in fact.sources) for fact in facts)


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
        facts = len(extracted.facts)
        told = (
            f"{facts} fact{'s' * (facts != 1)} of the window, from this message: {_stated(fate)}; "
            f"{extracted.dropped} dropped by rules, {extracted.cut} beyond the limit"
        )
        yield ExplainedStep("answer", None, None, told)
        for check in dict.fromkeys(extracted.not_shared):
            told = f"{extracted.not_shared.count(check)} of the window dropped: {NOT_SHARED[check]}"
            yield ExplainedStep("check", None, None, told)
    name, formed = (
        fate.message.message_id,
        [fact for extracted in _extracted(fate) for fact in extracted.facts],
    )
    for item in (*formed, *(event for event in fate.events if isinstance(event, ReflectionFormed))):
        if item.not_shared is not None and any(source.message_id == name for source in item.sources):
            told = f"{item.scope.kind} instead of {item.demoted_from}: {NOT_SHARED[item.not_shared]}"
            yield ExplainedStep("check", None, None, told)


def _decisions(fate: MessageFate) -> Iterable[ExplainedStep]:
    """Yield what was decided about the statements that rest on the message."""
    name = fate.message.message_id
    for event in fate.events:
        if isinstance(event, FactChanged) and any(source.message_id == name for source in event.sources):
            yield _decision(event.key(), event.decision, event.text, event.reason)


def _decision(name: str, decision: str, text: str, reason: str | None) -> ExplainedStep:
    return ExplainedStep("decision", name, None, _decided_on(decision, text, reason))


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
    """Explain why a fact is as it is; `before`: the steps that led to it, as far as the asker may see them."""
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
