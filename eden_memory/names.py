"""The names of collections, where a namespace is, and the trace that a record belongs to. Pure.

And of the databases that `eden demo` and `eden eval` make for themselves.

What follows from one session shares the session's trace id, so all that a message led to has the message's. A
record's parent id names the record that caused it; a record that nothing caused names itself.
"""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

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
from eden_memory.schemas.envelope import Envelope

JSON_TEXT = "::json"
"""In a path, behind the name of a field whose text is JSON: the rest of the path leads through what it says."""
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


PARTS = 4
REMEMBERED = 50_000
"""Sessions whose trace ids are kept at hand."""


@lru_cache(maxsize=REMEMBERED)
def trace_id(about: str) -> str:
    """32 hexadecimal digits: of a session's typed id, or of what else begins a trace."""
    return blake2b(about.encode(), digest_size=16, person=b"eden trace").hexdigest()


def hashed(*parts: str) -> str:
    """Return an id of 24 hexadecimal digits."""
    return blake2b("\x00".join(parts).encode(errors="surrogatepass"), digest_size=12).hexdigest()


def span_id(event_id: str) -> str:
    """16 hexadecimal digits that stand for a record, from its `ce_id`."""
    return blake2b(event_id.encode(), digest_size=8).hexdigest()


def traceparent(about: str, parent: str) -> str:
    """Of a record in the trace of `about` that the record with the `ce_id` `parent` caused (or is, at the root)."""
    return f"00-{trace_id(about)}-{span_id(parent)}-01"


def following(cause: Envelope) -> str:
    """Of a record that `cause` caused; a cause without a trace begins that of its ordering key."""
    parts = (cause.traceparent or "").split("-")
    if len(parts) != PARTS:
        return traceparent(cause.ordering_key, cause.id)
    version, trace, _, flags = parts
    return f"{version}-{trace}-{span_id(cause.id)}-{flags}"
