"""A language model made of rules for plain English: the same answer every time, no network, no cost.

What it forms is much poorer than a real model's: it takes over sentences, understands no context beyond a pronoun,
and misses whatever its patterns do not know. It reads a prompt's material alone, so that no text in a conversation
can instruct it.
"""

from collections.abc import Callable
from typing import Any

from eden_memory.formation import prompt_material as material
from eden_memory.formation.offline.offline_answers import consolidate, decide, facts, judge, reflections
from eden_memory.limits import cut_at_sentence, words_of
from eden_memory.models.question import A, Answered, Asking, Earlier, Prompt
from eden_memory.schemas.answers import ConsolidatedText, ExtractedMemory, ModelAnswer

_RULES: dict[type, Callable[[Any], ModelAnswer]] = {
    material.FactMaterial: facts,
    material.ReflectionMaterial: reflections,
    material.ConsolidationMaterial: consolidate,
    material.DecisionMaterial: decide,
    material.MemoryMaterial: lambda both: ExtractedMemory(
        facts=facts(both.facts).facts, reflections=reflections(both.reflections).reflections
    ),
    material.PropagationMaterial: judge,
}


class OfflineModel:
    """A LanguageModel of rules; its answers cost nothing, so none is stored."""

    async def earlier(self, unit: str) -> Earlier | None:  # noqa: ARG002 - the Protocol's
        """Return None: the same question has the same answer anyway."""
        return None

    async def ask(
        self,
        prompt: Prompt,
        answer: type[A],
        asking: Asking,  # noqa: ARG002 - the Protocol's
        check: Callable[[A], str | None] | None = None,
    ) -> Answered[A]:
        """Compute the answer from `prompt.material`; TypeError if that is not what `answer` answers."""
        value = _RULES[type(prompt.material)](prompt.material)
        if not isinstance(value, answer):
            raise TypeError(f"{type(prompt.material).__name__} is not answered by {answer.__name__}")
        if check and isinstance(value, ConsolidatedText) and check(value):
            shorter = cut_at_sentence(value.text, words_of(value.text) * 3 // 4)
            value = value.model_copy(update={"text": shorter})
        return Answered(value, None)
