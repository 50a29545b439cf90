"""What the fault run's stages read and write, and what becomes of each question, drawn from the seed.

Two hops: `answering` asks a slow provider about each question (lanes), `keeping` puts the answers of a session
together into numbered versions (several at once, each version written once).
"""

import random
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events.base import Event
from eden_memory.schemas.registry import Registry
from eden_memory.stages.outcome import StoredRecord
from tests.integration.stages.harness import Answered, Asked, Unanswered, asked

IN, OUT, KEPT = "stages.in", "stages.out", "stages.kept"
PARTITIONS = 6
CALL_TIMEOUT = 4.0
"""The answering stage's: a call that hangs fails after so many seconds."""
CALM_SESSIONS = "z"
"""Sessions whose names begin so are asked at the end of a run; nothing is wrong with them."""


class Kept(Event):
    """One version of a session: the questions it adds, in order, with the texts that answered them."""

    session: str
    version: int
    numbers: tuple[int, ...]
    texts: tuple[str, ...]

    def key(self) -> str:
        return f"{self.session}@{self.version:06}"

    def ordering_key(self) -> str:
        return self.session

    def subject(self) -> str:
        return self.session


REGISTRY = Registry((Asked, Answered, Unanswered, Kept), {})
TOPICS: dict[type[Event], str] = {Asked: IN, Answered: OUT, Unanswered: OUT, Kept: KEPT}

Poison = Literal["permanent", "bug", "transient"]


@dataclass(frozen=True)
class Fate:
    """What the provider does with one question; `hangs` and `flaky` at the first attempt only."""

    seconds: float
    hangs: bool = False
    flaky: bool = False
    poison: Poison | None = None


def fate(seed: int, key: str) -> Fate:
    """The same for the same seed and question, in every process."""
    chance = random.Random(f"{seed}/fate/{key}")
    seconds = min(chance.lognormvariate(-2.0, 0.9), 2.0)
    drawn = chance.random() if not key.startswith(CALM_SESSIONS) else 1.0
    if drawn < 0.02:
        return Fate(seconds, poison=chance.choice(("permanent", "bug", "transient")))
    return Fate(seconds, hangs=drawn < 0.035, flaky=0.035 <= drawn < 0.12)


def question(session: str, number: int) -> StoredRecord:
    """A question, for the first stage's topic."""
    return replace(asked(session, number), topic=IN)


def junk(session: str, number: int, moment: datetime) -> StoredRecord:
    """A record that no program can read: every second one has not even an envelope."""
    key = f"junk-{session}-{number}"
    envelope = Envelope(key, "Asked", 1, "chaos", moment, key, session)
    headers = tuple(envelope.headers()) if number % 2 else (("ce_orderingkey", session.encode()),)
    return StoredRecord(IN, session.encode(), key.encode(), b"{not json", headers)
