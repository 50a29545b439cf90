"""What a question says about time: the times that it names, and whether it is about the present or the past. Pure.

A phrase names a span, not a moment ("in May", "last week"), and a question names one or two at most; dateparser gives
moments, and finds dates in words that are none (docs/decisions/search.md).

The kind of a question is told by its vector: the difference between the means of examples of both kinds is a
direction. In one lie questions about the present, in another messages that ask for something about who writes them.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import exp

import numpy as np
from numpy.typing import NDArray

from eden_memory.models.question import Asking, Embedder
from eden_memory.search.fact_candidates import Scored, best_first

DAY = timedelta(days=1)

GRACE = timedelta(days=7)
"""People report an event within its span or soon after: the boost fades over the span's length, or this if longer."""


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

_NUMBERS = {
    **dict.fromkeys(("a", "an", "one"), 1),
    **dict(zip(_WORDS, range(2, 11), strict=True)),
    "a couple of": 2,
    "couple of": 2,
    "a few": 3,
    "few": 3,
    "several": 4,
}

_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}

_UNIT_DAYS = {"day": 1.0, "week": 7.0, "month": 30.44, "year": 365.25}


_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)

_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\b"

_YEAR = r"(?P<year>(?:19|20)\d\d)\b"

_COUNT = r"(?P<count>\d{1,3}|" + "|".join(sorted(_NUMBERS, key=len, reverse=True)) + r")"


@dataclass(frozen=True, slots=True)
class Span:
    """A span from `start` up to, not including, `end`."""

    start: datetime
    end: datetime

    def closeness(self, stated: datetime) -> float:
        """Return 1 for a time within the span, a lower value for a later one, 0 for an earlier one."""
        if stated < self.start:
            return 0.0
        late = max(0.0, (stated - self.end).total_seconds())
        return exp(-late / max(self.end - self.start, GRACE).total_seconds())


def spans_of(question: str, asked_at: datetime) -> tuple[Span, ...]:
    """Return the spans that a question names, in the order of the kinds below, in `asked_at`'s zone."""
    spans: list[Span] = []
    rest = question
    for pattern, read in _KINDS:
        for found in pattern.finditer(rest):
            span = _read(read, found, asked_at)
            if span is not None and span not in spans:
                spans.append(span)
        rest = pattern.sub(lambda match: " " * len(match.group()), rest)
    return tuple(spans)


def boost_dates(found: Sequence[Scored], spans: Sequence[Span], weight: float) -> list[Scored]:
    """(score + `weight` x closeness) / (1 + `weight`); nothing changes where no time is named."""
    if not spans or weight <= 0:
        return list(found)
    return best_first(
        scored.now("times", (scored.score + weight * close) / (1 + weight), close)
        for scored, close in ((scored, _closeness(scored, spans)) for scored in found)
    )


def _closeness(scored: Scored, spans: Sequence[Span]) -> float:
    stated = (scored.fact.said_at, scored.fact.valid_from)
    return max(span.closeness(moment) for span in spans for moment in stated)


def _read(
    read: Callable[[re.Match[str], datetime], Span], found: re.Match[str], asked_at: datetime
) -> Span | None:
    """Return the date; None if it does not exist (31 February, 1 month in year 0)."""
    try:
        return read(found, asked_at)
    except (ValueError, OverflowError):
        return None


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _one_day(moment: datetime) -> Span:
    return Span(_midnight(moment), _midnight(moment) + DAY)


