"""The names of collections: a namespace's memory, its formation's own, and those that all share. Pure.

And of the databases that `eden demo` and `eden eval` make for themselves.
"""

from dataclasses import dataclass

from eden_memory.schemas.documents import (
    Consolidated,
    Context,
    Erasure,
    Fact,
    ForgottenMark,
    Message,
    Outcome,
    PartitionState,
    Reflection,
    ScopeVectors,
    SessionState,
    Snapshot,
    StoredBlob,
    WindowTexts,
)

DEMO_DATABASE = "eden_demo"
EVAL_DATABASES = "eden_eval_"
"""Begins the name of the database of each evaluation."""
MEMORY = frozenset(
    kind.COLLECTION for kind in (Fact, Reflection, Consolidated, StoredBlob, Snapshot, Context, ScopeVectors)
)
"""Collections that every namespace has of its own."""
FORMING = frozenset(
    kind.COLLECTION
    for kind in (Message, SessionState, WindowTexts, PartitionState, Outcome, ForgottenMark, Erasure)
) | {"controls", "consumption"}
"""Collections that every pipeline has of its own: a rebuild's are its source's, a reform's are not."""


@dataclass(frozen=True, slots=True)
class Names:
    """Maps a collection's name, as `eden_memory.schemas.documents` has it, to the full one.

    Every name has the prefix `shared`; behind it, those of MEMORY have `memory` and those of FORMING `forming`.
    Both are empty in the first namespace. `own` are shared collections that this namespace has of its own all the
    same, under `memory`.
    """

    shared: str
    memory: str = ""
    forming: str = ""
    own: frozenset[str] = frozenset()

    def __getitem__(self, collection: str) -> str:
        """`facts` → `memory_facts`, or `memory_ns_trial_facts`."""
        if collection in MEMORY or collection in self.own:
            return self.shared + self.memory + collection
        return self.shared + (self.forming if collection in FORMING else "") + collection
