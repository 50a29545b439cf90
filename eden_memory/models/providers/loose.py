"""Reading JSON that a provider wrote: what is not of the kind expected counts as missing."""

import re
from typing import Any, cast

Body = dict[str, Any]
WORD = re.compile(r"[\w.\[\]-]{1,80}")


def object_of(value: object) -> Body:
    """A JSON object, else an empty one."""
    return cast(Body, value) if isinstance(value, dict) else {}


def objects_of(value: object) -> list[Body]:
    """The objects of a JSON array."""
    return (
        [cast(Body, item) for item in cast(list[Any], value) if isinstance(item, dict)]
        if isinstance(value, list)
        else []
    )


def text_of(value: object) -> str:
    """A string, else an empty one."""
    return value if isinstance(value, str) else ""


def word_of(value: object) -> str:
    """A code such as `model_not_found` or the path of a parameter; else, as it may quote what was sent, nothing."""
    return value if isinstance(value, str) and WORD.fullmatch(value) else ""


def count_of(value: object) -> int:
    """A whole number that is not negative, else 0."""
    return max(0, int(value)) if isinstance(value, (int, float)) else 0


def numbers_of(value: object) -> list[float]:
    """A JSON array of numbers, else an empty one."""
    return cast(list[float], value) if isinstance(value, list) else []
