"""The answers that a language model is asked for, one model per prompt. Numbers are those that the prompt showed.

Every field is required, as strict structured output of all providers wants it. The bounds of lists are only for
endpoints, whose small models may count without an end: Google refuses schemas with several of them, OpenAI those
for its fine-tuned models. What an answer may hold is checked against what was shown, never taken from the answer.
"""

from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from eden_memory.schemas.described import DescribedModel

AS_SAID = object()
"""The context in which a model's own text is read: a number stands for a label that has its digits."""


MOST_ITEMS = Field(json_schema_extra={"maxItems": 200})
MOST_MESSAGES = 24
"""Numbers of messages that one item names; a longer list is no choice any more."""
Numbers = Annotated[list[int], Field(json_schema_extra={"maxItems": MOST_MESSAGES})]


class ModelAnswer(DescribedModel):
    """The base of all answers: closed and immutable; a number given as text is an error, not a guess."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", strict=True)


About = Literal["agent", "organisation", "world", "person"]
"""Whom a memory is about; a person: somebody's life, views, conduct or wishes."""


class JudgedItem(ModelAnswer):
    """A part of an answer with the model's judgement whether others may see it.

    It is the first base of such a part, so that its fields come last: a model judges what it has written.
    """

    about: About
    sensitive: bool
    """Health, family, money of a person, beliefs, credentials, anything said in confidence."""

    @model_validator(mode="before")
    @classmethod
    def _fails_closed(cls, fields: Any, validation: ValidationInfo) -> Any:
        """Take what a model's own text does not judge, or judges in other words, as personal and sensitive."""
        if validation.context is not AS_SAID or not isinstance(fields, dict):
            return fields
        said = cast(dict[str, Any], fields)
        judged = said.get("about") in get_args(About) and isinstance(said.get("sensitive"), bool)
        return said if judged else {**said, "about": "person", "sensitive": True}


class StatedText(ModelAnswer):
    """What an item says, whose it is, and what it rests on."""

    text: str
    scope: str
    """The label of one of the scopes shown."""
    messages: Numbers
    """Numbers of the messages that it rests on."""


class StatedReflection(JudgedItem, StatedText):
    """One interpreted insight."""


class TimedText(StatedText):
    """A text with the time of what it tells."""

    occurred_at: str | None
    """When it happened or begins, as an ISO date, month or year."""


class StatedFact(JudgedItem, TimedText):
    """One fact that stands alone."""

    @model_validator(mode="before")
    @classmethod
    def _not_asked(cls, fields: Any, validation: ValidationInfo) -> Any:
        """Take a fact without a time: earlier prompts did not ask for one."""
        if validation.context is not AS_SAID or not isinstance(fields, dict):
            return fields
        return {"occurred_at": None, **cast(dict[str, Any], fields)}


class ExtractedFacts(ModelAnswer):
    """Answer of `fact-extraction`."""

    facts: Annotated[list[StatedFact], MOST_ITEMS]


def _as_text(label: Any, validation: ValidationInfo) -> Any:
    """Take a number for its digits in the text of an answer: answers to earlier prompts numbered the facts."""
    return str(label) if validation.context is AS_SAID and type(label) is int else label


FactLabel = Annotated[str, BeforeValidator(_as_text)]


class FactDecision(ModelAnswer):
    """What one new fact means for what is known; new facts that no decision names are added."""

    fact: FactLabel
    """The new fact, such as N1."""
    decision: Literal["ADD", "UPDATE", "DELETE", "NONE"]
    existing: FactLabel | None
    """The fact that is updated, contradicted or already says it, such as K1; null for ADD."""
    text: str | None
    """UPDATE: the merged text; else null."""
    reason: str | None
    """A few words."""


class FactDecisions(ModelAnswer):
    """Answer of `fact-decisions`."""

    decisions: Annotated[list[FactDecision], MOST_ITEMS]


class StatedReflections(ModelAnswer):
    """Answer of `reflection-extraction`."""

    reflections: Annotated[list[StatedReflection], MOST_ITEMS]


class ExtractedMemory(ModelAnswer):
    """Answer of `memory-extraction`."""

    facts: Annotated[list[StatedFact], MOST_ITEMS]
    reflections: Annotated[list[StatedReflection], MOST_ITEMS]


class ConsolidatedText(ModelAnswer):
    """Answer of `consolidation`."""

    text: str


class BroaderText(ModelAnswer):
    """What a reflection says for a broader scope."""

    reflection: int
    """Number of the reflection."""
    text: str
    """The same for the broader scope: about nobody in particular."""


class JudgedReflection(JudgedItem, BroaderText):
    """One reflection that matters to the broader scope."""


class AlikeReflection(JudgedReflection):
    """One that others may show, too."""

    same: Numbers
    """Numbers of the others' reflections that say the same."""


class ShownAlike(ModelAnswer):
    """Answer of `propagation-shown`."""

    propagated: Annotated[list[AlikeReflection], MOST_ITEMS]


class JudgedReflections(ModelAnswer):
    """Answer of `propagation`; reflections that it does not name stay where they are."""

    propagated: Annotated[list[JudgedReflection], MOST_ITEMS]
