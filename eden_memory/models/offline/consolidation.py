"""Consolidation by selection: newer lines replace older ones of the same, the least weighty go when words run out."""

from eden_memory.domain.material import ConsolidationMaterial
from eden_memory.domain.words import cut_at_sentence
from eden_memory.models.offline.decisions import meaning_of
from eden_memory.models.offline.words import content, says
from schemas.answers import ConsolidatedText


def consolidate(material: ConsolidationMaterial) -> ConsolidatedText:
    """The blob's lines in their order, each new one in the section that it is nearest to."""
    lines = [line.strip() for line in (material.blob or "").splitlines() if line.strip()]
    for item in filter(None, (" ".join(one.split()) for one in material.buffer)):
        lines = [line for line in lines if _heads(line) or meaning_of(item, line) == "ADD"]
        lines.insert(_place(item, lines), item)
    return ConsolidatedText(text=_within(lines, material.words))


def _place(item: str, lines: list[str]) -> int:
    """The end of the section that shares most words with it; without sections, the end."""
    starts = [at for at, line in enumerate(lines) if _heads(line)]
    sections = zip(starts, [*starts[1:], len(lines)], strict=True) if starts else [(0, len(lines))]
    return max(sections, key=lambda one: len(content(item) & content(" ".join(lines[one[0] : one[1]]))))[1]


def _within(lines: list[str], words: int) -> str:
    left = dict(enumerate(lines))
    for at in sorted(left, key=lambda at: (_heads(lines[at]), says(lines[at], "weighty"), at)):
        if sum(len(line.split()) for line in left.values()) > words and len(left) > 1:
            del left[at]
    return "\n".join(left.values()) if len(left) > 1 else cut_at_sentence("".join(left.values()), words)


def _heads(line: str) -> bool:
    return line.startswith("#") or line.endswith(":")
