"""Tries whether a model keeps what belongs to a person: only then does its judgement share what users said."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from itertools import product

from eden_memory.access.visible import WIDE
from eden_memory.directory.stream_store import label
from eden_memory.errors import PermanentError
from eden_memory.formation import prompts
from eden_memory.formation.prompt_material import (
    FactMaterial,
    MemoryMaterial,
    PropagationMaterial,
    ReflectionMaterial,
    ScopeBrief,
    TranscriptLine,
)
from eden_memory.formation.propagation_rules import BROADER
from eden_memory.models.catalogue import OFFLINE, chosen, provider_name, uses
from eden_memory.models.judging import most_tokens, parsed
from eden_memory.models.provider_calls import CallFailed, ChatProvider, PromptTurn
from eden_memory.models.providers import Providers
from eden_memory.models.question import Prompt, Role
from eden_memory.schemas.answers import (
    ExtractedFacts,
    ExtractedMemory,
    JudgedItem,
    JudgedReflections,
    ShownAlike,
    StatedReflections,
)
from eden_memory.schemas.documents import Stream
from eden_memory.settings import Settings

PROPAGATION: Role = "propagation"
"""It is asked of the models of consolidation."""
TOGETHER = 10
"""Statements of one trial call, said by one user."""
WHEN = datetime(2026, 3, 4, 9, tzinfo=UTC)
FENCE = "<<6f1d2a90b7c34e58a1d0>>"
WORDS = 40
PROGRESS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class TriedStatement:
    """A statement of the trial, and whether it belongs to one person."""

    text: str
    personal: bool


@dataclass(frozen=True, slots=True)
class SharingTrial:
    """What a model would have shared with everybody who talks to the agent."""

    provider: str
    """As it stands in records: `openai`, or an endpoint's host and port."""
    model: str
    prompt: str
    """With its version."""
    personal: int
    """Statements that belong to a person."""
    personal_shared: int
    others: int
    others_shared: int
    shared: tuple[str, ...] = ()
    """The personal statements that it shared."""

    def passed(self, most: int) -> bool:
        """Return whether no more than so many personal statements were shared."""
        return self.personal_shared <= most


