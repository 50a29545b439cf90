"""What the model server has been asked and what became of it."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class PromptTally:
    """One prompt, by its hash."""

    kind: str
    asked: int = 0
    answered: int = 0
    """Usable answers sent to a client that was there."""
    spoiled: int = 0
    """Answers sent that are of no use (truncated, refused, wrong)."""
    failed: int = 0
    abandoned: int = 0
    """The client went away before the answer."""


@dataclass(slots=True)
class Tally:
    """All counts."""

    calls: Counter[str] = field(default_factory=Counter[str])
    """Requests by kind; `embeddings` among them."""
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    """By kind: `answered`, `abandoned`, `refused` (by what is configured), or the fault's name."""
    prompts: dict[str, PromptTally] = field(default_factory=dict[str, PromptTally])
    input_tokens: int = 0
    """Of chats answered, spoiled ones included."""
    cached_tokens: int = 0
    output_tokens: int = 0
    embedding_tokens: int = 0
    texts: int = 0
    """Embedded."""
    running: int = 0
    most_at_once: int = 0

    def seen(self, prompt: str) -> int:
        """How often this prompt has come."""
        known = self.prompts.get(prompt)
        return known.asked if known else 0

    def begin(self, kind: str, prompt: str) -> None:
        """A request came."""
        self.calls[kind] += 1
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        self.prompts.setdefault(prompt, PromptTally(kind)).asked += 1

    def end(self, kind: str, prompt: str, outcome: str, *, sent: bool) -> None:
        """A request ended; `sent`: an answer went out."""
        self.running -= 1
        self.outcomes[kind][outcome] += 1
        known = self.prompts.setdefault(prompt, PromptTally(kind))
        known.answered += outcome == "answered"
        known.abandoned += outcome == "abandoned"
        known.spoiled += sent and outcome != "answered"
        known.failed += not sent and outcome not in ("answered", "abandoned")

    def counts(self) -> dict[str, Any]:
        """As JSON; `repeated` are prompts with several usable answers, but for those of checks."""
        return {
            "calls": dict(self.calls),
            "outcomes": {kind: dict(found) for kind, found in self.outcomes.items()},
            "input_tokens": self.input_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "embedding_tokens": self.embedding_tokens,
            "texts": self.texts,
            "running": self.running,
            "most_at_once": self.most_at_once,
            "repeated": {
                name: one.answered
                for name, one in self.prompts.items()
                if one.answered > 1 and one.kind != "check"
            },
        }
