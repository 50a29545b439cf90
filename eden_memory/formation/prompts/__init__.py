"""Prompts, each in its current version: a material in, a prompt out. Same material and fence, same prompt.

`fence` is the token of the decision (eden_memory.formation.prompts.Fence.around). The texts are the files in
`templates`: `<name>.v<N>.system.j2` holds instructions, `<name>.v<N>.user.j2` the data inside the fence.
"""

import hmac
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from eden_memory.formation.prompt_material import (
    ConsolidationMaterial,
    DecisionMaterial,
    FactMaterial,
    Material,
    MemoryMaterial,
    PropagationMaterial,
    ReflectionMaterial,
    TranscriptLine,
    fact_label,
    longest_answer,
)
from eden_memory.models.question import Prompt
from eden_memory.redaction import without_unseen


class Fence:
    """Makes fences, tokens around data: unguessable to whoever writes content, the same at every attempt.

    `secret` is the installation's, so that a prompt reads the same in each of its namespaces.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 16:
            raise ValueError("a secret of fewer than 16 bytes can be guessed")
        self._secret = secret

    def around(self, decision: str) -> str:
        """Return the token of a decision, `<<` 20 hexadecimal digits `>>`: a line above and below the data.

        `decision` names what is decided (`fact-extraction/<formation>`), never an attempt or a namespace. Where a
        prompt begins with texts that many prompts of an agent share, it names the agent instead: providers cache
        prompts up to the first difference. Content and answers are rid of the fence, so nobody learns it.
        """
        return f"<<{hmac.new(self._secret, decision.encode(), sha256).hexdigest()[:20]}>>"


FACT_EXTRACTION = "fact-extraction/6"
FACT_DECISIONS = "fact-decisions/4"
REFLECTION_EXTRACTION = "reflection-extraction/7"
MEMORY_EXTRACTION = "memory-extraction/1"
"""Facts and reflections in one call (EDEN_FORMATION_CALLS=one)."""
CONSOLIDATION = "consolidation/6"
PROPAGATION = "propagation/5"
PROPAGATION_SHOWN = "propagation-shown/1"
"""Where several scopes must show the same."""
SHORT = {
    FACT_EXTRACTION: "fact-extraction-short/4",
    FACT_DECISIONS: "fact-decisions-short/2",
    REFLECTION_EXTRACTION: "reflection-extraction-short/3",
}
"""Variants for small models, with fewer rules; other prompts have none."""
OWN = {
    FACT_EXTRACTION: "fact-extraction-own/1",
    REFLECTION_EXTRACTION: "reflection-extraction-own/1",
    CONSOLIDATION: "consolidation-own/1",
}
"""What surrounds the instructions of a stream's own; a prompt's name ends with their hash."""
VERSIONS = (
    FACT_EXTRACTION,
    FACT_DECISIONS,
    REFLECTION_EXTRACTION,
    MEMORY_EXTRACTION,
    CONSOLIDATION,
    PROPAGATION,
    PROPAGATION_SHOWN,
)
PARTS = ("system", "user")


def versions(*, short: bool) -> tuple[str, ...]:
    """Return the names of the prompts in use."""
    return tuple(SHORT.get(name, name) for name in VERSIONS) if short else VERSIONS


def fact_extraction(
    material: FactMaterial, fence: str, *, short: bool = False, own: str | None = None
) -> Prompt:
    """Ask for the facts of a conversation; answered by `ExtractedFacts`. `own`: the only scope's instructions."""
    return _prompt(FACT_EXTRACTION, material, fence, short=short, own=own)


def fact_decisions(material: DecisionMaterial, fence: str, *, short: bool = False) -> Prompt:
    """Ask what new facts mean for what is known; answered by `FactDecisions`.

    Known facts are called K1, K2 and so on, new facts N1, N2 and so on.
    """
    return _prompt(FACT_DECISIONS, material, fence, short=short)


def reflection_extraction(
    material: ReflectionMaterial, fence: str, *, short: bool = False, own: str | None = None
) -> Prompt:
    """Ask for reflections of a conversation; answered by `StatedReflections`. `own`: as for facts."""
    return _prompt(REFLECTION_EXTRACTION, material, fence, short=short, own=own)


def memory_extraction(material: MemoryMaterial, fence: str) -> Prompt:
    """Ask for the facts and reflections of a conversation at once; answered by `ExtractedMemory`."""
    return _prompt(MEMORY_EXTRACTION, material, fence)


def consolidation(material: ConsolidationMaterial, fence: str, own: str | None = None) -> Prompt:
    """Ask for a scope's blob with its buffer merged in; answered by `ConsolidatedText`. `own`: its instructions."""
    return _prompt(CONSOLIDATION, material, fence, own=own)


