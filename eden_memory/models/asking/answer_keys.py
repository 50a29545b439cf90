"""Keys of stored answers, the same in every process and at every attempt, and the order that follows from them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256

from eden_memory.models.asking.judging import CALLS, MOST_INVALID, TRUNCATED
from eden_memory.models.providers.provider_json import schema_of
from eden_memory.models.question import Prompt
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.schemas.documents import Answer

LAYOUT = "1"
"""Of the values that are hashed."""


def first_key(
    model: str,
    prompt: Prompt,
    answer: type[ModelAnswer],
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
def _schema(answer: type[ModelAnswer]) -> str:
    return json.dumps(schema_of(answer), sort_keys=True)


def _hash(*values: object) -> str:
    text = json.dumps([LAYOUT, *values], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def exhausted(chain: Sequence[Answer]) -> bool:
    """Whether no valid answer is among them and none can be asked for."""
    judged = sum(answer.invalid not in (None, TRUNCATED) for answer in chain)
    spent = judged >= MOST_INVALID or len(chain) >= CALLS
    return spent and all(answer.invalid is not None for answer in chain)


def chain_of(found: Mapping[str, Answer]) -> list[Answer]:
    """A unit's answers in the order in which they were asked for, from the earliest first one on."""
    following = {next_key(answer.id, answer.text or ""): answer.id for answer in found.values()}
    starts = _oldest(answer for answer in found.values() if answer.id not in following)
    chain = starts[:1]
    while chain and (after := found.get(next_key(chain[-1].id, chain[-1].text or ""))) is not None:
        chain.append(after)
    return chain


def _oldest(answers: Iterable[Answer]) -> list[Answer]:
    return sorted(answers, key=lambda answer: (answer.answered_at, answer.id))
