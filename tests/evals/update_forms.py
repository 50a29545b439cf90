"""Update pairs in the forms in which people and models write them (update_forms.yaml), in several languages."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from tests.evals.update_pairs import Pair, times_of

Part = Literal["tuning", "held"]
LANGUAGES = ("German", "Spanish", "French", "Italian", "Chinese", "Japanese", "Korean", "Russian", "Arabic")
"""Forms that are languages: each is a memory of its own; the others are one memory together."""


def forms(part: Part) -> dict[str, list[Pair]]:
    """The pairs of each form: of those by which the rule was set, or of those that only judge it."""
    return {form: _pairs(rows) for form, rows in _read()[part].items()}


def past(part: Part) -> list[Pair]:
    """Pairs whose question is about the past: the older text answers it."""
    return _pairs(_read()["past"][part])


def memories(made: dict[str, list[Pair]]) -> list[list[Pair]]:
    """The pairs by the memory that they are in."""
    english = [pair for form, pairs in made.items() if form not in LANGUAGES for pair in pairs]
    return [english, *(pairs for form, pairs in made.items() if form in LANGUAGES)]


@cache
def _read() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def _pairs(rows: Sequence[Sequence[str]]) -> list[Pair]:
    return [
        Pair(older, newer, question, *times_of(number, number))
        for number, (older, newer, question) in enumerate(rows)
    ]
