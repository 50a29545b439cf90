"""Memory of an export that is forgotten where it is imported. Pure.

Marks name messages, sessions and users that memory rests on, and memories that are forgotten themselves. The first
blob version that absorbed something forgotten is left out, and so are all later ones. A fact that only forgotten
facts contradicted is active again.
"""

from dataclasses import dataclass, field

from eden_memory.forgotten import Marks
from eden_memory.memory.memory_batch import Memory, is_forgotten
from eden_memory.schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated


@dataclass(slots=True)
class ForgottenHere:
    """Learns from the records in the order of the file, then judges each of them."""

    facts: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """Forgotten facts, each with the one that had contradicted it."""
    reflections: set[str] = field(default_factory=set[str])
    withdrawn: dict[str, int] = field(default_factory=dict[str, int])
    """By scope key, the lowest blob version that holds something forgotten."""
    _newest: str = ""
    """The fact whose newest version came last."""

    def learn(self, event: Memory, marks: Marks) -> None:
        """Take in a record; of a fact only its newest version, which comes first, says whether it is forgotten."""
        gone = is_forgotten(event, marks)
        match event:
            case FactChanged():
                if gone and event.fact_id != self._newest:
                    self.facts[event.fact_id] = event.replaced_by
                self._newest = event.fact_id
            case ReflectionFormed():
                if gone:
                    self.reflections.add(event.reflection_id)
            case ScopeConsolidated():
                if gone or not self.reflections.isdisjoint(event.absorbed):
                    lowest = self.withdrawn.get(event.scope.key, event.version)
                    self.withdrawn[event.scope.key] = min(lowest, event.version)
            case _:
                pass

    def withdraws(self, event: Memory) -> bool:
        """Return whether it is a blob version of which only the number is kept."""
        lowest = self.withdrawn.get(event.scope.key) if isinstance(event, ScopeConsolidated) else None
        return lowest is not None and isinstance(event, ScopeConsolidated) and event.version >= lowest

    def drops(self, event: Memory, marks: Marks) -> bool:
        """Return whether a record is left out."""
        match event:
            case FactChanged():
                known = event.fact_id in self.facts or self._holds_again(event)
            case ReflectionFormed():
                known = event.reflection_id in self.reflections
            case _:
                known = False
        return known or is_forgotten(event, marks)

    def _holds_again(self, event: FactChanged) -> bool:
        """Return whether it retires a fact that only forgotten facts contradict."""
        if event.retired_because != "contradicted":
            return False
        by, seen = event.replaced_by, set[str]()
        while by in self.facts and by not in seen:
            seen.add(by)
            by = self.facts[by]
        return bool(seen) and (by is None or by in seen)
