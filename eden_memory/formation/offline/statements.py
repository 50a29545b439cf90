"""Days and months that count from a message's time, written as dates."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from eden_memory.formation.offline.sentences import (
    Kind,
    clauses,
    complete,
    content,
    dates,
    english,
    kind_of,
    names,
    numbers,
    pattern,
    personal,
    plain,
    says,
    sentences,
)
from eden_memory.formation.prompt_material import TranscriptLine
from eden_memory.formation.transcript import REMOVED
from eden_memory.limits import cut_at_sentence

_AHEAD = {"today": 0, "tonight": 0, "this": 0, "tomorrow": 1, "next": 1}
"""Units from now; what else is said is one back."""


def dated(text: str, time: datetime) -> str:
    """Write days and months that count from the message's time as dates; add a year where one is meant."""
    past, yearly = says(pattern("{unpast}").sub("", text), "past"), says(text, "yearly")
    ahead = not past and says(text, "ahead", "unpast")

    def year(month: str, day: int | None = None) -> str:
        return "" if yearly else f" {_year_of(time, month, day, past=past, ahead=ahead)}"

    weekday = (
        r"\b(?:({since}) )?(on|last|next|this|by|until) ({days})"
        r"(?! (?:the )?\d)(?=(?: [a-z]+(?<!of)(?<!s)\b|[^\w\s]|$))"
    )
    steps: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
        (r"\b(\d\d?|an?|one|{counts}) ({unit}) ago\b", lambda m: _span(m[2], f"-{plain(m[1])}", time)),
        (r"\b(?:on )?(yesterday|last night|today|tonight|tomorrow)\b", lambda m: _span("day", m[1], time)),
        (weekday, lambda m: _after(m[1], _weekday(m[2].lower(), m[3], time, past))),
        (
            r"\b((?:end|beginning) of )the (month|year)\b",
            lambda m: f"{m[1]}{'this' if past or ahead else 'the'} {m[2]}",
        ),
        (r"\b(?:({since}) )?(last|this|next) ({unit})\b", lambda m: _after(m[1], _span(m[3], m[2], time))),
        (r"\bin ({months})\b(?! \d)", lambda m: f"in {m[1]}{year(m[1])}"),
        (r"\b({months}) (\d\d?)(?:st|nd|rd|th)?\b(?!:|\.\d)", lambda m: f"{m[2]} {m[1]}"),
        (
            r"\b(?:the )?(\d\d?)(?:st|nd|rd|th)?(?: of)? ({months})(?!,? \d{4})",
            lambda m: f"{m[1]} {m[2]}{year(m[2], int(m[1]))}",
        ),
    )
    for template, said in steps:
        text = pattern(template).sub(said, text)
    return text


def _after(word: str | None, span: str) -> str:
    """Put a span behind the word that led to it: `since last year` → `since 2025`."""
    return span if word in (None, "in", "In", "on", "On") else f"{word} {re.sub('^(?:in|on) ', '', span)}"


def _span(unit: str, away: str, time: datetime) -> str:
    """Return the day, the Monday of the week, the month or the year so many units away from the time."""
    steps = int(away) if re.fullmatch(r"-\d+", away) else _AHEAD.get(away.lower(), -1)
    spans = {
        "day": f"on {_day(time + timedelta(steps))}",
        "week": f"in the week of {_day(time + timedelta(7 * steps - time.weekday()))}",
        "weekend": f"on the weekend of {_day(time + timedelta(7 * steps + 5 - time.weekday()))}",
        "month": f"in {time.replace(day=15) + timedelta(30.44 * steps):%B %Y}",
        "year": f"in {time.year + steps}",
    }
    return spans[unit.lower().rstrip("s")]


def _day(day: datetime) -> str:
    return f"{day.day} {day:%B %Y}"


def _weekday(how: str, day: str, time: datetime, past: bool) -> str:
    ahead = (english()["days"].index(day.lower()) - time.weekday()) % 7
    back = how == "last" or (how == "on" and past)
    then = time + timedelta(ahead - 7 if back else ahead or 7)
    return f"{how if how in ('by', 'until') else 'on'} {day} {_day(then)}"


