"""Prompts, each in its current version: a material in, a prompt out. Same material and fence, same prompt.

`fence` is the token of the decision (eden_memory.formation.fence.Fence.around). The texts are the files in
`templates`: `<name>.v<N>.system.j2` holds instructions, `<name>.v<N>.user.j2` the data inside the fence.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from eden_memory.formation.prompt_material import (
    ConsolidationMaterial,
    DecisionMaterial,
    FactMaterial,
    Material,
    ReflectionMaterial,
    longest_answer,
)
from eden_memory.formation.prompts import shown
from eden_memory.models.question import Prompt

FACT_EXTRACTION = "fact-extraction/1"
FACT_DECISIONS = "fact-decisions/2"
REFLECTION_EXTRACTION = "reflection-extraction/2"
CONSOLIDATION = "consolidation/2"
VERSIONS = (FACT_EXTRACTION, FACT_DECISIONS, REFLECTION_EXTRACTION, CONSOLIDATION)
PARTS = ("system", "user")


def fact_extraction(material: FactMaterial, fence: str) -> Prompt:
    """Asks for the facts of a conversation; answered by `ExtractedFacts`."""
    return _prompt(FACT_EXTRACTION, material, fence)


def fact_decisions(material: DecisionMaterial, fence: str) -> Prompt:
    """Asks what new facts mean for what is known; answered by `FactDecisions`.

    Known facts are numbered from 1, and new facts go on behind them as candidates of later new ones:
    `existing` above the number of known facts means new fact number `existing - known`.
    """
    return _prompt(FACT_DECISIONS, material, fence)


def reflection_extraction(material: ReflectionMaterial, fence: str) -> Prompt:
    """Asks for reflections of a conversation in all scopes at once; answered by `StatedReflections`."""
    return _prompt(REFLECTION_EXTRACTION, material, fence)


def consolidation(material: ConsolidationMaterial, fence: str) -> Prompt:
    """Asks for a scope's blob with its buffer merged in; answered by `ConsolidatedText`."""
    return _prompt(CONSOLIDATION, material, fence)


def prepare() -> None:
    """Compile all templates now, rather than while a window waits."""
    for name in VERSIONS:
        for part in PARTS:
            _template(name, part)


def _prompt(name: str, material: Material, fence: str) -> Prompt:
    values = {one: getattr(material, one) for one in material.__slots__} | {"fence": fence}
    return Prompt(
        name=name,
        system=_template(name, "system").render(values).strip(),
        user=_template(name, "user").render(values).strip(),
        material=material,
        answer_tokens=longest_answer(material),
    )


@lru_cache
def _template(name: str, part: str) -> Template:
    title, _, version = name.partition("/")
    return _environment().get_template(f"{title}.v{version}.{part}.j2")


@lru_cache
def _environment() -> Environment:
    environment = Environment(  # plain text for models: what must be kept apart is fenced and indented
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=False,  # noqa: S701
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = environment.filters
    for one in (shown.messages, shown.moment, shown.indented, shown.one_line, shown.plain):
        filters[one.__name__] = one
    return environment
