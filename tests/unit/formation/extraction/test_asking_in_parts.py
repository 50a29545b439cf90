"""Two invalid answers about a whole window: one call a scope, or for each half; only what fails alone is given up."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from eden_memory.errors import PermanentError, ProviderError
from eden_memory.formation.fact_statements import failed_extraction
from eden_memory.metrics import EXTRACTION_SPLITS
from eden_memory.models.provider_calls import CallFailed, Completion, PromptTurn, Trial
from eden_memory.processors.fact_extraction import FactExtraction
from eden_memory.processors.reflection_extraction import ReflectionExtraction
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.events import Event, FactsExtracted, FactsProposed, ReflectionFormed, SessionClosed
from eden_memory.stages.handler_run import HandlerRun
from eden_memory.stages.stage import Decision, Emit, Erase
from tests.counted import Grown
from tests.unit.formation.extraction.windows import (
    AGENT,
    AGENT_SCOPE,
    FENCE,
    FORMATION,
    SESSION_SCOPE,
    USER_SCOPE,
    Kept,
    Talk,
    delivered,
    said,
    talk,
)
from tests.unit.model_calls.model_fakes import FakeChat, MemoryAnswers, model_over

BOTH = (AGENT_SCOPE, USER_SCOPE, SESSION_SCOPE)


class Provider(FakeChat):
    """Answers about a single scope, or about four messages at most; `broken`: labels that it never answers for."""

    def __init__(self, *broken: str, most: int = 4) -> None:
        super().__init__(self._says)
        self.broken, self.most = broken, most
        self.systems: list[str] = []
        self.busy = ""
        """The label for which it has no time."""

    async def complete(
        self,
        model: str,
        system: str,
        turns: Sequence[PromptTurn],
        answer: type[ModelAnswer],
        most: int | None = None,
        trials: list[Trial] | None = None,
    ) -> Completion:
        self.systems.append(system)
        return await super().complete(model, system, turns, answer, most, trials)

    def _says(self, turns: Sequence[PromptTurn]) -> str | BaseException:
        system = self.systems[-1]
        labels = [label for label in ("agent", "user", "session") if f"\n- {label}" in system]
        if labels == [self.busy]:
            return CallFailed("rate_limited", "busy")
        own = turns[0].text.split("# conversation\n")[-1]
        numbers = [line.split("]")[0][1:] for line in own.splitlines() if line.startswith("[")]
        if len(labels) != 1 or labels[0] in self.broken or len(numbers) > self.most:
            return "I would rather not."
        kind = "reflections" if "reflections" in system else "facts"
        item = {"scope": labels[0], "about": "organisation", "sensitive": False}
        dated = {} if kind == "reflections" else {"occurred_at": None}
        word = own.split()[-2]
        return json.dumps(
            {
                kind: [
                    {
                        **item,
                        **dated,
                        "text": f"The {word} of {number} {labels[0]}.",
                        "messages": [int(number)],
                    }
                    for number in numbers[:1]
                ]
            }
        )


async def run(
    window: Talk,
    provider: Provider,
    answers: MemoryAnswers,
    *,
    of: str = "facts",
    sent_again: int = 0,
    own: str | None = None,
) -> tuple[list[Event], dict[str, str]]:
    """One attempt of a fresh process: what it publishes, and what it gives up."""
    kept, model = Kept({FORMATION: window.stored}), model_over(provider, answers)
    kept.streams["user"] = Stream(_id="user", agent_id=AGENT, scope="user", extraction_prompt=own)
    requested = window.requested
    if of == "facts":
        stage = FactExtraction(kept, kept, kept, model, kept, FENCE, kept)
        event: Event = requested
    else:
        stage = ReflectionExtraction(kept, kept, kept, model, model, kept, FENCE, kept)
        event = FactsExtracted(cause="e0", window=requested.window(), outcome="empty")
    async with HandlerRun():
        result = await stage([delivered(event, sent_again=sent_again)])
    decision = result if isinstance(result, Decision) else Decision(result)
    events = [one.event if isinstance(one, Emit) else one for one in decision.events]
    return [one for one in events if not isinstance(one, Erase)], dict(decision.refused)


def texts(events: Sequence[Event]) -> dict[str, list[str]]:
    """Proposed facts, or reflections, by the kind of their scope."""
    found: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, FactsProposed):
            found.setdefault(event.scope.kind, []).extend(one.text for one in event.facts)
        elif isinstance(event, ReflectionFormed):
            found.setdefault(event.scope.kind, []).append(event.text)
    return found


def _numbers(events: Sequence[Event]) -> set[int]:
    return {fact.number for one in events if isinstance(one, FactsProposed) for fact in one.facts}


async def test_each_scope_is_asked_for_after_two_invalid_answers_and_nothing_is_paid_twice() -> None:
    window, answers, splits = talk("The gate is new.", scopes=BOTH), MemoryAnswers(), Grown(EXTRACTION_SPLITS)
    provider = Provider()
    events, refused = await run(window, provider, answers)
    assert len(provider.asked) == 2 + 2
    assert (sum(isinstance(one, FactsExtracted) for one in events), refused) == (1, {})
    assert set(texts(events)) == {"agent", "user"}
    assert splits() == {("fact-extraction",): 1}
    calls = {
        fact.call.call_id
        for one in events
        if isinstance(one, FactsProposed)
        for fact in one.facts
        if fact.call
    }
    assert len(calls) == 2, "each item names the call that it came from"
    again, _ = await run(window, provider, answers)
    assert (len(provider.asked), again) == (4, events), "a process that was killed pays for nothing again"


async def test_only_the_part_that_fails_alone_is_given_up_and_sent_again() -> None:
    window, answers, provider = talk("The gate is new.", scopes=BOTH), MemoryAnswers(), Provider("user")
    events, refused = await run(window, provider, answers)
    assert set(texts(events)) == {"agent"}
    (reason,) = refused.values()
    assert "user: " in reason
    assert "agent: " not in reason
    assert "rather not" not in reason
    paid = len(provider.asked)
    provider.broken = ()
    retried, refused = await run(window, provider, answers, sent_again=1)
    assert (len(provider.asked), refused) == (paid + 1, {}), "only what failed is asked for"
    assert set(texts(retried)) == {"user"}
    assert not _numbers(events) & _numbers(retried), "no fact of the retry takes the id of one that was kept"


@pytest.mark.parametrize("erased", [False, True])
async def test_what_failed_by_its_own_prompt_is_sent_again_without_it_and_gives_no_id_twice(
    erased: bool,
) -> None:
    window, answers, provider = talk("The gate is new.", scopes=BOTH), MemoryAnswers(), Provider()
    events, refused = await run(window, provider, answers, own="{words} words that nobody can obey.")
    assert (set(texts(events)), len(refused)) == ({"agent"}, 1)
    if erased:
        answers.kept.clear()  # as when a message is forgotten
    retried, refused = await run(window, provider, answers, sent_again=1)
    assert refused == {}
    assert set(texts(retried)) == ({"agent", "user"} if erased else {"user"})
    assert not _numbers(events) & _numbers(retried)


async def test_a_single_scope_is_asked_for_by_halves_with_the_windows_own_numbers() -> None:
    window = talk(
        "A gate.", "A quay.", "A crane.", "A buoy.", "A mast.", "A hull.", scopes=(USER_SCOPE, SESSION_SCOPE)
    )
    events, refused = await run(window, Provider(), MemoryAnswers())
    (proposed,) = (one for one in events if isinstance(one, FactsProposed))
    assert refused == {}
    assert [fact.sources[0].message_id for fact in proposed.facts] == ["s.m1", "s.m4"]


async def test_reflections_are_asked_for_by_scope_too_and_the_session_is_closed() -> None:
    window, provider = talk("The gate is new.", scopes=BOTH, because="ended"), Provider("agent")
    events, refused = await run(window, provider, MemoryAnswers(), of="reflections")
    assert set(texts(events)) == {"user", "session"}
    assert isinstance(events[-1], SessionClosed)
    assert len(refused) == 1


async def test_a_model_that_answers_nothing_is_doubted_before_a_window_is_given_up() -> None:
    window = talk("The gate is new.", scopes=BOTH)
    with pytest.raises(ProviderError, match="none of its answers can be read"):
        await run(window, Provider("agent", "user"), MemoryAnswers())


async def test_a_provider_that_is_busy_gives_up_no_part() -> None:
    window, answers, provider = talk("The gate is new.", scopes=BOTH), MemoryAnswers(), Provider()
    provider.busy = "user"
    with pytest.raises(ProviderError, match="busy"):
        await run(window, provider, answers)
    provider.busy = ""
    events, refused = await run(window, provider, answers)
    assert (set(texts(events)), refused) == ({"agent", "user"}, {})


async def test_one_message_in_one_scope_has_no_parts() -> None:
    window = replace(talk(scopes=(USER_SCOPE, SESSION_SCOPE)), messages=(said(1, "A gate."),))
    provider = Provider(most=0)
    with pytest.raises((PermanentError, ProviderError)):
        await run(window, provider, MemoryAnswers())
    assert len(provider.asked) == 3, "as ever"
    assert failed_extraction(delivered(window.requested), "x")
