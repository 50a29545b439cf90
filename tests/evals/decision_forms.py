"""Decisions on new facts, made from statements in eight languages (decision_forms.yaml): enough for narrow intervals.

    python -m tests.evals.decision_forms > decisions.jsonl
    eden eval decisions.jsonl --system eden --llm openai

A person's fact is known, and another person's of the same kind. What is new says the first in other words, says it
about a third person, whose name may differ in one character, is about something else of the same person, or is true
from now on.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from eden_memory.evals.dataset import DecisionLine, Outcome


def decision_lines() -> Iterator[DecisionLine]:
    """Of each statement two persons': the same in other words, three about others or something else, a change."""
    for language, memory in _read().items():
        for number, form in enumerate(memory["forms"]):
            for turn in range(2):
                yield from _of_person(f"{language}-{number}-{turn}", language, memory["people"], form, turn)


def _of_person(
    name: str, language: str, people: list[str], form: list[Any], turn: int
) -> Iterator[DecisionLine]:
    statement, same, beside, changed, values = form
    who, other, value = people[turn], people[2 + turn], str(values[turn])
    stranger = people[3 - turn]
    known = (_said(statement, who, value), _said(statement, stranger, str(values[2])))
    cases: tuple[tuple[str, str, Outcome, tuple[Outcome, ...]], ...] = (
        ("same", _said(same, who, value), "NONE", ("UPDATE",)),
        ("other", _said(statement, other, value), "ADD", ()),
        ("other-words", _said(same, other, value), "ADD", ()),
        ("beside", _said(beside, who, value), "ADD", ()),
        ("changed", _said(changed, who, str(values[3])), "DELETE", ("UPDATE",)),
    )
    for kind, new, expected, or_ in cases:
        yield DecisionLine.model_validate(
            {
                "kind": "decision",
                "conversation": "decisions",
                "id": f"{name}-{kind}",
                "language": language,
                "known": known,
                "new": new,
                "expected": expected,
                "or": or_,
            }
        )


def _said(statement: str, who: str, value: str) -> str:
    return statement.replace("P", "\0").replace("V", value).replace("\0", who)


@cache
def _read() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


if __name__ == "__main__":
    for line in decision_lines():
        print(line.model_dump_json(by_alias=True, exclude_none=True))  # noqa: T201