def _year_of(time: datetime, month: str, day: int | None, *, past: bool, ahead: bool) -> int:
    """Return the year that brings the date nearest; a past sentence prefers the past, one ahead excludes it."""
    months = english()["months"].index(month.lower()) + 1 - time.month + ((day or time.day) - time.day) / 31
    until, back = months % 12, -months % 12
    nearest = until if ahead or until <= back * (0.5 if past else 6) else -back
    return time.year + round((nearest - months) / 12)


_INSTEAD = re.compile(r"([\w:.]{1,30}),? (?:not|instead of) ([\w:.]{1,30})|\bends? in (\d{1,20})")
UNNAMED = re.compile(r"User(?: \d+)?$")
"""The name of a speaker without one, which has no shorter form."""
NEAR = 2
"""Lines after which no pronoun means the person whom a line named: the answer, and the next message."""
_ASKED = re.compile(r"^What (?:(would|do) you (like to )?)([a-z]+)(?: here| there| now)?\?$", re.IGNORECASE)
_SHORT = {"'m": " am", "'ve": " have", "'ll": " will", "'d": " would", "'re": " are"}
_SPOKEN = {"wanna": "want to", "gonna": "going to", "gotta": "have to"}
_OWN = re.compile(r"\b(?:I(?: am| was)?|[Mm]y own|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|[Oo]urs?)\b")
_THEY = {
    **dict.fromkeys(("i", "we"), "they"),
    **dict.fromkeys(("my", "my own", "our"), "their"),
    **dict.fromkeys(("mine", "ours"), "theirs"),
    **{"i am": "they are", "i was": "they were", "me": "them", "myself": "themselves"},
}
"""Whom nothing but `User` names, once a sentence has said it."""
_ODD = {"am": "is", "have": "has", "do": "does", "don't": "doesn't", "haven't": "hasn't", "go": "goes"}


@dataclass(frozen=True, slots=True)
class HeardStatement:
    """A user's statement in the third person; `personal` as the function `clauses.personal` tells."""

    kind: Kind
    text: str
    messages: tuple[int, ...]
    personal: int


@dataclass(slots=True)
class _Heard:
    """State of reading: who speaks, whom they name, whom pronouns mean, the last question, the statements."""

    speakers: frozenset[str]
    named: frozenset[str]
    person: str = ""
    """The only person named last, so that a pronoun can mean nobody else."""
    named_in: int = 0
    """The number of the line that named `person`."""
    pronoun: str = ""
    """`she` or `he`, once it has stood for `person`."""
    things: str = ""
    asker: str = ""
    question: str = ""
    said: list[HeardStatement] = field(default_factory=lambda: [])

    def mention(self, text: str, speaker: str, number: int) -> None:
        """Take note of the people that a user's text names; of several, none can be meant by a pronoun."""
        opening = re.match(r"([A-Z][\w-]+) [a-z]", text)
        people = [opening[1]] if opening and opening[1] in self.named else []
        people = people or list(dict.fromkeys(_people(text, speaker)))
        if people and people != [self.person]:
            self.person, self.pronoun = people[0] if len(people) == 1 else "", ""
        elif not people and self._names_another(text):
            self.person = ""
        if people:
            self.named_in = number

    def answered(self, text: str, number: int) -> None:
        """Keep the person in mind if an assistant's text repeats the name; drop them if it names another."""
        if self._names_another(text) or any(name not in self.person for name in _people(text, "")):
            self.person = ""
        elif self.person and self.person in text:
            self.named_in = number

    def _names_another(self, text: str) -> bool:
        """Return whether a text may tell of another person, by a name that stands after no word of place."""
        found = pattern(r"(?<!in )(?<!at )(?<!from )(?<!to )\b(?-i:[A-Z])[\w-]+").findall(text)
        return bool(self.named & {*found} - {*self.person.split()})

    def explained(self, clause: str, speaker: str, number: int) -> str:
        """Replace an opening pronoun by the person or things that it means, where that is certain."""
        found = re.match(r"(She|Her|He|His)\b", clause)
        pronoun = "she" if found and found[1] in ("She", "Her") else "he"
        near = number - self.named_in <= NEAR
        if found and near and self.person and self.pronoun in ("", pronoun):
            self.pronoun = pronoun
            rest = re.sub(r"^'s\b", " is", clause[found.end() :])
            clause = self.person + "'s" * (found[1] in ("Her", "His")) + rest
        if self.things.lower().startswith("the "):
            noun = self.things[4:].removeprefix("new ")
            clause = re.sub(r"^The (new|old|other) ones\b", lambda m: f"The {m[1]} {noun}", clause)
        return clause.replace(f"{speaker}'s ", "My ", 1) if clause.startswith(f"{speaker}'s ") else clause


