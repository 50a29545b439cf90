"""JSON that a provider reads and writes: an answer's schema, and an answer's JSON out of what a model wrote."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

import orjson

from eden_memory.schemas.answers import ModelAnswer

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


Schema = dict[str, Any]


@lru_cache
def schema_of(answer: type[ModelAnswer]) -> Schema:
    """Without references, titles and the classes' descriptions: only what a model needs. Not to be changed."""
    schema = answer.model_json_schema()
    return cast(Schema, _plain(schema, schema.get("$defs", {})))


def _plain(part: Any, definitions: Schema) -> Any:
    if isinstance(part, list):
        return [_plain(item, definitions) for item in cast(list[Any], part)]
    if not isinstance(part, dict):
        return part
    found = cast(Schema, part)
    if "$ref" in found:
        return _plain(definitions[found["$ref"].rpartition("/")[2]], definitions)
    if "properties" in found:
        properties = {name: _plain(value, definitions) for name, value in found["properties"].items()}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    return {name: _plain(value, definitions) for name, value in found.items() if name != "title"}


@lru_cache
def described(answer: type[ModelAnswer]) -> str:
    """Return the instruction for a model that takes no schema."""
    schema = orjson.dumps(schema_of(answer)).decode()
    return (
        f"Answer with one JSON object ({answer.__name__}) and nothing else: no explanation, no code fence. "
        f"It must be valid against this JSON Schema:\n{schema}"
    )


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
