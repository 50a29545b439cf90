"""Days and months that count from a message's time, written as dates."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from eden_memory.formation.offline.sentences import english, pattern, plain, says

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