def propagation(material: PropagationMaterial, fence: str) -> Prompt:
    """Ask which reflections matter to a broader scope; answered by `JudgedReflections`, or `ShownAlike`."""
    return _prompt(PROPAGATION if material.others is None else PROPAGATION_SHOWN, material, fence)


def prepare(*, short: bool = False) -> None:
    """Compile all templates now, rather than while a window waits."""
    for name in versions(short=short):
        for part in PARTS:
            _template(name, part)


def _prompt(
    name: str, material: Material | MemoryMaterial, fence: str, *, short: bool = False, own: str | None = None
) -> Prompt:
    """Return a prompt; a scope's own instructions stand inside ours on what is data and how to answer."""
    name = SHORT.get(name, name) if short and own is None else name
    values = {slot: getattr(material, slot) for slot in material.__slots__} | {"fence": fence}
    system, called = name, name
    if own is not None and not isinstance(material, MemoryMaterial):
        system, called = OWN[name], own_name(name, own)
        values["own"] = own.format_map(_placeholders(material))
    return Prompt(
        name=called,
        system=_template(system, "system").render(values).strip(),
        user=_template(name, "user").render(values).strip(),
        material=material,
        answer_tokens=longest_answer(material),
        takes_part=short and isinstance(material, FactMaterial | ReflectionMaterial),
    )


def own_name(name: str, own: str) -> str:
    """Return the name of a prompt that holds a scope's own instructions."""
    return f"{OWN[name]}:{sha256(own.encode()).hexdigest()[:12]}"


def _placeholders(material: Material) -> dict[str, str | int]:
    """Return what a scope's own instructions may name (`schemas.documents.PLACEHOLDERS`)."""
    language, words = material.language or "the conversation's language", material.words
    if isinstance(material, FactMaterial | ReflectionMaterial):
        kind = "facts" if isinstance(material, FactMaterial) else "reflections"
        (scope, *_) = material.scopes
        limits = {"kind": kind, "least": scope.least, "most": scope.most}
        return {**limits, "scope": scope.label, "words": scope.words or words, "language": language}
    label = material.label if isinstance(material, ConsolidationMaterial) else ""
    return {"scope": label, "words": words, "language": language}


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
    for function in (fact_label, indented, language_or, messages, moment, one_line, plain):
        filters[function.__name__] = function
    return environment


NAME_CHARACTERS = 40
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MARKS = {"assistant": " (agent)", "tool": " (tool)", "system": " (system)", "other": " (other)"}
_NOT_IN_NAMES = re.compile(r"[^\w .,'’&/+-]+")  # noqa: RUF001 - names hold it


@lru_cache(maxsize=4_096)
def name(text: str) -> str:
    """Return a name in one line of at most 40 characters, without brackets and colons, which mark a line."""
    return (
        " ".join(_NOT_IN_NAMES.sub(" ", without_unseen(text)).split())[:NAME_CHARACTERS].strip() or "Someone"
    )


def language_or(language: str | None, otherwise: str) -> str:
    """Return the language that memory is kept in, whatever the conversation's; without one, `otherwise`."""
    return otherwise if language is None else f"{language}, whatever language is spoken"


def one_line(text: str) -> str:
    """Return a text in one line."""
    return " ".join(without_unseen(text).split())


def plain(text: str, fence: str) -> str:
    """Return content in one line, without the fence."""
    return one_line(one_line(text).replace(fence, " "))


def moment(time: datetime) -> str:
    """Return a time as `2026-03-02 14:05` (UTC), to the minute."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"


def indented(text: str, fence: str) -> str:
    """Indent all lines of a text, so that none of them can pass for a line of the prompt."""
    return "\n".join(f"  {line}" for line in _lines(text, fence) or [""])


def messages(lines: tuple[TranscriptLine, ...], fence: str, behind: int = 0) -> str:
    """Return messages as `[number] HH:MM Name: text` (UTC), with the date before the first of each day.

    `behind`: the number after which these count.
    """
    return "\n".join(_numbered(lines, fence, behind))


def _numbered(lines: tuple[TranscriptLine, ...], fence: str, behind: int) -> Iterator[str]:
    day = None
    for number, line in enumerate(lines, behind + 1):
        if (date := line.time.date()) != day:
            day = date
            yield _day(line.time)
        first, *rest = _lines(line.text, fence) or [""]
        yield f"[{number}] {line.time:%H:%M} {name(line.speaker)}{_MARKS.get(line.role, '')}: {first}"
        for continued in rest:
            yield f"  {continued}"


def _day(time: datetime) -> str:
    return f"{time:%Y-%m-%d} {_WEEKDAYS[time.weekday()]}"


def _lines(text: str, fence: str) -> list[str]:
    """Return the lines that are not blank, whatever separates them (also U+2028 and the like), without the fence."""
    seen = without_unseen(text).replace(fence, " ")
    return [" ".join(line.split()) for line in seen.splitlines() if line.strip()]
