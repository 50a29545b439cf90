"""Where answers of models are kept the moment they arrive."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from schemas.documents import Answer


class AnswerStore(Protocol):
    """Answers by the hash of what was asked; each is written once and never changed, but for `invalid`."""

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """All answers that a unit's question and its repairs have got, by id; `answer_id` too, whosever it is."""
        ...

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        """Those of the answers that are kept, by id, in one query."""
        ...

    async def keep(self, answer: Answer) -> Answer:
        """Store it until that is confirmed; what is stored under its id already is returned in its place."""
        ...

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        """Mark it as of no use."""
        ...
