"""The JSON Schema of an answer, as providers take it, and in words for models that take none."""

from functools import lru_cache
from typing import Any, cast

import orjson

from eden_memory.schemas.answers import Answer

Schema = dict[str, Any]


@lru_cache
def schema_of(answer: type[Answer]) -> Schema:
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
def described(answer: type[Answer]) -> str:
    """Return the instruction for a model that takes no schema."""
    schema = orjson.dumps(schema_of(answer)).decode()
    return (
        f"Answer with one JSON object ({answer.__name__}) and nothing else: no explanation, no code fence. "
        f"It must be valid against this JSON Schema:\n{schema}"
    )
