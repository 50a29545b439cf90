"""Schemas of answers as providers take them."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from eden_memory.models.provider_calls import described, schema_of
from eden_memory.schemas.answers import (
    ConsolidatedText,
    ExtractedFacts,
    FactDecisions,
    ModelAnswer,
    StatedReflections,
)

ANSWERS = (ExtractedFacts, FactDecisions, StatedReflections, ConsolidatedText)
EXAMPLES: dict[type[ModelAnswer], dict[str, Any]] = {
    ExtractedFacts: {
        "facts": [
            {
                "text": "x",
                "scope": "user",
                "messages": [1],
                "occurred_at": None,
                "about": "world",
                "sensitive": False,
            }
        ]
    },
    FactDecisions: {
        "decisions": [{"fact": "N1", "decision": "ADD", "existing": None, "text": None, "reason": "new"}]
    },
    StatedReflections: {
        "reflections": [{"text": "x", "scope": "user", "messages": [1], "about": "agent", "sensitive": True}]
    },
    ConsolidatedText: {"text": "x"},
}


def parts(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value  # pyright: ignore[reportUnknownVariableType]
    found: Any = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    for one in found:
        yield from parts(one)


@pytest.mark.parametrize("answer", ANSWERS)
def test_strict_structured_output_takes_it(answer: type[ModelAnswer]) -> None:
    for part in parts(schema_of(answer)):
        assert "$ref" not in part
        assert "$defs" not in part
        if "properties" in part:
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])


@pytest.mark.parametrize("answer", ANSWERS)
def test_it_accepts_what_the_model_accepts_and_nothing_else(answer: type[ModelAnswer]) -> None:
    example = EXAMPLES[answer]
    jsonschema.validate(example, schema_of(answer))
    answer.model_validate(example)
    for broken in ({}, {**example, "more": 1}, dict.fromkeys(example, 1)):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema_of(answer))


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_list_is_bounded_where_that_is_asked_for(answer: type[ModelAnswer]) -> None:
    lists = [part for part in parts(schema_of(answer, bounded=True)) if part.get("type") == "array"]
    assert all(part["maxItems"] > 0 for part in lists)
    assert bool(lists) is (answer is not ConsolidatedText)
    assert not any("maxItems" in part for part in parts(schema_of(answer))), "not all providers take it"


def test_properties_keep_their_descriptions() -> None:
    fact = schema_of(ExtractedFacts)["properties"]["facts"]["items"]
    assert "Numbers of the messages" in fact["properties"]["messages"]["description"]


def test_in_words_it_names_the_answer_and_holds_the_schema() -> None:
    assert "ExtractedFacts" in described(ExtractedFacts)
    assert '"additionalProperties":false' in described(ExtractedFacts)
