"""How much a model thinks before it answers: EDEN_MODELS_EFFORT in the words that each model takes.

Sources: OpenAI's API reference, `reasoning_effort` (gpt-5.1 and later know `none`, not `minimal`; earlier ones the
other way round; o models begin at `low`); Google's guide to thinking (levels since Gemini 3, a budget of tokens
for 2.5, and the budgets that its OpenAI-compatible endpoint takes the same words for).
"""

import re
from collections.abc import Mapping

from eden_memory.settings import Effort

TAKEN_BY_OPENAI: tuple[tuple[re.Pattern[str], tuple[Effort, ...]], ...] = (
    (re.compile(r"gpt-5\.\d+(-(mini|nano|\d{4}-\d\d-\d\d))*"), ("none", "low", "medium", "high")),
    (re.compile(r"gpt-5(-(mini|nano|\d{4}-\d\d-\d\d))*"), ("minimal", "low", "medium", "high")),
    (re.compile(r"o[134](-(mini|\d{4}-\d\d-\d\d))*"), ("low", "medium", "high")),
)
EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high")
BUDGETS: Mapping[Effort, int] = {
    "none": 0,
    "minimal": 1_024,
    "low": 1_024,
    "medium": 8_192,
    "high": 24_576,
}
THOUGHTS = 24_576
"""Tokens that a model may think beyond its answer: providers count both as one."""
LEAST_BUDGET_OF_PRO = 128
"""Gemini 2.5 Pro always thinks."""
Level = str
"""`MINIMAL`, `LOW`, `MEDIUM` or `HIGH`."""


def openai_effort(model: str, effort: Effort | None) -> Effort | None:
    """The nearest that one of OpenAI's models takes, the greater one if there are two; None: it takes none."""
    if effort is None:
        return None
    takes = next((takes for named, takes in TAKEN_BY_OPENAI if named.fullmatch(model)), ())
    return next((take for take in takes if EFFORTS.index(take) >= EFFORTS.index(effort)), None)


def thinks(model: str) -> bool:
    """Whether it is one of OpenAI's models that think before they answer."""
    return any(named.fullmatch(model) for named, _ in TAKEN_BY_OPENAI)


def google_thinking(model: str, effort: Effort | None) -> Level | int | None:
    """A level, or a budget of tokens; None: the model takes neither, or nothing is set."""
    name = model.removeprefix("models/")
    if effort is None:
        return None
    if name.startswith("gemini-3"):
        least = "MINIMAL" if re.match(r"gemini-3(\.[1-5])?-flash", name) else "LOW"
        return least if effort in ("none", "minimal") else effort.upper()
    if name.startswith("gemini-2.5"):
        return max(BUDGETS[effort], LEAST_BUDGET_OF_PRO if "-pro" in name else 0)
    return None
