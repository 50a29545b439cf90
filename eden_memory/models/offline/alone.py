"""Makes a sentence stand alone: who speaks in place of I and my, days in place of yesterday and 29 May."""

import re
from datetime import datetime, timedelta

from eden_memory.models.offline.words import english, pattern, plain

_SHORT = {"'m": " am", "'ve": " have", "'ll": " will", "'d": " would", "'re": " are"}
_ODD = {"am": "is", "have": "has", "do": "does", "don't": "doesn't", "haven't": "hasn't", "go": "goes"}
_AWAY = {"yesterday": -1, "last night": -1, "today": 0, "tonight": 0, "tomorrow": 1}
_UNITS = {"day": 1.0, "week": 7.0, "month": 30.44, "year": 365.25}


def third_person(text: str, name: str) -> str:
    """What somebody says of himself, as one says it of him: `I moved my boat` → `Ann moved Ann's boat`."""
    text = re.sub(r"\b(I|[Ww]e)('m|'ve|'ll|'d|'re)\b", lambda m: m[1] + _SHORT[m[2]], text)
    text = re.sub(
        rf"\b(?:I am|[Tt]his is) {re.escape(name.split(maxsplit=1)[0])}\b[^,.]*(?:,| and) I\b", "I", text
    )
    text = pattern(r"\b(?-i:I) ((?:{adverbs},? )*)([a-z][\w']*)").sub(
        lambda m: f"{name} {m[1]}{_third(m[2])}", text
    )
    for found, said in (
        (r"\bof us\b", "of them"),
        (r"\b(?:my own|my|mine|ours?)\b", f"{name}'s"),
        (r"\b(?:(?-i:I)|me|myself)\b", name),
        (r"\b(?:we|(?-i:us))\b", f"{name} and others"),
    ):
        text = pattern(found).sub(lambda _, said=said: said, text)
    head, first, tail = text.partition(name)
    return head + first + tail.replace(name, name.split(maxsplit=1)[0])


def _third(verb: str) -> str:
    low = verb.lower()
    if low in _ODD or pattern("^{same_for_all}$").match(low):
        return _ODD.get(low, verb)
    if re.search(r"(?:s|sh|ch|x|z)$", low):
        return f"{verb}es"
    return re.sub(r"(?<=[^aeiou])y$", "ie", verb) + "s"


def dated(text: str, time: datetime) -> str:
    """Days and months that count from the message's time, by their dates; a year where one is missing."""
    past = bool(pattern("{past}").search(text))
    text = pattern(r"\b(\d+|an?|one|{counts}) (day|week|month|year)s? ago\b").sub(
        lambda m: _ago(m, time), text
    )
    for word, days in _AWAY.items():
        text = re.sub(rf"\b(?:on )?{word}\b", f"on {_day(time + timedelta(days))}", text, flags=re.I)
    text = pattern(
        r"\b(on|last|next|this|by|until) ({days})(?! (?:the )?\d)(?= (?:\W|[a-z]+(?<!of)(?<!s)\b)|[,.;:!?]|$)"
    ).sub(lambda m: _weekday(m[1].lower(), m[2], time, past), text)
    text = pattern(r"\b(?:(?:in|from|since|of|until|by) )?(last|this|next) (week|month|year)\b").sub(
        lambda m: _period(m[1].lower(), m[2].lower(), time), text
    )
    text = pattern(r"\b({months}) (\d{1,2})(?:st|nd|rd|th)?\b(?!:|\.\d)").sub(r"\2 \1", text)
    text = pattern(r"\b(\d{1,2})(?:st|nd|rd|th)?(?: of)? ({months})(?!,? \d{4})").sub(
        lambda m: f"{m[1]} {m[2]} {_year(time, m[2], int(m[1]), past)}", text
    )
    return pattern(r"\b(in|since|of|until|by) (?=(?-i:[A-Z]))({months})(?!,? \d)").sub(
        lambda m: f"{m[0]} {_year(time, m[2], 15, past)}", text
    )


def _day(day: datetime) -> str:
    return f"{day.day} {day:%B %Y}"


def _ago(found: re.Match[str], time: datetime) -> str:
    count, unit = plain(found[1]), found[2].lower()
    then = time - timedelta(_UNITS[unit] * min(int(count) if count.isdigit() else 1, 99))
    return (
        f"in {then.year}" if unit == "year" else f"in {then:%B %Y}" if unit == "month" else f"on {_day(then)}"
    )


def _weekday(how: str, day: str, time: datetime, past: bool) -> str:
    ahead = (english()["days"].index(day.lower()) - time.weekday()) % 7
    back = how == "last" or (how == "on" and past)
    then = time + timedelta(ahead - 7 if back else ahead or 7)
    return f"{how if how in ('by', 'until') else 'on'} {day} {_day(then)}"


def _period(how: str, unit: str, time: datetime) -> str:
    step = ("last", "this", "next").index(how) - 1
    if unit == "week":
        return f"in the week of {_day(time + timedelta(7 * step - time.weekday()))}"
    return (
        f"in {time.year + step}"
        if unit == "year"
        else f"in {time.replace(day=15) + timedelta(30 * step):%B %Y}"
    )


def _year(time: datetime, month: str, day: int, past: bool) -> int:
    """The year that brings the date nearest; a side that the sentence does not speak of counts as farther."""
    months = english()["months"].index(month.lower()) + 1 - time.month + (day - time.day) / 31
    ahead, back = months % 12, -months % 12
    return time.year + round(((ahead if ahead <= back * (0.5 if past else 6) else -back) - months) / 12)
