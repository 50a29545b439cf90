"""The write-once store of outcomes, as the runtime needs it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from eden_memory.stages.outcome import Outcome


class Ledger(Protocol):
    """The write-once store of outcomes."""

    async def find(self, stage: str, members: Sequence[str]) -> Mapping[str, Outcome]:
        """The outcomes that the members were decided in, by member; majority-committed ones only."""
        ...

    async def store(self, outcome: Outcome) -> Outcome:
        """Store an outcome, acknowledged by a majority, or return the one stored under its key before.

        Raises Reread if another decision holds a member or write of it, OutcomeTooLarge beyond the limit where the
        outcome may not be stored in parts.
        """
        ...

    async def settled(self, stage: str, members: Sequence[str], dead_topic: str) -> None:
        """Remove the dead letter from an outcome of these: people have settled it, and it is not to come again."""
        ...
