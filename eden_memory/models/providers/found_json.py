"""JSON out of the answer of a model that could not be held to it."""

import re
from collections.abc import Iterator

import orjson

THOUGHT = re.compile(r"^\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)```", re.DOTALL)
STRING_OR_COMMA = re.compile(r'("(?:[^"\\]|\\.)*+(?:"|\\?\Z))|,(?=\s*[}\]])', re.DOTALL)
"""A string that is cut off matches to the end: else every quote in it would be tried as a beginning."""


def found_json(text: str) -> str:
    """The first whole JSON object in it, fences, thoughts and chatter around it left out; else the text as it is.

    A comma before a closing bracket is forgiven; what is cut off is never completed.
    """
    said = THOUGHT.sub("", text)
    for candidate in _candidates(said):
        if is_object(candidate):
            return candidate
        forgiven = STRING_OR_COMMA.sub(r"\1", candidate)
        if is_object(forgiven):
            return forgiven
    return text


def is_object(text: str) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _candidates(said: str) -> Iterator[str]:
    yield said.strip()
    for block in FENCED.finditer(said):
        yield block[1].strip()
    first, last = said.find("{"), said.rfind("}")
    if 0 <= first < last:
        yield said[first : last + 1]
