"""Whether a question is about the present or the past, by its vector: in any language that the embedder knows.

Each example has a question about how things are and one about what was, otherwise alike. The difference between the
two, on average over all examples, is the direction in which questions about the present lie.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eden_memory.models.question import Asking, Embedder

EXAMPLES = (
    ("Where do I live?", "Where did I live before?"),
    ("What is Nora's job?", "What did Nora do after work?"),
    ("Which doctor does Ben see?", "Which doctor did Ben meet at the party?"),
    ("What phone do I have?", "What was my first phone?"),
    ("How often does Nora swim?", "When did Nora go swimming?"),
    ("Who is my landlord?", "What did the landlord say?"),
    ("How many books have I read?", "What did I think of the book?"),
    ("When is Ben's meeting?", "What happened at Ben's meeting?"),
    ("How much does it cost?", "How much did it cost at first?"),
    ("What is the score?", "How did the match go?"),
    ("Which car does Ben drive?", "Which car did Ben drive back then?"),
    ("Where are my keys?", "Where did they find the keys?"),
    ("Where does Ben work?", "Why did Ben leave his first job?"),
    ("What is my favourite dish?", "What did I cook that evening?"),
    ("Which school does my son attend?", "What did my son learn at school?"),
    ("How long is my way to work?", "What happened on the way to work?"),
    ("Who is Nora's boss?", "What did Nora's boss think of the plan?"),
    ("How many plants do I have?", "Which plants did I like as a child?"),
    ("When does the shop open?", "What did I buy when the shop opened?"),
    ("Where am I going this summer?", "How was the summer holiday?"),
    ("What is the deadline?", "Why was the deadline a problem?"),
    ("Where is the bike?", "Where was the bike originally?"),
    ("How far have I got with the book?", "What was the book about?"),
    ("What is the name of the project?", "What was the project called in the beginning?"),
)


@dataclass(frozen=True, slots=True)
class _Direction:
    """From the past to the present."""

    towards: NDArray[np.float64]
    middle: float
    half: float

    def of(self, vector: bytes) -> float:
        asked = _unit(np.frombuffer(vector, "<f4").astype(float))
        return float(np.clip((asked @ self.towards - self.middle) / self.half, -1, 1))


class QuestionTense:
    """Embeds the examples once, when a question is first asked about."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._lock = asyncio.Lock()
        self._direction: _Direction | None = None

    async def of(self, vectors: Sequence[bytes], asking: Asking | None = None) -> float:
        """Return the least of the questions', from -1 (the past) to 1 (the present); 0 if there are no vectors."""
        if not vectors:
            return 0.0
        async with self._lock:
            if self._direction is None:
                self._direction = await self._learned(asking)
        return min(map(self._direction.of, vectors))

    async def _learned(self, asking: Asking | None) -> _Direction:
        texts = [question for example in EXAMPLES for question in example]
        made = await self._embedder.embed(texts, asking)
        rows = np.stack(
            [_unit(np.frombuffer(made_vector.vector, "<f4").astype(float)) for made_vector in made]
        )
        present, past = rows[::2], rows[1::2]
        towards = (present - past).mean(0)
        above, below = float((present @ towards).mean()), float((past @ towards).mean())
        return _Direction(towards, (above + below) / 2, max((above - below) / 2, 1e-9))


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows / max(float(np.linalg.norm(rows)), 1e-9)
