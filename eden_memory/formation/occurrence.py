"""When something happened, apart from when it was said: only where a fact's own text says so. Pure."""

import re
import unicodedata
from datetime import UTC, datetime

_BEGINS = re.compile(r"(\d{4})(?:-\d\d(?:-\d\d(?:[T ]\d\d:\d\d\S*)?)?)?", re.ASCII)
_PADDED = {len("2026"): "-01-01", len("2026-03"): "-01"}


def occurrence(answer: str | None, text: str) -> datetime | None:
    """Return the moment that an ISO date, month, year or interval begins with, in UTC.

    Dates in a text are local: an offset is left out, so that the year stays that of the text. None for anything
    else, and for a year that the text does not name: a model invents dates.
    """
    begins = _BEGINS.fullmatch((answer or "").partition("/")[0].strip())
    if begins is None or not names_year(text, int(begins[1])):
        return None
    try:
        return datetime.fromisoformat(begins[0] + _PADDED.get(len(begins[0]), "")).replace(tzinfo=UTC)
    except ValueError:
        return None


def still_said(text: str, *moments: datetime | None) -> datetime | None:
    """Return the first of the moments whose year a text still names."""
    return next((moment for moment in moments if moment and names_year(text, moment.year)), None)


def names_year(text: str, year: int) -> bool:
    """Return whether a text names a year, in whatever digits it writes."""
    plain = "".join(str(unicodedata.decimal(character, character)) for character in text)
    return re.search(rf"(?<!\d){year:04}(?!\d)", plain) is not None
