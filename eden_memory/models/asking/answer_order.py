"""The answers of one question in the order in which they were asked for."""

from collections.abc import Iterable, Mapping, Sequence

from eden_memory.models.asking import repair
from eden_memory.models.asking.answer_keys import next_key
from eden_memory.models.asking.judging import TRUNCATED
from eden_memory.schemas.documents import Answer


def exhausted(chain: Sequence[Answer]) -> bool:
    """Whether no valid answer is among them and none can be asked for."""
    judged = sum(answer.invalid not in (None, TRUNCATED) for answer in chain)
    spent = judged >= repair.INVALID or len(chain) >= repair.CALLS
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
