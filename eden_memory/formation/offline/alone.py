"""Make sentences stand alone: the speaker in place of I and my, dates in place of yesterday and 29 May."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from eden_memory.formation.offline.sentences import english, pattern, plain, says

_SHORT = {"'m": " am", "'ve": " have", "'ll": " will", "'d": " would", "'re": " are"}
_ODD = {"am": "is", "have": "has", "do": "does", "don't": "doesn't", "haven't": "hasn't", "go": "goes"}
UNNAMED = re.compile(r"User(?: \d+)?$")
"""The name of a speaker without one, which has no shorter form."""
_AHEAD = {"today": 0, "tonight": 0, "this": 0, "tomorrow": 1, "next": 1}
"""Units from now; what else is said is one back."""


def third_person(text: str, name: str) -> str:
    """Put a sentence into the third person: `I moved my boat` → `Ann moved Ann's boat`."""
    short = name.split(maxsplit=1)[0]
    text = re.sub(rf"\b(?:I am|[Tt]his is) {re.escape(short)}\b[^,.]*(?:,| and) I\b", "I", text)
    own = pattern(r"\b(?-i:I) ((?:{adverbs},? )*)([a-z][\w']*)")
    text = own.sub(lambda m: f"{name} {m[1]}{_third(m[2])}", text)
    text = re.sub(r"\b(?:[Mm]y own|[Mm]y|[Mm]ine|[Oo]urs?)\b", lambda _: f"{name}'s", text)
    text = re.sub(r"\b(?:I|[Mm]e|[Mm]yself)\b", lambda _: name, text)
    head, first, tail = text.partition(name)
    if UNNAMED.match(name):
        return head + first + tail.replace(f"{name}'s", "their")
    return head + first + tail.replace(name, short)


def expanded(text: str) -> str:
    """Write out `I'm`, `I've`, `we'll`."""
    return re.sub(r"\b(I|[Ww]e)('m|'ve|'ll|'d|'re)\b", lambda m: m[1] + _SHORT[m[2]], text)


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


def dated(text: str, time: datetime) -> str:
    """Write days and months that count from the message's time as dates; add a year where one is meant."""
    past, yearly = bool(pattern("{past}").search(text)), says(text, "yearly")

    def year(month: str, day: int = 15) -> str:
        return "" if yearly else f" {_year_of(time, month, day, past=past)}"

    weekday = (
        r"\b(on|last|next|this|by|until) ({days})(?! (?:the )?\d)(?=(?: [a-z]+(?<!of)(?<!s)\b|[^\w\s]|$))"
    )
    steps: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
        (r"\b(\d\d?|an?|one|{counts}) ({unit}) ago\b", lambda m: _span(m[2], f"-{plain(m[1])}", time)),
        (r"\b(?:on )?(yesterday|last night|today|tonight|tomorrow)\b", lambda m: _span("day", m[1], time)),
        (weekday, lambda m: _weekday(m[1].lower(), m[2], time, past)),
        (r"\b(?:{since} )?(last|this|next) ({unit})\b", lambda m: _span(m[2], m[1], time)),
        (r"\bin ({months})\b(?! \d)", lambda m: f"in {m[1]}{year(m[1])}"),
        (r"\b({months}) (\d\d?)(?:st|nd|rd|th)?\b(?!:|\.\d)", lambda m: f"{m[2]} {m[1]}"),
        (
            r"\b(\d\d?)(?:st|nd|rd|th)?(?: of)? ({months})(?!,? \d{4})",
            lambda m: f"{m[1]} {m[2]}{year(m[2], int(m[1]))}",
        ),
    )
    for template, said in steps:
        text = pattern(template).sub(said, text)
    return text


def _span(unit: str, away: str, time: datetime) -> str:
    """Return the day, the Monday of the week, the month or the year so many units away from the time."""
    steps = int(away) if re.fullmatch(r"-\d+", away) else _AHEAD.get(away.lower(), -1)
    spans = {
        "day": f"on {_day(time + timedelta(steps))}",
        "week": f"in the week of {_day(time + timedelta(7 * steps - time.weekday()))}",
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


def _year_of(time: datetime, month: str, day: int = 15, *, past: bool) -> int:
    """Return the year that brings the date nearest; a past sentence prefers the past."""
    months = english()["months"].index(month.lower()) + 1 - time.month + (day - time.day) / 31
    ahead, back = months % 12, -months % 12
    return time.year + round(((ahead if ahead <= back * (0.5 if past else 6) else -back) - months) / 12)
