"""Consolidation by selection: newer lines replace older ones of the same, the least weighty go when words run out.

A line is as new as what it says; what a blob says counts as said at the time of its newest.
"""

from datetime import UTC, datetime

from eden_memory.formation.offline.offline_decisions import meaning_of
from eden_memory.formation.offline.sentence_words import content, says
from eden_memory.formation.prompt_material import ConsolidationMaterial, DatedText
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.word_limits import cut_at_sentence

UNKNOWN = datetime.min.replace(tzinfo=UTC)


def consolidate(material: ConsolidationMaterial) -> ConsolidatedText:
    """The blob's lines in their order, each new one in the section that it is nearest to."""
    blob = [line.strip() for line in (material.blob or "").splitlines() if line.strip()]
    lines = [DatedText(material.blob_said_at or UNKNOWN, line) for line in blob]
    for one in material.buffer:
        item = DatedText(one.said_at, " ".join(one.text.split()))
        rivals = [line for line in lines if not _heads(line.text) and _rivals(item, line)]
        if item.text and all(line.said_at <= item.said_at for line in rivals):
            lines = [line for line in lines if line not in rivals]
            lines.insert(_place(item.text, [line.text for line in lines]), item)
    return ConsolidatedText(text=_within(lines, material.words))


def _rivals(item: DatedText, line: DatedText) -> bool:
    """Whether only one of two lines can stand: the newer says the same, another value of the same, or its end."""
    new, old = (item, line) if item.said_at >= line.said_at else (line, item)
    return meaning_of(new.text, old.text) != "ADD"


def _place(item: str, lines: list[str]) -> int:
    """The end of the section that shares most words with it; without sections, the end."""
    starts = [at for at, line in enumerate(lines) if _heads(line)]
    sections = zip(starts, [*starts[1:], len(lines)], strict=True) if starts else [(0, len(lines))]
    return max(sections, key=lambda one: len(content(item) & content(" ".join(lines[one[0] : one[1]]))))[1]


def _within(dated: list[DatedText], words: int) -> str:
    """The text, without the oldest lines where there are too many words; headings and lasting lines go last."""
    lines = [one.text for one in dated]
    left = dict(enumerate(lines))
    for at in sorted(
        left, key=lambda at: (_heads(lines[at]), says(lines[at], "weighty"), dated[at].said_at, at)
    ):
        if sum(len(line.split()) for line in left.values()) > words and len(left) > 1:
            del left[at]
    return "\n".join(left.values()) if len(left) > 1 else cut_at_sentence("".join(left.values()), words)


def _heads(line: str) -> bool:
    return line.startswith("#") or line.endswith(":")