def _months(year: int, month: int, count: int, asked_at: datetime) -> Span:
    start = _midnight(asked_at).replace(year=year, month=month, day=1)
    last = month - 1 + count
    return Span(start, start.replace(year=year + last // 12, month=last % 12 + 1))


def _number(month: str) -> int:
    return _MONTHS.index(month[:3].lower()) + 1


def _date(found: re.Match[str], asked_at: datetime) -> Span:
    """Return a day of a month; without a year, of the latest such month that has begun."""
    month = found["month"]
    number = int(month) if month.isdigit() else _number(month)
    year = int(found["year"]) if found["year"] else asked_at.year
    day = _midnight(asked_at).replace(year=year, month=number, day=int(found["day"]))
    return _one_day(day if found["year"] or day <= asked_at else day.replace(year=year - 1))


def _month(found: re.Match[str], asked_at: datetime) -> Span:
    month = found["month"]
    number = int(month) if month.isdigit() else _number(month)
    if found["year"]:
        return _months(int(found["year"]), number, 1, asked_at)
    return _months(asked_at.year - (number > asked_at.month), number, 1, asked_at)


def _year(found: re.Match[str], asked_at: datetime) -> Span:
    return _months(int(found["year"]), 1, 12, asked_at)


def _near_day(found: re.Match[str], asked_at: datetime) -> Span:
    back = {"yesterday": 1, "day before yesterday": 2}.get(found["word"].lower(), 0)
    return _one_day(asked_at - back * DAY)


def _ago(found: re.Match[str], asked_at: datetime) -> Span:
    """Return the span so many units ago, give or take half a unit."""
    count, unit = _counted(found["count"]), _UNIT_DAYS[found["unit"].lower()]
    if unit == 1:
        return _one_day(asked_at - count * DAY)
    middle, half = asked_at - timedelta(days=count * unit), timedelta(days=unit / 2)
    return Span(_midnight(middle - half), _midnight(middle + half) + DAY)


def _past(found: re.Match[str], asked_at: datetime) -> Span:
    days = _counted(found["count"] or "1") * _UNIT_DAYS[found["unit"].lower()]
    return Span(_midnight(asked_at - timedelta(days=days)), asked_at + DAY)


def _counted(word: str) -> int:
    return int(word) if word.isdigit() else _NUMBERS[" ".join(word.lower().split())]


def _unit(found: re.Match[str], asked_at: datetime) -> Span:
    """Return the last or this week, month or year, by the calendar."""
    back = found["which"].lower() in {"last", "previous"}
    if found["unit"].lower() == "week":
        monday = _midnight(asked_at) - asked_at.weekday() * DAY - (7 * DAY if back else 0 * DAY)
        return Span(monday, monday + 7 * DAY)
    if found["unit"].lower() == "weekend":
        saturday = _midnight(asked_at) - (asked_at.weekday() + (2 if back else -5)) * DAY
        return Span(saturday, saturday + 2 * DAY)
    if found["unit"].lower() == "year":
        return _months(asked_at.year - back, 1, 12, asked_at)
    months = asked_at.year * 12 + asked_at.month - 1 - back
    return _months(months // 12, months % 12 + 1, 1, asked_at)


def _weekday(found: re.Match[str], asked_at: datetime) -> Span:
    """Return the latest such day before the day of the question."""
    wanted = _DAYS.index(found["weekday"][:3].lower())
    return _one_day(asked_at - ((asked_at.weekday() - wanted - 1) % 7 + 1) * DAY)


def _season(found: re.Match[str], asked_at: datetime) -> Span:
    """Return a season of the northern hemisphere: the latest that has begun, with `last` one that is over."""
    first, year = _SEASONS[found["season"].lower()], int(found["year"] or asked_at.year)
    span = _months(year, first, 3, asked_at)
    over = (found["which"] or "").lower() in {"last", "previous"}
    late = span.end > asked_at if over else span.start > asked_at
    return span if found["year"] or not late else _months(year - 1, first, 3, asked_at)


def _kind(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_KINDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], datetime], Span]], ...] = (
    (_kind(rf"\b{_YEAR}-(?P<month>[01]\d)-(?P<day>[0-3]\d)(?!\d)"), _date),
    (_kind(rf"\b{_YEAR}-(?P<month>[01]\d)(?![\d-])"), _month),
    (_kind(rf"\b{_MONTH}\s+(?:the\s+)?{_DAY}(?:,?\s+{_YEAR})?"), _date),
    (_kind(rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR})?"), _date),
    (_kind(rf"\b{_MONTH},?\s+(?:of\s+)?{_YEAR}"), _month),
    (
        _kind(
            rf"\b(?P<which>last|previous|this|in|during)?\s*(?:the\s+)?\b(?P<season>{'|'.join(_SEASONS)})\s+(?:of\s+)?{_YEAR}"
        ),
        _season,
    ),
    (
        _kind(rf"\b(?P<which>last|previous|this)\s+(?P<season>{'|'.join(_SEASONS)})\b(?P<year>(?!))?"),
        _season,
    ),
    (
        _kind(
            rf"\b(?:in|during|since|last|this|by|of|until)\s+{_MONTH}(?!\s+(?:i|we|you|have)\b)(?P<year>(?!))?"
        ),
        _month,
    ),
    (_kind(rf"\b(?:in|during|since|of|year|before|after|by|until)\s+{_YEAR}"), _year),
    (
        _kind(
            r"\b(?P<word>day before yesterday|yesterday|today|tonight|this (?:morning|afternoon|evening))\b"
        ),
        _near_day,
    ),
    (_kind(rf"\b{_COUNT}\s+(?P<unit>day|week|month|year)s?\s+(?:ago|before|earlier|back)\b"), _ago),
    (_kind(rf"\b(?:the\s+)?(?:last|past)\s+{_COUNT}\s+(?P<unit>day|week|month|year)s?\b"), _past),
    (_kind(r"\bthe\s+past\s+(?P<unit>week|month|year)\b(?P<count>(?!))?"), _past),
    (_kind(r"\b(?P<which>last|previous|this)\s+(?P<unit>weekend|week|month|year)\b"), _unit),
    (
        _kind(r"\b(?:last|on|this|past)\s+(?P<weekday>(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"),
        _weekday,
    ),
)


