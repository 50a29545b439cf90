"""MongoDB's `$jsonSchema` of a collection, from the model of its documents, and indexes as stores declare them."""

from collections.abc import Mapping
from typing import Any, cast

from pymongo import ASCENDING, DESCENDING, IndexModel

from eden_memory.schemas.documents import (
    Consolidated,
    Document,
    Fact,
    ForgottenMark,
    Reflection,
    Snapshot,
    StoredBlob,
    Stream,
)

Schema = dict[str, Any]

VALIDATED: tuple[type[Document], ...] = (
    Fact,
    Reflection,
    Consolidated,
    StoredBlob,
    Snapshot,
    ForgottenMark,
    Stream,
)
"""Collections in which every document is of one model."""
BY_HAND: frozenset[type[Document]] = frozenset({Stream})
"""Collections that people write: a misspelt field is refused by name rather than ignored."""
MONEY = r"^[0-9]+(\.[0-9]{1,12})?$"
TYPES = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "bool",
    "object": "object",
    "array": "array",
    "null": "null",
}
"""Numbers of any kind: a shell writes 5 as a double."""


Indexes = Mapping[str, tuple[IndexModel, ...]]
"""Indexes by collection, without prefix."""


def validator_of(document: type[Document]) -> Schema:
    """Return a validator that refuses documents no reader could read, and unknown fields in documents of people."""
    schema = document.model_json_schema(mode="validation", by_alias=True)
    closed = {"additionalProperties": False} if document in BY_HAND else {}
    return {"$jsonSchema": _of(schema, schema.get("$defs", {})) | closed}


def _of(node: Schema, shared: Schema) -> Schema:
    if "$ref" in node:
        return _of(shared[node["$ref"].rpartition("/")[2]], shared)
    if "anyOf" in node:
        return _any([_of(option, shared) for option in node["anyOf"]])
    if "enum" in node or "const" in node:
        return {"enum": node.get("enum", [node.get("const")])}
    found = _typed(node)
    if node.get("type") == "object" and "properties" in node:
        found["properties"] = {name: _of(field, shared) for name, field in node["properties"].items()}
        if node.get("required"):
            found["required"] = node["required"]
    if isinstance(node.get("items"), dict):
        found["items"] = _of(cast(Schema, node["items"]), shared)
    return found | {name: node[name] for name in ("minimum", "maxItems") if name in node}


def _typed(node: Schema) -> Schema:
    """The type as the driver stores it: dates, binary vectors and decimals are text in JSON only."""
    if node.get("format") == "date-time":
        return {"bsonType": "date"}
    if node.get("contentEncoding") == "base64":
        return {"bsonType": "binData"}
    if node.get("pattern") == MONEY:
        return {"bsonType": "decimal"}
    return {"bsonType": TYPES[node["type"]]} if "type" in node else {}


def _any(found: list[Schema]) -> Schema:
    """One of several; that a value may be missing is said in its type."""
    null = {"bsonType": "null"}
    others = [schema for schema in found if schema != null]
    if len(others) != 1 or null not in found:
        return {"anyOf": found}
    (only,) = others
    if "enum" in only:
        return {"enum": [*only["enum"], None]}
    return {**only, "bsonType": [only["bsonType"], "null"]} if "bsonType" in only else {}


def index_on(*fields: str, **options: Any) -> IndexModel:
    """Return an index: ascending, or descending for a name with a minus."""
    keys = [(field.lstrip("-"), DESCENDING if field.startswith("-") else ASCENDING) for field in fields]
    return IndexModel(keys, **options)
