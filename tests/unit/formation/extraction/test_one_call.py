"""EDEN_FORMATION_CALLS=one: a window's facts and reflections from one answer, and two calls where that fails."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from eden_memory.forgotten import Mark
from eden_memory.formation import prompts
from eden_memory.limits import STANDARD
from eden_memory.models.judging import readable
from eden_memory.models.provider_calls import PromptTurn
from eden_memory.processors.fact_extraction import FactExtraction
from eden_memory.processors.reflection_extraction import ReflectionExtraction
from eden_memory.schemas.answers import ExtractedFacts, ExtractedMemory, ModelAnswer, StatedReflections
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.events import Event, FactsExtracted, FactsProposed, ReflectionFormed
from eden_memory.stages.handler_run import HandlerRun
from eden_memory.stages.stage import Decision, Emit, Erase
from tests.unit.context.parts import stored_snapshot
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
    talk,
)
from tests.unit.model_calls.model_fakes import FakeChat, MemoryAnswers, model_over

BOTH = (USER_SCOPE, SESSION_SCOPE)
ONE = replace(STANDARD, one_call=True)
FACT = {
    "text": "Mara works in Lisbon.",
    "scope": "user",
    "messages": [1],
    "occurred_at": None,
    "about": "person",
    "sensitive": False,
}
ADVICE = {"text": "Answer briefly.", "scope": "user", "messages": [2], "about": "person", "sensitive": False}
STATUS = {**ADVICE, "text": "The move is planned.", "scope": "session"}


def asked_both(turns: Sequence[PromptTurn]) -> str:
    return json.dumps({"facts": [FACT, {**FACT, "scope": "session"}], "reflections": [ADVICE, STATUS]})


class Provider(FakeChat):
    """Answers for both kinds unless it `refuses`, and for each kind alone."""

    def __init__(self, both: Callable[[Sequence[PromptTurn]], str] = asked_both) -> None:
        super().__init__(())
        self.both, self.answers = both, list[type[ModelAnswer]]()
        self.users = list[str]()

    async def complete(self, *of: Any, **named: Any) -> Any:
        _, _, turns, answer, *_ = of
        self.answers.append(answer)
        self.users.append(turns[0].text)
        alone = {
            ExtractedFacts: json.dumps({"facts": [FACT]}),
            StatedReflections: json.dumps({"reflections": [ADVICE, STATUS]}),
        }
        self.says = self.both if answer is ExtractedMemory else [alone[answer]]
        return await super().complete(*of, **named)


class Pipeline:
    """Both extractions over one store of answers, each time as a fresh process has them."""

    def __init__(self, window: Talk, provider: Provider) -> None:
        self.window, self.provider, self.answers = window, provider, MemoryAnswers()
        self.kept = Kept({FORMATION: window.stored})

    async def facts(self) -> list[Event]:
        model = model_over(self.provider, self.answers)
        kept = self.kept
        stage = FactExtraction(kept, kept, kept, model, kept, FENCE, kept, limits=ONE)
        return await self._events(stage, self.window.requested)

    async def reflections(self, facts: Sequence[Event]) -> list[ReflectionFormed]:
        model = model_over(self.provider, self.answers)
        kept = self.kept
        stage = ReflectionExtraction(kept, kept, kept, model, model, kept, FENCE, kept, limits=ONE)
        (extracted,) = (event for event in facts if isinstance(event, FactsExtracted))
        found = await self._events(stage, extracted)
        return [event for event in found if isinstance(event, ReflectionFormed)]

    async def _events(self, stage: Any, event: Event) -> list[Event]:
        async with HandlerRun():
            result = await stage([delivered(event)])
        assert not isinstance(result, Decision), result.refused
        events = [one.event if isinstance(one, Emit) else one for one in result]
        return [one for one in events if not isinstance(one, Erase)]


def window() -> Talk:
    return talk("I work in Lisbon now.", "Please answer briefly.", scopes=BOTH)


async def test_one_call_brings_facts_and_reflections_and_is_paid_once_also_after_a_crash() -> None:
    pipeline = Pipeline(window(), Provider())
    facts = await pipeline.facts()
    (proposed,) = (event for event in facts if isinstance(event, FactsProposed))
    assert [fact.text for fact in proposed.facts] == [FACT["text"]], "a fact never goes to the session"
    formed = await pipeline.reflections(facts)
    assert {(one.scope.kind, one.text) for one in formed} == {
        ("user", ADVICE["text"]),
        ("session", STATUS["text"]),
    }
    assert [source.message_id for one in formed for source in one.sources] == ["s.m2", "s.m2"]
    assert pipeline.provider.answers == [ExtractedMemory]
    calls = [item.call for item in (*formed, *proposed.facts) if item.call]
    assert {call.prompt for call in calls} == {prompts.MEMORY_EXTRACTION}
    assert len({call.call_id for call in calls}) == 1
    assert {call.items for call in calls} == {4}, "all that the call stated share its cost"
    assert (await pipeline.facts(), await pipeline.reflections(facts)) == (facts, formed)
    assert pipeline.provider.answers == [ExtractedMemory]


async def test_memory_stands_apart_from_the_conversation_that_facts_come_from() -> None:
    pipeline = Pipeline(window(), Provider())
    blob = "Mara prefers tea."
    pipeline.kept.shots[USER_SCOPE.key] = stored_snapshot(USER_SCOPE, blob=blob, blob_version=1)
    await pipeline.facts()
    known, conversation = pipeline.provider.users[0].split("# conversation")
    assert (blob in known, blob in conversation, "Lisbon" in conversation) == (True, False, True)


async def test_two_invalid_answers_lead_to_a_call_for_each_kind() -> None:
    pipeline = Pipeline(window(), Provider(lambda _: "I would rather not."))
    facts = await pipeline.facts()
    formed = await pipeline.reflections(facts)
    assert pipeline.provider.answers == [ExtractedMemory, ExtractedMemory, ExtractedFacts, StatedReflections]
    assert [one.text for one in formed] == [ADVICE["text"], STATUS["text"]]


async def test_after_a_message_is_forgotten_reflections_are_asked_for_without_it() -> None:
    pipeline = Pipeline(window(), Provider())
    facts = await pipeline.facts()
    pipeline.kept.marks.append(Mark("message", "s.m1", "for_ever"))
    await pipeline.reflections(facts)
    assert pipeline.provider.answers == [ExtractedMemory, StatedReflections]
    assert "Lisbon" not in pipeline.provider.users[1].split("# conversation")[1]


async def test_a_scope_with_a_prompt_of_its_own_has_two_calls() -> None:
    pipeline = Pipeline(talk("I work in Lisbon now.", scopes=(AGENT_SCOPE, *BOTH)), Provider())
    own = Stream(_id="user", agent_id=AGENT, scope="user", extraction_prompt="{words} words.")
    pipeline.kept.streams["user"] = own
    await pipeline.facts()
    assert ExtractedMemory not in pipeline.provider.answers


def test_a_repaired_answer_shares_nothing_and_one_kind_alone_is_no_answer() -> None:
    shared = {**FACT, "scope": "agent", "about": "organisation"}
    whole = json.dumps({"facts": [shared, {"text": 7}], "reflections": [ADVICE]})
    found = readable(whole, ExtractedMemory)
    assert not isinstance(found, str)
    value, lost = found
    assert (len(value.facts), len(value.reflections), lost) == (1, 1, 1)
    assert value.facts[0].about == "organisation"
    repaired = readable(whole.replace('"facts": [', '"facts": [,', 1), ExtractedMemory)
    assert isinstance(repaired, str) or {fact.about for fact in repaired[0].facts} <= {"person"}
    assert isinstance(readable(json.dumps({"facts": [FACT]}), ExtractedMemory), str)