def statements() -> tuple[TriedStatement, ...]:
    """Return the statements that ship with the check, personal and others mixed."""
    text = (files("eden_memory.formation") / "sharing_trial.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    return tuple(TriedStatement(row["text"], row["personal"]) for row in rows)


@dataclass(frozen=True, slots=True)
class JudgingCall:
    """The call whose judgement counts, and the scope and own prompt of a stream that it is made with."""

    role: Role
    label: str = "agent"
    own: str | None = None
    alike: bool = False
    """Whether others must show the same before it is propagated."""
    together: bool = False
    """Whether it asks for facts and reflections at once."""


def judging_models(
    settings: Settings, streams: Iterable[Stream] = ()
) -> dict[tuple[str, str, str], JudgingCall]:
    """Return the (provider, model, prompt) whose judgement counts, also of streams; not those that are rules."""
    short, streams = settings.models.prompts == "short", list(streams)
    named: dict[Role, str] = {"facts": prompts.FACT_EXTRACTION, "reflections": prompts.REFLECTION_EXTRACTION}
    used: dict[Role, str] = {role: prompts.SHORT[name] if short else name for role, name in named.items()}
    tried: dict[Role, dict[str, JudgingCall]] = {
        role: {prompt: JudgingCall(role)} for role, prompt in used.items()
    }
    if settings.formation_limits.one_call:
        tried["facts"][prompts.MEMORY_EXTRACTION] = JudgingCall("facts", together=True)
    if settings.memory.propagation or any(stream.propagation for stream in streams):
        tried[PROPAGATION] = {prompts.PROPAGATION: JudgingCall(PROPAGATION)}
        if any((stream.propagation_from or 1) > 1 for stream in streams):
            tried[PROPAGATION][prompts.PROPAGATION_SHOWN] = JudgingCall(PROPAGATION, alike=True)
    asked = [
        (choice, prompt, judging)
        for choice, role, _ in uses(settings)
        for of in ((role, PROPAGATION) if role == "consolidation" else (role,))
        for prompt, judging in tried.get(of, {}).items()
    ]
    for stream, (prompt, judging) in product(streams, tried.get(PROPAGATION, {}).items()):
        if stream.active and stream.scope in BROADER and (model := stream.consolidation_model):
            asked += [(chosen(PROPAGATION, tier, settings, model), prompt, judging) for tier in (0, 1)]
    for stream, role in product(streams, named):
        own, model = stream.extraction_prompt, stream.extraction_model
        model = (stream.fact_model or model) if role == "facts" else model
        # A narrow scope's model answers for the broad ones of its call, too; one with an own prompt is asked alone.
        counts = stream.scope in WIDE if own else model and (role, stream.scope) != ("facts", "session")
        if stream.active and counts:
            by_prompt = tried[role]
            if own:
                by_prompt = {prompts.own_name(named[role], own): JudgingCall(role, label(stream), own)}
            asked += [
                (chosen(role, tier, settings, model), prompt, judging)
                for tier in (0, 1)
                for prompt, judging in by_prompt.items()
            ]
    found: dict[tuple[str, str, str], JudgingCall] = {}
    for choice, prompt, judging in asked:
        if choice.provider != OFFLINE and choice.model:
            found.setdefault((choice.provider, choice.model, prompt), judging)
    return found


async def tried_sharing(
    settings: Settings, on_progress: Callable[[str], None] = lambda _: None, streams: Iterable[Stream] = ()
) -> list[SharingTrial]:
    """Try each configured model that forms facts or reflections, with the prompt in use; also those of streams."""
    providers, short = Providers(settings), settings.models.prompts == "short"
    try:
        return [
            await _tried(
                providers.chat(provider),
                provider,
                model,
                prompt,
                judging,
                short=short,
                on_progress=on_progress,
            )
            for (provider, model, prompt), judging in judging_models(settings, streams).items()
        ]
    finally:
        await providers.close()


async def _tried(
    chat: ChatProvider,
    provider: str,
    model: str,
    prompt: str,
    judging: JudgingCall,
    *,
    short: bool,
    on_progress: Callable[[str], None],
) -> SharingTrial:
    said, began, reported = statements(), time.monotonic(), float("-inf")
    shared: set[int] = set()
    for begin in range(0, len(said), TOGETHER):
        if (now := time.monotonic()) - reported >= PROGRESS_SECONDS:
            reported = now
            on_progress(
                f"{chat.name} {model}: judges by its {judging.role} which of {len(said)} statements to share, "
                f"{begin} of them in {now - began:.0f} s"
            )
        batch = said[begin : begin + TOGETHER]
        shared.update(begin + number for number in await _shared(chat, model, judging, batch, short=short))
    personal = [at for at, statement in enumerate(said) if statement.personal]
    kept_back = [at for at in personal if at in shared]
    return SharingTrial(
        provider_name(provider),
        model,
        prompt,
        personal=len(personal),
        personal_shared=len(kept_back),
        others=len(said) - len(personal),
        others_shared=len(shared) - len(kept_back),
        shared=tuple(said[at].text for at in kept_back),
    )


async def _shared(
    chat: ChatProvider, model: str, judging: JudgingCall, batch: Sequence[TriedStatement], *, short: bool
) -> set[int]:
    """Return the places of what was shared; where no valid answer came, all that is personal counts as shared."""
    prompt, answer = _asked(judging, batch, short=short)
    turns = (PromptTurn("user", prompt.user),)
    unanswered = {at for at, statement in enumerate(batch) if statement.personal}
    try:
        completion = await chat.complete(
            model, prompt.system, turns, answer, most_tokens(prompt.answer_tokens)
        )
    except (CallFailed, PermanentError):
        return unanswered
    value = parsed(completion.text, answer)
    if isinstance(value, str):
        return unanswered
    if isinstance(value, JudgedReflections | ShownAlike):
        judged: list[tuple[JudgedItem, Sequence[int]]] = [
            (item, [item.reflection]) for item in value.propagated
        ]
    else:
        stated = [
            *(value.reflections if not isinstance(value, ExtractedFacts) else ()),
            *(value.facts if not isinstance(value, StatedReflections) else ()),
        ]
        every = range(1, len(batch) + 1)
        judged = [(item, item.messages or every) for item in stated if item.scope == judging.label]
    open_items = (
        (item, numbers) for item, numbers in judged if item.about != "person" and not item.sensitive
    )
    return {number - 1 for _, numbers in open_items for number in numbers if 1 <= number <= len(batch)}


def _asked(
    judging: JudgingCall, batch: Sequence[TriedStatement], *, short: bool
) -> tuple[
    Prompt, type[ExtractedFacts | StatedReflections | ExtractedMemory | JudgedReflections | ShownAlike]
]:
    if judging.role == PROPAGATION:
        texts = tuple(statement.text for statement in batch)
        material = PropagationMaterial("agent", texts, WORDS, others=texts if judging.alike else None)
        return prompts.propagation(material, FENCE), ShownAlike if judging.alike else JudgedReflections
    lines = tuple(TranscriptLine("User", "user", WHEN, statement.text) for statement in batch)
    most, own = 2 * len(batch), judging.own
    labels = ("agent", "user", "session") if own is None else (judging.label,)
    scopes = tuple(ScopeBrief(name, most=most) for name in labels)
    extracting = FactMaterial(lines, scopes[:2], most, WORDS)
    reflecting = ReflectionMaterial(lines, scopes, (), WORDS)
    if judging.together:
        return prompts.memory_extraction(MemoryMaterial(extracting, reflecting), FENCE), ExtractedMemory
    if judging.role == "facts":
        return prompts.fact_extraction(extracting, FENCE, short=short, own=own), ExtractedFacts
    return prompts.reflection_extraction(reflecting, FENCE, short=short, own=own), StatedReflections


def lacking(
    settings: Settings, tried: Mapping[tuple[str, str, str], int], streams: Iterable[Stream] = ()
) -> Iterator[str]:
    """Yield why a configured model may not share what users said; `tried`: personal statements shared, by model."""
    most = settings.memory.sharing_mistakes
    for provider, model, prompt in judging_models(settings, streams):
        name, found = provider_name(provider), tried.get((provider_name(provider), model, prompt))
        if found is None:
            yield f"{name} {model} was never tried with {prompt}"
        elif found > most:
            yield f"{name} {model} shared {found} personal statements with {prompt}, at most {most} may be"
