"""Stores of answers that a reform puts before the store: one keeps its cap, one counts the answers that it reused."""

from collections.abc import Callable, Iterable, Mapping

from eden_memory.failures import CapReached
from eden_memory.models.stored_answers import AnswerStore, Forwarding
from eden_memory.schemas.documents import Answer

Room = Callable[[str], bool]
"""Whether there is room for the call of a unit: if so, it is kept back for it."""


class Capped(Forwarding):
    """An AnswerStore; `units` is what the names of the questions begin with that need room, each without that."""

    def __init__(self, answers: AnswerStore, units: str, room: Room) -> None:
        super().__init__(answers)
        self._units, self._room = units, room

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """As the store; CapReached where nothing is kept and there is no room to ask."""
        found = await super().of_unit(unit, answer_id)
        asks = answer_id is not None and not found and unit.startswith(self._units)
        if asks and not self._room(unit.removeprefix(self._units)):
            raise CapReached("the cap leaves no room for this call")
        return found


MOST_REMEMBERED = 100_000


class CountedReuse(Forwarding):
    """`units`: what the names of one's own questions begin with. Another's answer that was kept first when one's own
    arrived is no reuse: that was paid, too."""

    def __init__(self, answers: AnswerStore, units: str) -> None:
        super().__init__(answers)
        self._units = units
        self._seen: dict[str, None] = {}
        self.reused = 0
        """Answers to questions, vectors apart, each once."""

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """As the store; an answer of another's that will do is counted."""
        found = await super().of_unit(unit, answer_id)
        if (
            answer_id is not None
            and answer_id in found
            and not any(answer.unit == unit for answer in found.values())
        ):
            self._count([found[answer_id]])
        return found

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        """As the store; answers of others that are found are counted."""
        found = await super().find(ids)
        self._count(found.values())
        return found

    def _count(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            others = answer.operation == "chat" and not (answer.unit or "").startswith(self._units)
            if others and answer.id not in self._seen:
                if len(self._seen) >= MOST_REMEMBERED:
                    self._seen.clear()
                self._seen[answer.id] = None
                self.reused += 1
