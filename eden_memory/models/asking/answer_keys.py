"""Keys of stored answers: the hash of the question, the same in every process and at every attempt."""

import json
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256

from eden_memory.models.providers.answer_schema import schema_of
from eden_memory.models.question import Prompt
from eden_memory.schemas.answers import Answer

LAYOUT = "1"
"""Of the values that are hashed."""


def first_key(
    model: str,
    prompt: Prompt,
    answer: type[Answer],
    anew: int = 0,
    parameters: Mapping[str, str] | None = None,
) -> str:
    """SHA-256 of model, parameters, prompt and the answer's schema; `anew` asks past what is kept."""
    asked = [model, dict(parameters or {}), prompt.system, prompt.user, _schema(answer)]
    return _hash("chat", *asked, anew) if anew else _hash("chat", *asked)


def next_key(key: str, text: str) -> str:
    """Of what is asked after an answer fell short: it follows from that answer alone, not from the prompt."""
    return _hash("after", key, text)


def text_key(model: str, dimensions: int | None, text: str) -> str:
    """Of one text's vector."""
    return _hash("embeddings", model, dimensions, text)


@lru_cache(maxsize=64)
def _schema(answer: type[Answer]) -> str:
    return json.dumps(schema_of(answer), sort_keys=True)


def _hash(*values: object) -> str:
    text = json.dumps([LAYOUT, *values], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()
