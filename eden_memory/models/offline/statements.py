"""Reads a conversation: the statements of its users, each made to stand alone, with the messages it rests on."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from eden_memory.domain.extraction.transcript import REMOVED
from eden_memory.domain.material import Line
from eden_memory.domain.words import cut_at_sentence
from eden_memory.models.offline.alone import dated, third_person
from eden_memory.models.offline.kinds import Kind, kind_of, personal
from eden_memory.models.offline.words import content, dates, names, numbers, pattern, says, sentences

_INSTEAD = re.compile(r"([\w:.]{1,30}),? (?:not|instead of) ([\w:.]{1,30})|\bends? in (\d{1,20})")


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that a user has said, in the third person; `personal` as kinds.personal has it."""

    kind: Kind
    text: str
    messages: tuple[int, ...]
    personal: int


@dataclass(slots=True)
class _Heard:
    """Who speaks, whom they name, what pronouns may refer to, what was asked last, and what was said."""

    speakers: frozenset[str]
    named: frozenset[str]
    person: str = ""
    things: str = ""
    asker: str = ""
    question: str = ""
    said: list[Statement] = field(default_factory=lambda: [])


def statements(lines: Sequence[Line], words: int) -> list[Statement]:
    """Of the users, in order, each of at most `words` words."""
    lines = [replace(line, speaker=" ".join(line.speaker.split()) or "User") for line in lines]
    speakers = frozenset(part for line in lines for part in (line.speaker, *line.speaker.split()))
    heard = _Heard(speakers, frozenset(name for line in lines for name in names(line.text)) - speakers)
    for number, line in enumerate(lines, 1):
        if line.role == "user" and line.text != REMOVED:
            heard.said += _of_message(number, line, words, heard)
        if line.role in ("user", "assistant"):
            _listen(line, heard)
    return heard.said


def _listen(line: Line, heard: _Heard) -> None:
    last = ""
    for last in sentences(line.text):
        for found in pattern("{person}").finditer(last):
            heard.person = f"{line.speaker}'s {found[2]}" if found[1] else found[0]
        for found in pattern("{things}").finditer(last):
            heard.things = found[0].replace("my ", f"{line.speaker}'s ")
    heard.asker, heard.question = (line.speaker, last) if last.endswith("?") else ("", "")


def _of_message(number: int, line: Line, words: int, heard: _Heard) -> Iterator[Statement]:
    """Its sentences, those that lean on the one before joined to it."""
    own, groups = 0, [Statement("nothing", "", (number,), 0)]
    for at, (lead, sentence) in enumerate(_said(line.text, heard.speakers)):
        if _corrected(sentence, number, heard):
            continue
        before, bare = groups[-1], not says(sentence, "verb")
        leans = bool(before.text) and (bare or bool(pattern("^{leaning}").match(sentence)))
        kind = kind_of(sentence, lead, heard.speakers, heard.named)
        if kind not in ("nothing", "rule") and not leans:
            kind = _if_alone(kind, sentence, bare, at, line, heard)
        if kind not in ("nothing", "rule"):
            own = max(own, 2 if bare and not at and "you" in heard.question else personal(sentence))
        text = "" if kind == "nothing" else _alone(sentence, line, bare, leans, heard)
        joined = f"{before.text} {text}".strip()
        goes_on = before.kind in (kind, "context") and kind != "nothing"
        explains = before.kind in ("rule", "way") and kind == "fact" and not personal(sentence)
        if leans and (goes_on or explains) and len(joined.split()) <= words:
            groups[-1] = replace(before, text=joined, kind=kind if before.kind == "context" else before.kind)
        elif not leans or sentence.startswith("The "):
            groups.append(replace(before, kind=kind, text=text))
    for one in groups:
        if one.kind in ("fact", "rule", "way"):
            # A rule is for all, whoever states it, unless it tells of somebody's life.
            whose = 2 * says(one.text, "personal") if one.kind == "rule" else own
            yield replace(one, text=cut_at_sentence(one.text, words), personal=whose)


def _if_alone(kind: Kind, sentence: str, bare: bool, at: int, line: Line, heard: _Heard) -> Kind:
    """A sentence with nothing before it: the answer to a question, or nothing where it says too little."""
    if not bare:
        resolved = _with_antecedents(sentence, heard)
        unclear = pattern(r"^(?:he|she|it|they|this|that|there)\b").match(resolved)
        return "nothing" if kind != "context" and unclear else kind
    meaning = content(sentence) - content(" ".join(heard.speakers))
    if kind == "way" or at or heard.asker in ("", line.speaker):
        return kind if kind == "way" or (not at and len(meaning) > 3) else "nothing"
    preferred = pattern(r"\b(?:like|prefer|favou?rite|enjoy|want)\b").search(heard.question)
    return "nothing" if not meaning else "way" if preferred else kind


def _corrected(sentence: str, number: int, heard: _Heard) -> bool:
    """Whether it corrects a value just given; then that statement is put right."""
    found = _INSTEAD.search(sentence)
    if not found or not heard.said or number - heard.said[-1].messages[-1] not in (1, 2):
        return False
    before, (new, old, ending) = heard.said[-1], found.groups()
    alike = old and any(of(new) and of(old) for of in (numbers, dates))
    text = before.text.replace(old, new) if alike else before.text
    if ending:
        text = re.sub(r"(\d[\d -]*\d)(?!.*\d)", lambda m: m[1][: -len(ending)] + ending, text)
    if text != before.text:
        heard.said[-1] = replace(before, text=text, messages=(*before.messages, number))
    return text != before.text


def _said(text: str, speakers: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Lead and sentence, without fillers, asides and the name of who is spoken to."""
    filler = pattern("^(?:{filler}[,.!]+ *|{linking},? )+")
    short = {name[:length] for name in speakers for length in range(3, len(name) + 1)}
    for sentence in sentences(text):
        bare = filler.sub("", pattern(",? ?{aside},?").sub("", sentence))
        lead = (pattern(r"^[^:\d]*{lead}[^:\d]*: ").match(bare) or [""])[0]
        bare = bare.removeprefix(lead)
        name, comma, rest = bare.partition(", ")
        bare = (rest if comma and name in short else bare).strip()
        if bare.strip(" .!"):
            yield lead, bare[0].upper() + bare[1:]


def _alone(sentence: str, line: Line, bare: bool, leans: bool, heard: _Heard) -> str:
    sentence = dated(sentence, line.time)
    if not leans:
        sentence = _with_antecedents(sentence, heard)
        if bare and heard.asker not in ("", line.speaker):
            sentence = f'{line.speaker}, asked "{heard.question}": {sentence}'
    text = third_person(sentence, line.speaker)
    return text[0].upper() + text[1:]


def _with_antecedents(sentence: str, heard: _Heard) -> str:
    """Its pronouns explained, where somebody or something was named before that they may stand for."""
    if heard.person:
        sentence = re.sub(r"^(?:(Her|His)|She|He)\b", lambda m: heard.person + "'s" * bool(m[1]), sentence)
    return re.sub(r"^They\b", lambda _: heard.things, sentence) if heard.things else sentence
