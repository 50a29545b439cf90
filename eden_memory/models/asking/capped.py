"""Before the store of answers: what would have to be paid for is asked for only where there is room."""

from collections.abc import Callable, Mapping

from eden_memory.failures import ProviderError
from eden_memory.models.asking.answer_forwarding import AnswerStore, Forwarding
from eden_memory.schemas.documents import Answer

Room = Callable[[str], bool]
"""Whether there is room for the call of a unit: if so, it is kept back for it."""


class Capped(Forwarding):
    """An AnswerStore; `units` is what the names of the questions begin with that need room, each without that."""

    def __init__(self, answers: AnswerStore, units: str, room: Room) -> None:
        super().__init__(answers)
        self._units, self._room = units, room

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """As the store; ProviderError where nothing is kept and there is no room to ask."""
        found = await super().of_unit(unit, answer_id)
        asks = answer_id is not None and not found and unit.startswith(self._units)
        if asks and not self._room(unit.removeprefix(self._units)):
            raise ProviderError("the cap leaves no room for this call", counts=False)
        return found
