"""Where answers of models are kept the moment they arrive, and stores that stand before the store."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from eden_memory.schemas.documents import Answer


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

    async def keep_all(self, answers: Sequence[Answer]) -> list[Answer]:
        """The same of several, together."""
        ...

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        """Mark it as of no use."""
        ...


class Forwarding:
    """An AnswerStore before another, for those that do one thing otherwise."""

    def __init__(self, answers: AnswerStore) -> None:
        self._answers = answers

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """As the store."""
        return await self._answers.of_unit(unit, answer_id)

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        """As the store."""
        return await self._answers.find(ids)

    async def keep(self, answer: Answer) -> Answer:
        """As the store."""
        return await self._answers.keep(answer)

    async def keep_all(self, answers: Sequence[Answer]) -> list[Answer]:
        """As the store."""
        return await self._answers.keep_all(answers)

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        """As the store."""
        await self._answers.judged_invalid(answer_id, reason)
