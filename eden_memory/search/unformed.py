"""Find messages that are not formed yet by the words of a search. Pure."""

from collections.abc import Iterable, Sequence, Set

from eden_memory.memory.results import RecentMessage
from eden_memory.search.search_requests import FoundMessage

MOST_UNFORMED = 5
LEAST_SHARE = 0.34
"""Of a query's words: fewer say little of what was asked."""


def found_unformed(
    queries: Iterable[str], messages: Sequence[RecentMessage], most: int
) -> tuple[FoundMessage, ...]:
    """Return the messages that have the most words of any query, the newer of equal ones first."""
    from eden_memory.search.text_index import asked_words, stems_of  # noqa: PLC0415 - loads tantivy

    asked = [stems for query in queries if (stems := {word.stem for word in asked_words(query)})]
    scored = [(_share(asked, stems_of(message.content)), message) for message in messages]
    best = [(score, message) for score, message in scored if score >= LEAST_SHARE]
    best.sort(key=lambda pair: (pair[0], pair[1].said_at), reverse=True)
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
