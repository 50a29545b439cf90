"""Before the store of answers: what would have to be paid for is asked for only where there is room."""

from collections.abc import Callable, Iterable, Mapping

from eden_memory.domain.failures import ProviderError
from eden_memory.models.asking.answers import AnswerStore
from schemas.documents import Answer

Room = Callable[[str], bool]
"""Whether there is room for the call of a unit: if so, it is kept back for it."""


class Capped:
    """An AnswerStore; `units` is what the names of the questions begin with that need room, each without that."""

    def __init__(self, answers: AnswerStore, units: str, room: Room) -> None:
        self._answers, self._units, self._room = answers, units, room

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """As the store; ProviderError where nothing is kept and there is no room to ask."""
        found = await self._answers.of_unit(unit, answer_id)
        asks = answer_id is not None and not found and unit.startswith(self._units)
        if asks and not self._room(unit.removeprefix(self._units)):
            raise ProviderError("the cap leaves no room for this call", counts=False)
        return found

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        """As the store."""
        return await self._answers.find(ids)

    async def keep(self, answer: Answer) -> Answer:
        """As the store."""
        return await self._answers.keep(answer)

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        """As the store."""
        await self._answers.judged_invalid(answer_id, reason)