def statements(lines: Sequence[TranscriptLine], words: int) -> list[HeardStatement]:
    """Return the users' statements in order, each of at most `words` words."""
    lines = [replace(line, speaker=" ".join(line.speaker.split()) or "User") for line in lines]
    speakers = frozenset(part for line in lines for part in (line.speaker, *line.speaker.split()))
    heard = _Heard(speakers, frozenset(name for line in lines for name in names(line.text)) - speakers)
    for number, line in enumerate(lines, 1):
        if line.role == "user" and line.text != REMOVED:
            heard.said += _of_message(number, line, words, heard)
        if line.role in ("user", "assistant"):
            _listen(number, line, heard)
    return heard.said


def _listen(number: int, line: TranscriptLine, heard: _Heard) -> None:
    last = ""
    for last in sentences(line.text):
        for found in pattern("{things}").finditer(last):
            heard.things = found[0].replace("my ", f"{line.speaker}'s ")
    if line.role == "assistant":
        heard.answered(line.text, number)
    heard.asker, heard.question = (line.speaker, last) if last.endswith("?") else ("", "")


def _people(sentence: str, speaker: str) -> Iterator[str]:
    for found in pattern("{person}").finditer(sentence):
        if found[1]:
            yield f"{speaker}'s {found[2]}"
        elif content(found[0].split()[0]) and not pattern("^{filler}").match(found[0]):
            yield found[0]


def _of_message(number: int, line: TranscriptLine, words: int, heard: _Heard) -> Iterator[HeardStatement]:
    for at, (lead, sentence) in enumerate(_joined(line.text, heard.speakers)):
        if _corrected(sentence, number, heard):
            continue
        answered = sentence if at else _answer(sentence, line, heard)
        for clause in clauses(answered):
            text = expanded(heard.explained(clause, line.speaker, number))
            kind = kind_of(text, lead, heard.speakers, heard.named)
            text = commanded(text) if kind == "rule" else text
            if kind in ("fact", "rule", "way") and complete(text, kind, first=not at):
                whose = _whose(kind, text, f"{lead}{sentence}")
                stated = _sentence(text, line)
                if len(stated.split()) <= words or kind != "fact":
                    yield HeardStatement(kind, cut_at_sentence(stated, words), (number,), whose)
            heard.mention(text, line.speaker, number)


def _whose(kind: Kind, clause: str, said: str) -> int:
    """Return whose a statement is; a rule is for all, whoever states it, unless it tells of somebody's life."""
    return 2 * says(clause, "personal") if kind == "rule" else personal(clause, said)


def _joined(text: str, speakers: frozenset[str]) -> list[tuple[str, str]]:
    """Return leads and sentences; a fragment that only says where or when completes the sentence before it."""
    said: list[tuple[str, str]] = []
    for lead, sentence in _said(text, speakers):
        if said and pattern("^(?:in|at|on|from|with) ").match(sentence) and not says(sentence, "verb"):
            before = said[-1][1].rstrip(".!")
            said[-1] = (said[-1][0], f"{before} {sentence[0].lower()}{sentence[1:]}")
        else:
            said.append((lead, sentence))
    return said


def _answer(sentence: str, line: TranscriptLine, heard: _Heard) -> str:
    """Expand a short answer: `What would you like to learn?` `Lofting.` → `I would like to learn lofting.`"""
    if heard.asker in ("", line.speaker) or says(sentence, "verb"):
        return sentence
    rest = sentence[0].lower() + sentence[1:]
    if asked := _ASKED.match(heard.question):
        return f"I {'would like to ' if asked[2] else ''}{asked[3]} {rest}"
    return (
        f"I spent {rest}" if pattern(r"^(?:{counts}|\d+) {unit} (?:in|at|with|as) ").match(rest) else sentence
    )


