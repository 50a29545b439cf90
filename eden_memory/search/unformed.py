"""Find messages that are not formed yet by the words of a search."""

from collections.abc import Iterable, Sequence, Set
from functools import partial

from eden_memory.memory.results import RecentMessage
from eden_memory.search.search_requests import FoundMessage
from eden_memory.task_ending import off_the_loop

Scored = tuple[float, RecentMessage]
MOST_UNFORMED = 5
FEW_CHARACTERS = 10_000
"""Looked through in a millisecond."""
TOGETHER = 20
"""Messages that are looked through in one turn of the thread, which others wait for, too."""
LEAST_SHARE = 0.34
"""Of a query's words: fewer say little of what was asked."""


async def find_unformed(
    queries: Iterable[str], messages: Sequence[RecentMessage], most: int
) -> tuple[FoundMessage, ...]:
    """As :func:`found_unformed`, beside the event loop where there is much to read."""
    asked, found = list(queries), list[Scored]()
    if sum(len(message.content) for message in messages) <= FEW_CHARACTERS:
        return found_unformed(asked, messages, most)
    for start in range(0, len(messages), TOGETHER):
        found += await off_the_loop(partial(_scored, asked, messages[start : start + TOGETHER]))
    return _best(found, most)


def found_unformed(
    queries: Iterable[str], messages: Sequence[RecentMessage], most: int
) -> tuple[FoundMessage, ...]:
    """Return the messages that have the most words of any query, the newer of equal ones first."""
    return _best(_scored(queries, messages), most)


def _scored(queries: Iterable[str], messages: Iterable[RecentMessage]) -> list[Scored]:
    from eden_memory.search.text_index import asked_words, stems_of  # noqa: PLC0415 - loads tantivy

    asked = [stems for query in queries if (stems := {word.stem for word in asked_words(query)})]
    scored = ((_share(asked, stems_of(message.content)), message) for message in messages)
    return [(score, message) for score, message in scored if score >= LEAST_SHARE]


def _best(found: Iterable[Scored], most: int) -> tuple[FoundMessage, ...]:
    best = sorted(found, key=lambda pair: (pair[0], pair[1].said_at), reverse=True)
    return tuple(_found(message, score) for score, message in best[: min(most, MOST_UNFORMED)])


def _share(asked: Sequence[set[str]], stems: Set[str]) -> float:
    return max((len(words & stems) / len(words) for words in asked), default=0.0)


def _found(message: RecentMessage, score: float) -> FoundMessage:
    return FoundMessage(
        message_id=message.message_id,
        session_id=message.session_id,
        speaker=message.speaker,
        content=message.content,
        said_at=message.said_at,
        score=score,
    )
