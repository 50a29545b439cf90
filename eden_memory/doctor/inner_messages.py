"""Messages that stand inside a field where no path leads to them: as JSON text, or several in a list. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from eden_memory.doctor.proposing import HALF, Proposal, propose
from eden_memory.doctor.sampled_fields import sampled_fields
from eden_memory.mongo.document_fields import getter

Row = Mapping[str, Any]
LONGEST = 100_000
"""Characters of a text that are looked at as JSON."""


def json_messages(documents: Sequence[Row], path: str) -> Proposal | None:
    """The fields of the messages that a text field holds as JSON; None where fewer than half of the texts do."""
    texts = [value for document in documents if isinstance(value := getter(path)(document), str) and value]
    found = [parsed for text in texts if (parsed := _parsed(text)) is not None]
    inner = propose(found)
    return inner if found and len(found) >= HALF * len(texts) and inner.content is not None else None


def listed_messages(documents: Sequence[Row]) -> tuple[str, Proposal] | None:
    """The path of a list that holds a session's messages, and their fields."""
    for field in sampled_fields(documents):
        items = [
            item for value in field.present if isinstance(value, list) for item in cast("list[Any]", value)
        ]
        rows = [cast("Row", item) for item in items if isinstance(item, Mapping)]
        inner = propose(rows)
        if inner.role is not None and inner.content is not None:
            return field.path, inner
    return None


def _parsed(text: str) -> Row | None:
    if len(text) > LONGEST or not text.lstrip().startswith("{"):
        return None
    try:
        return cast("Row", json.loads(text))
    except (ValueError, RecursionError):
        return None
