"""The answers of one question in the order in which they were asked for."""

from collections.abc import Iterable, Mapping, Sequence

from eden_memory.models.asking import repair
from eden_memory.models.asking.answer_keys import next_key
from eden_memory.models.asking.judging import TRUNCATED
from eden_memory.schemas.documents import Answer


def exhausted(chain: Sequence[Answer]) -> bool:
    """Whether no valid answer is among them and none can be asked for."""
    judged = sum(one.invalid not in (None, TRUNCATED) for one in chain)
    spent = judged >= repair.INVALID or len(chain) >= repair.CALLS
    return spent and all(one.invalid is not None for one in chain)


def chain_of(found: Mapping[str, Answer]) -> list[Answer]:
    """A unit's answers in the order in which they were asked for, from the earliest first one on."""
    following = {next_key(one.id, one.text or ""): one.id for one in found.values()}
    starts = _oldest(one for one in found.values() if one.id not in following)
    chain = starts[:1]
    while chain and (after := found.get(next_key(chain[-1].id, chain[-1].text or ""))) is not None:
        chain.append(after)
    return chain


def _oldest(answers: Iterable[Answer]) -> list[Answer]:
    return sorted(answers, key=lambda one: (one.answered_at, one.id))