PRESENT_AND_PAST = (
    ("Where do I live?", "Where did I live before?"),
    ("What is Nora's job?", "What did Nora do after work?"),
    ("Which doctor does Ben see?", "Which doctor did Ben meet at the party?"),
    ("What phone do I have?", "What was my first phone?"),
    ("How often does Nora swim?", "When did Nora go swimming?"),
    ("Who is my landlord?", "What did the landlord say?"),
    ("How many books have I read?", "What did I think of the book?"),
    ("When is Ben's meeting?", "What happened at Ben's meeting?"),
    ("How much does it cost?", "How much did it cost at first?"),
    ("What is the score?", "How did the match go?"),
    ("Which car does Ben drive?", "Which car did Ben drive back then?"),
    ("Where are my keys?", "Where did they find the keys?"),
    ("Where does Ben work?", "Why did Ben leave his first job?"),
    ("What is my favourite dish?", "What did I cook that evening?"),
    ("Which school does my son attend?", "What did my son learn at school?"),
    ("How long is my way to work?", "What happened on the way to work?"),
    ("Who is Nora's boss?", "What did Nora's boss think of the plan?"),
    ("How many plants do I have?", "Which plants did I like as a child?"),
    ("When does the shop open?", "What did I buy when the shop opened?"),
    ("Where am I going this summer?", "How was the summer holiday?"),
    ("What is the deadline?", "Why was the deadline a problem?"),
    ("Where is the bike?", "Where was the bike originally?"),
    ("How far have I got with the book?", "What was the book about?"),
    ("What is the name of the project?", "What was the project called in the beginning?"),
)
"""Otherwise alike: about how things are, and about what was."""

