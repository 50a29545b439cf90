"""Where a namespace is: which memory is read and written, and by whose topics, groups, ledger and state. Pure."""

from dataclasses import dataclass

from eden_memory.names import Names

ORIGINAL = "original"
"""The namespace that every installation begins with; its names have nothing put before or behind them."""
WRITING = frozenset({"atlas-writer", "context-cache"})
"""Programs with a group for each memory; the others have one for each pipeline."""
SHARED_PROGRAMS = frozenset({"tailer", "usage"})
"""Programs that all namespaces have in common."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A rebuilt memory has the `pipeline` of the namespace that it was rebuilt from; a re-formed one its own."""

    memory: str = ORIGINAL
    pipeline: str = ORIGINAL

    def names(self, prefix: str) -> Names:
        """Of the collections; `prefix` is the installation's."""
        return Names(prefix, collections_of(self.memory), collections_of(self.pipeline))

    @property
    def topics(self) -> str:
        """Stands between the topics' prefix and the name of a topic that is not shared."""
        return "" if self.pipeline == ORIGINAL else f"ns.{self.pipeline}."

    @property
    def revisions(self) -> str:
        """Stands before a scope's key where its revision names something: two memories of one pipeline have two."""
        return "" if self.memory == self.pipeline else f"{self.memory}/"

    def group(self, program: str) -> str:
        """A program's consumer group, without the groups' prefix."""
        if program in SHARED_PROGRAMS:
            return program
        of = self.memory if program in WRITING else self.pipeline
        return program if of == ORIGINAL else f"{program}.{of}"


def collections_of(namespace: str) -> str:
    """Stands between the installation's prefix and a collection's name: no namespace has an underscore in it."""
    return "" if namespace == ORIGINAL else f"ns_{namespace}_"