def _sentence(clause: str, line: TranscriptLine) -> str:
    text = third_person(dated(clause, line.time), line.speaker)
    return text[0].upper() + text[1:].rstrip(".!") + "."


def _corrected(sentence: str, number: int, heard: _Heard) -> bool:
    """Correct the last statement if this sentence corrects its value; return whether it does."""
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
    """Yield leads and sentences, without fillers, asides and the name of who is spoken to."""
    filler = pattern("^(?:{filler}(?:,? (?-i:[A-Z])[a-z]+)?[,.!]+ *|{linking},? )+")
    short = {name[:length] for name in speakers for length in range(3, len(name) + 1)}
    for sentence in sentences(text):
        bare = filler.sub("", pattern(",? ?{aside},?").sub("", sentence))
        lead = (pattern(r"^[^:\d]*{lead}[^:\d]*: ").match(bare) or [""])[0]
        bare = bare.removeprefix(lead)
        name, comma, rest = bare.partition(", ")
        bare = (rest if comma and name in short else bare).strip()
        if bare.strip(" .!"):
            yield lead, bare[0].upper() + bare[1:]


def third_person(text: str, name: str) -> str:
    """Put a sentence into the third person: `I moved my boat` → `Ann moved Ann's boat`."""
    short = name.split(maxsplit=1)[0]
    text = re.sub(rf"\b(?:I am|[Tt]his is) {re.escape(short)}\b[^,.]*(?:,| and) I\b", "I", text)
    text = re.sub(r"^We\b", lambda _: f"{name} and others", text)
    if UNNAMED.match(name) and (first := _OWN.search(text)):
        text = text[: first.end()] + _they(text[first.end() :])
    own = pattern(r"\b(?-i:I) ((?:{adverbs},? )*)([a-z][\w']*)")
    text = own.sub(lambda m: f"{name} {m[1]}{_third(m[2])}", text)
    text = re.sub(r"\b(?:[Mm]y own|[Mm]y|[Mm]ine|[Oo]urs?)\b", lambda _: f"{name}'s", text)
    text = re.sub(r"\b(?:I|[Mm]e|[Mm]yself)\b", lambda _: name, text)
    head, first, tail = text.partition(name)
    return head + first + tail.replace(name, short)


def _they(text: str) -> str:
    """Replace what the speaker says of themselves: `because I am going` → `because they are going`."""
    return pattern(r"\b(?-i:I)\b(?: (?:am|was)\b)?|\b(?:my own|myself|my|mine|ours?|me)\b").sub(
        lambda found: _THEY[found[0].lower()], text
    )


def expanded(text: str) -> str:
    """Write out `I'm`, `I've`, `we'll`, `gonna`."""
    text = re.sub(r"\b(I|[Ww]e)('m|'ve|'ll|'d|'re)\b", lambda m: m[1] + _SHORT[m[2]], text)
    return re.sub(r"\b(?:wanna|gonna|gotta)\b", lambda m: _SPOKEN[m[0]], text)


def commanded(text: str) -> str:
    """Turn what `we` do as a rule into an instruction: `If anybody asks, we never glue` → `Never glue`."""
    found = pattern(
        r"^(if anybody asks, )?(for [^,]{2,40}? )?we (?:now )?((?:never|always|only) )?([a-z]+)"
    ).match(text)
    if not found:
        return text
    words = [found[2], found[3], found[4], text[found.end() :]]
    said = "".join(f"{word.strip()}, " if word is found[2] else word for word in words if word)
    return said[0].upper() + said[1:]


def _third(verb: str) -> str:
    low = verb.lower()
    if low in _ODD or pattern("^{same_for_all}$").match(low):
        return _ODD.get(low, verb)
    return re.sub(r"(?<=[^aeiou])y$", "ie", verb) + ("es" if re.search(r"(?:s|sh|ch|x|z)$", low) else "s")