OWN_AND_OTHER = (
    ("What is my phone number?", "Thank you!"),
    ("Where do I keep the tools?", "Great, that works."),
    ("Who cuts my hair?", "Hello there"),
    ("Do I take sugar in my coffee?", "What is the capital of Spain?"),
    ("Which insurance do I have?", "Write a story about a dragon."),
    ("When is my exam?", "How does a vaccine work?"),
    ("What does my wife do at work?", "Fix the spelling of this sentence."),
    ("Remind me what I ordered.", "What is 40 divided by 8?"),
    ("Pick a film that I would like.", "Translate this into Italian."),
    ("Is this menu all right for me?", "Make it longer."),
    ("How old is my nephew?", "Go on."),
    ("What should I know before Ben visits?", "Yes, please."),
    ("Can my dog eat that?", "No, not that one."),
    ("What did I say about the trip?", "Give me a list of ten animals."),
    ("Will I be at home on Sunday?", "Who wrote Hamlet?"),
    ("Which size do I wear?", "What does the error 404 mean?"),
    ("Did we decide on the venue?", "Explain recursion."),
    ("How much did my bike cost?", "Good night!"),
    ("Plan a dinner that my family can eat.", "Why do leaves fall in autumn?"),
    ("Should I take the stairs, with my back?", "How many grams are in a pound?"),
    ("Wie heißt mein Kollege?", "Vielen Dank!"),
    ("Wann ist mein Termin?", "Hallo!"),
    ("Was mag meine Frau nicht?", "Was ist die Hauptstadt von Italien?"),
    ("Welche Größe habe ich?", "Erkläre mir, was ein Atom ist."),
    ("Darf ich das essen?", "Schreib eine Geschichte."),
    ("Wo sind meine Schlüssel?", "Weiter."),
    ("¿Cuál es mi número?", "Muchas gracias"),
    ("¿Cuándo es mi cita?", "Hola"),
    ("¿Qué le gusta a mi hijo?", "¿Quién escribió Don Quijote?"),
    ("¿Puedo comer esto?", "Escribe un cuento."),
    ("Quelle est ma taille ?", "Merci beaucoup"),
    ("Quand est mon rendez-vous ?", "Salut"),
    ("Qu'est-ce que ma femme n'aime pas ?", "Qui a peint la Joconde ?"),
    ("Est-ce que je peux manger ça ?", "Écris une histoire."),
    ("Qual è il mio numero?", "Ciao!"),
    ("Quando ho l'appuntamento?", "Chi ha scritto la Divina Commedia?"),
    ("Onde deixei a carteira?", "Obrigada"),
    ("Quando é a minha consulta?", "Escreve uma história."),
)
"""A message that asks for something about who writes it, and one that asks for nothing remembered."""


@dataclass(frozen=True, slots=True)
class _Direction:
    """From the second kind of the examples to the first."""

    towards: NDArray[np.float64]
    middle: float
    half: float

    def of(self, vector: bytes) -> float:
        asked = _of_length_one(np.frombuffer(vector, "<f4").astype(float))
        return float(np.clip((asked @ self.towards - self.middle) / self.half, -1, 1))


class QuestionKind:
    """Tells two kinds of questions apart by pairs of examples, which it embeds once, at the first question."""

    def __init__(self, embedder: Embedder, examples: Sequence[tuple[str, str]]) -> None:
        self._embedder, self._examples = embedder, examples
        self._lock = asyncio.Lock()
        self._direction: _Direction | None = None

    async def of(self, vectors: Sequence[bytes], asking: Asking | None = None) -> float:
        """Return the least of the questions', from -1 (the second kind) to 1; 0 if there are no vectors."""
        if not vectors:
            return 0.0
        async with self._lock:
            if self._direction is None:
                self._direction = await self._learned(asking)
        return min(map(self._direction.of, vectors))

    async def _learned(self, asking: Asking | None) -> _Direction:
        texts = [question for example in self._examples for question in example]
        made = await self._embedder.embed(texts, asking)
        rows = np.stack(
            [_of_length_one(np.frombuffer(example.vector, "<f4").astype(float)) for example in made]
        )
        first, second = rows[::2], rows[1::2]
        towards = (first - second).mean(0)
        above, below = float((first @ towards).mean()), float((second @ towards).mean())
        return _Direction(towards, (above + below) / 2, max((above - below) / 2, 1e-9))


def _of_length_one(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows / max(float(np.linalg.norm(rows)), 1e-9)
