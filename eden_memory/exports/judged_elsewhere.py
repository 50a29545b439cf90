"""Reflections of an export that propagation does not judge again here. Pure."""

from dataclasses import dataclass, field

from eden_memory.exports.forgotten_here import ForgottenHere
from eden_memory.memory.memory_batch import Memory
from eden_memory.schemas.events import ReflectionFormed, ScopeConsolidated


@dataclass(slots=True)
class JudgedElsewhere:
    """Learns from the records in the order of the file, after `forgotten` has learned from them."""

    forgotten: ForgottenHere
    _absorbed: set[str] = field(default_factory=set[str])
    """By a blob that is published as it was, or the origins of propagated reflections that are."""
    _left_out: set[str] = field(default_factory=set[str])
    """Origins of propagated reflections that their scope does not take."""
    _newest: str = ""
    """The reflection whose newest version came last."""

    @property
    def ids(self) -> list[str]:
        """The reflections, in the order of their ids."""
        return sorted(self._absorbed - self._left_out)

    def learn(self, event: Memory, *, held: bool) -> None:
        """Take in a record; `held`: its scope holds something else here, and takes no records."""
        if isinstance(event, ScopeConsolidated) and not held and not self.forgotten.withdraws(event):
            self._absorbed.update(event.absorbed)
        if not isinstance(event, ReflectionFormed):
            return
        if event.propagated_from is not None and not held:
            self._absorbed.add(event.propagated_from.reflection_id)
        elif event.propagated_from is not None and event.reflection_id != self._newest:
            ended = event.retired_at is not None
            (self._absorbed if ended else self._left_out).add(event.propagated_from.reflection_id)
        self._newest = event.reflection_id
