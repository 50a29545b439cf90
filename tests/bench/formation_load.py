"""Conversations whose facts can be counted: every user message carries one marker of its own."""

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

from tests.bench.chat_load import WORDS
from tests.model_server.script import MARK, Asked, Said, default_script, of_all

WORDS_OF_A_MESSAGE = 28
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def mark(session: int, index: int) -> str:
    """The marker of one user message."""
    return f"MARK-{session:04d}{index:04d}"


def place_of(marker: str) -> tuple[int, int]:
    """Session and place of a marker."""
    digits = marker.removeprefix("MARK-")
    return int(digits[:-4]), int(digits[-4:])


def conversations(sessions: int, each: int, *, seed: int = 1) -> Iterator[dict[str, Any]]:
    """`each` messages of every session in turns, user and assistant alternating; one user a session."""
    dice = random.Random(seed)
    for index in range(each):
        for session in range(sessions):
            words: list[str] = dice.choices(
                WORDS, k=dice.randint(WORDS_OF_A_MESSAGE - 8, WORDS_OF_A_MESSAGE + 8)
            )
            user = index % 2 == 0
            if user:
                words[dice.randrange(4)] = mark(session, index)
            yield {
                "_id": f"m-{session:04d}-{index:04d}",
                "session_id": f"session-{session:04d}",
                "role": "user" if user else "assistant",
                "content": " ".join(words),
                "user_id": f"user-{session:04d}" if user else None,
                "created_at": BEGAN + timedelta(seconds=index),
            }


def staggered(load: Iterable[dict[str, Any]], sessions: int, window: int) -> list[dict[str, Any]]:
    """The same, each session a little later than the one before: their windows close one after the other."""

    def moment(message: dict[str, Any]) -> float:
        session, index = message["_id"].removeprefix("m-").split("-")
        return int(index) + int(session) * window / sessions

    return sorted(load, key=moment)


def hot_script(asked: Asked) -> Said:
    """Of the markers every second one is a fact of the agent, the others are the user's; the rest as usual."""
    answer = default_script(asked)
    if asked.kind != "facts" or not isinstance(answer, dict):
        return answer
    facts: list[dict[str, Any]] = answer["facts"]
    return {"facts": [_placed(fact) for fact in facts]}


def _placed(fact: dict[str, Any]) -> dict[str, Any]:
    """With codes in place of words where it is the agent's: words of a chat might be about somebody."""
    mark, _, around = fact["text"].partition(" was mentioned")
    codes = " ".join(f"w{crc32(word.encode()) % 9973}" for word in around.split())
    return {**fact, **({"scope": "agent", "text": of_all(mark, codes)} if hot(mark) else {"scope": "user"})}


def hot(text: str) -> bool:
    """Whether a marker in the text is one of the agent's facts."""
    found = MARK.search(text)
    return found is not None and place_of(found[0])[1] % 4 == 0
