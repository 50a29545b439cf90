"""The prefixes of prompts that a provider still knows, and how many tokens of a new prompt they cover."""

import hashlib
from collections.abc import Iterator

import orjson

from tests.model_server.wire import CHARACTERS_A_TOKEN, CacheRule, Chat


class PromptCache:
    """Never forgets: runs are shorter than the minutes for which providers keep a prefix."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def cached(self, chat: Chat, rule: CacheRule) -> int:
        """Return the tokens of the longest known prefix."""
        found = 0
        for length, prefix in _prefixes(chat, rule):
            if prefix not in self._known:
                break
            found = length
        return found

    def remember(self, chat: Chat, rule: CacheRule) -> None:
        """Know the prompt from now on."""
        self._known.update(prefix for _, prefix in _prefixes(chat, rule))


def _prefixes(chat: Chat, rule: CacheRule) -> Iterator[tuple[int, bytes]]:
    """Yield the lengths in tokens at which a prefix ends, with its hash."""
    text = _read(chat).encode()
    digest = hashlib.sha256(chat.model.encode())
    hashed = 0
    for length in range(rule.least, len(text) // CHARACTERS_A_TOKEN + 1, rule.step):
        digest.update(text[hashed : length * CHARACTERS_A_TOKEN])
        hashed = length * CHARACTERS_A_TOKEN
        yield length, digest.digest()


def _read(chat: Chat) -> str:
    """Return all that the model reads, in its order: the schema stands before the instructions."""
    schema = orjson.dumps(chat.schema).decode() if chat.schema else ""
    return schema + chat.system + "".join(text for _, text in chat.turns)
