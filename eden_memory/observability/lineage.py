"""The lineage of a memory as a tree: what led to what, from stored data and records; and what it cost. Pure.

A call that gave several items is shared equally among them; what was asked again for a fact's next version counts
again. A call without a known price is counted apart, never as 0.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from eden_memory.schemas.events import (
    FactChanged,
    FormationRequested,
    ReflectionFormed,
    ScopeConsolidated,
)
from eden_memory.schemas.provenance import Call, SourceMessage

if TYPE_CHECKING:
    from eden_memory.usage.costs import Embedded

Kind = Literal["message", "window", "call", "fact", "reflection", "blob", "context"]
Memory = FactChanged | ReflectionFormed | ScopeConsolidated
T = TypeVar("T", FactChanged, ReflectionFormed, ScopeConsolidated)
Told = dict[str, Any]
IN_ORDER = attrgetter("scope.key", "version")


@dataclass(slots=True)
class Node:
    """One step of the lineage with its details, and what follows from it (or, on the way back, what led to it)."""

    kind: Kind
    id: str
    told: Told = field(default_factory=dict[str, Any])
    content: str | None = None
    """Shown only if it was asked for."""
    nodes: list["Node"] = field(default_factory=list["Node"])

    def as_dict(self, *, content: bool) -> Told:
        """For programs."""
        told: Told = {"kind": self.kind, "id": self.id, **self.told}
        if content and self.content is not None:
            told["content"] = self.content
        if self.nodes:
            told["nodes"] = [node.as_dict(content=content) for node in self.nodes]
        return told


def formation_of(event: Memory) -> str | None:
    """Return the formation that stated a version; None for blobs, and for what a command made."""
    if isinstance(event, FactChanged):
        return event.statement.formation_id if event.statement else None
    return event.formation_id if isinstance(event, ReflectionFormed) else None


def calls_of(event: Memory) -> list[Call]:
    """Return the calls that a version names: the one that decided it, and the one that stated it."""
    stated = event.statement.call if isinstance(event, FactChanged) and event.statement else None
    return [call for call in (event.call, stated) if call is not None]


@dataclass(frozen=True, slots=True)
class Lineage:
    """Everything that was read around a message or memory, and the trees of it."""

    windows: Mapping[str, Told]
    """`memory_windows`, by formation."""
    messages: Mapping[str, Told]
    """`memory_messages`, by id."""
    calls: Mapping[str, Told]
    """`memory_calls`, by id."""
    events: Sequence[Memory] = ()
    """The records of the scopes in the memory topics."""
    contexts: Sequence[Told] = ()
    """`memory_contexts` that show any of the scopes."""

    def of_message(self, message_id: str) -> Node:
        """message → window → calls, facts, reflections → blobs → contexts."""
        row = self.messages[message_id]
        node = message_node(row)
        if row.get("formation_id") in self.windows:
            node.nodes.append(self.of_window(row["formation_id"], message_id))
        return node

    def of_window(self, formation_id: str, message_id: str | None = None) -> Node:
        """Return a window and everything formed from it; items that rest on `message_id` are marked."""
        node = window_node(self.windows[formation_id])
        formed = sorted((event for event in self.events if formation_of(event) == formation_id), key=IN_ORDER)
        node.nodes += self._calls_of_window(formation_id, formed)
        for fact in self._sorted(FactChanged, formed):
            node.nodes.append(_resting(fact_node(fact), fact.sources, message_id))
        for reflection in self._sorted(ReflectionFormed, formed):
            child = _resting(reflection_node(reflection), reflection.sources, message_id)
            child.nodes += [self._with_call(blob_node(blob), blob) for blob in self._absorbing(reflection)]
            node.nodes.append(child)
        keys = {event.scope.key for event in formed}
        node.nodes += [
            context_node(context, keys)
            for context in self.contexts
            if keys & set(context.get("scope_keys") or context["scopes"])
        ]
        return node

    def of_fact(self, fact_id: str) -> Node:
        """fact → its versions, newest first → call, window, messages."""
        versions = [fact for fact in self._sorted(FactChanged) if fact.fact_id == fact_id]
        node = Node("fact", fact_id, {"versions": len(versions)})
        for version in reversed(versions):
            sources = version.statement.sources if version.statement else ()
            node.nodes.append(self._back(fact_node(version), version, sources))
        return node

    def of_reflection(self, reflection: ReflectionFormed) -> Node:
        """reflection → its call, window, messages; and the blobs that absorbed it."""
        node = self._back(reflection_node(reflection), reflection, reflection.sources)
        node.nodes += map(blob_node, self._absorbing(reflection))
        return node

    def of_blob(self, versions: Sequence[ScopeConsolidated]) -> Node:
        """blob version → its call, its reflections → windows → messages; earlier versions beneath."""
        newest = versions[-1]
        node = below = self._blob_back(newest)
        for earlier in reversed(versions[:-1]):
            if earlier.version == newest.based_on:
                newest, child = earlier, self._blob_back(earlier)
                below.nodes.append(child)
                below = child
        return node

    def blob_versions(self, scope_key: str, up_to: int | None) -> list[ScopeConsolidated]:
        """Return the versions of a scope's blob in order; `up_to` None: all."""
        return [
            blob
            for blob in self._sorted(ScopeConsolidated)
            if blob.scope.key == scope_key and (up_to is None or blob.version <= up_to)
        ]

    def _blob_back(self, blob: ScopeConsolidated) -> Node:
        node = self._with_call(blob_node(blob), blob)
        node.nodes += [
            self._back(reflection_node(event), event, event.sources)
            for event in self.events
            if isinstance(event, ReflectionFormed) and event.reflection_id in blob.absorbed
        ]
        return node

    def _back(self, node: Node, event: Memory, sources: Iterable[SourceMessage]) -> Node:
        """Add the call and the window of a version, with the messages that it rests on, as far as they are stored."""
        self._with_call(node, event)
        if (row := self.windows.get(formation_of(event) or "")) is not None:
            window = window_node(row)
            known = (self.messages.get(source.message_id) for source in sources)
            window.nodes = [message_node(message) for message in known if message is not None]
            node.nodes.append(window)
        return node

    def _with_call(self, node: Node, event: Memory) -> Node:
        if event.call is not None:
            node.nodes.append(self._call(event.call))
        return node

    def _calls_of_window(self, formation_id: str, formed: Iterable[Memory]) -> list[Node]:
        """The calls of a formation as they were counted, and those that records name."""
        rows = [row for row in self.calls.values() if row.get("formation_id") == formation_id]
        counted = {row["_id"]: call_node(row) for row in rows}
        named = {call.call_id: self._call(call) for event in formed for call in calls_of(event)}
        return [*(counted | named).values()]

    def _call(self, call: Call) -> Node:
        if (row := self.calls.get(call.call_id)) is not None:
            return call_node(row)
        cost = None if call.cost_usd is None else f"{call.cost_usd:f}"
        return Node("call", call.call_id, {"model": call.model, "prompt": call.prompt, "cost_usd": cost})

    def _absorbing(self, reflection: ReflectionFormed) -> list[ScopeConsolidated]:
        blobs = self._sorted(ScopeConsolidated)
        return [blob for blob in blobs if reflection.reflection_id in blob.absorbed]

    def _sorted(self, kind: type[T], events: Iterable[Memory] | None = None) -> list[T]:
        found = [event for event in (self.events if events is None else events) if isinstance(event, kind)]
        return sorted(found, key=IN_ORDER)


def message_node(row: Told) -> Node:
    """A message as formation-trigger knows it."""
    names = ("session_id", "version", "time", "role", "user_id", "characters", "formation_id", "deleted")
    return Node("message", row["_id"], {name: row.get(name) for name in names}, row.get("text"))


def window_node(row: Told) -> Node:
    """A closed window."""
    closed, asked = row["closed"], row["requested"]
    request = FormationRequested.model_validate_json(asked, extra="ignore") if asked else None
    told: Told = {
        "session_id": row["session_id"],
        "seq": row["seq"],
        "messages": len(row["messages"]),
        "closed_because": closed["because"],
        "closed_at": closed["at"],
        "asked_for": request is not None,
    }
    if request is not None:
        told["scopes"] = [scope.key for scope in request.scopes]
    elif row.get("waits_for"):
        told["waits_for"] = row["waits_for"]
    return Node("window", row["_id"], told)


def call_node(row: Told) -> Node:
    """A counted call."""
    names = ("stage", "model", "prompt", "outcome", "input_tokens", "cached_tokens", "output_tokens", "items")
    cost = None if row.get("cost_usd") is None else f"{row['cost_usd']:f}"
    told = {name: row.get(name) for name in names} | {"cost_usd": cost}
    return Node("call", row["_id"], {**told, "at": row["started_at"], "seconds": row["seconds"]})


def fact_node(fact_changed: FactChanged) -> Node:
    """One version of a fact: what was decided, and why."""
    told: Told = {
        "scope": fact_changed.scope.key,
        "decision": fact_changed.decision,
        "reason": fact_changed.reason,
        "considered": [f"{near.fact_id}@{near.version}" for near in fact_changed.considered],
        "call_id": fact_changed.call.call_id if fact_changed.call else None,
        "sources": len(fact_changed.sources),
    }
    for name in ("replaces", "replaced_by", "retired_because"):
        if (value := getattr(fact_changed, name)) is not None:
            told[name] = value
    if fact_changed.command is not None:
        told["command"] = f"{fact_changed.command.action} by {fact_changed.command.by}"
        told["command_id"] = fact_changed.command.command_id
    return Node("fact", fact_changed.key(), told, fact_changed.text)


def reflection_node(reflection_formed: ReflectionFormed) -> Node:
    """A reflection."""
    told: Told = {
        "scope": reflection_formed.scope.key,
        "origin": reflection_formed.origin,
        "sources": len(reflection_formed.sources),
        "call_id": reflection_formed.call.call_id if reflection_formed.call else None,
    }
    return Node("reflection", reflection_formed.reflection_id, told, reflection_formed.text)


def blob_node(scope_consolidated: ScopeConsolidated) -> Node:
    """One version of a scope's blob."""
    told: Told = {
        "because": scope_consolidated.because,
        "based_on": scope_consolidated.based_on,
        "absorbed": len(scope_consolidated.absorbed),
        "words": scope_consolidated.words,
        "call_id": scope_consolidated.call.call_id if scope_consolidated.call else None,
    }
    return Node("blob", scope_consolidated.key(), told, scope_consolidated.text)


def context_node(row: Told, keys: Collection[str]) -> Node:
    """A ready context that shows some of the scopes."""
    told: Told = {
        "built_at": row["built_at"],
        "scopes": {key: n for key, n in row["scopes"].items() if key in keys},
    }
    return Node("context", row["_id"], told, row.get("xml"))


def _resting(node: Node, sources: Iterable[SourceMessage], message_id: str | None) -> Node:
    if message_id is not None:
        node.told["rests_on_message"] = any(source.message_id == message_id for source in sources)
    return node


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one call in a memory; `usd` is None if its price is unknown."""

    of: str
    """The call's purpose: extraction, decision, vector, reflection, consolidation."""
    memory: str
    """`fact@version`, reflection id or `scope@version`."""
    call_id: str
    model: str
    prompt: str | None
    call_usd: Decimal | None
    among: int
    """So many items share the call."""

    @property
    def usd(self) -> Decimal | None:
        """Its part of the call."""
        return None if self.call_usd is None else self.call_usd / max(1, self.among)


def total(shares: Iterable[Share]) -> tuple[Decimal | None, int]:
    """US dollars (None where no price is known), and how many shares have no known price."""
    amounts = [share.usd for share in shares]
    known = [amount for amount in amounts if amount is not None]
    unknown = len(amounts) - len(known)
    return sum(known, Decimal(0)) if known or not unknown else None, unknown


def shares_of_fact(versions: Iterable[FactChanged], embedded: "Mapping[str, Embedded]") -> list[Share]:
    """All versions of one fact: what stated it, what decided, its vectors."""
    shares: list[Share] = []
    vectors: dict[str, Share] = {}
    for version in versions:
        stated = version.statement.call if version.statement else None
        of_calls = (("extraction", stated), ("decision", version.call))
        shares += [_share(of, version.key(), call) for of, call in of_calls if call is not None]
        vector = version.embedding.call_id if version.embedding is not None else None
        if vector is not None and vector in embedded and vector not in vectors:
            call = embedded[vector]
            vectors[vector] = Share("vector", version.key(), vector, call.model, None, call.cost, call.items)
    return [*shares, *vectors.values()]


def shares_of_blob(
    versions: Sequence[ScopeConsolidated], reflections: Iterable[ReflectionFormed]
) -> list[Share]:
    """Versions of one blob up to the one asked for, and the reflections that went into them."""
    absorbed = {name for version in versions for name in version.absorbed}
    formed = [reflection for reflection in reflections if reflection.reflection_id in absorbed]
    shares = [
        _share("reflection", found.reflection_id, found.call) for found in formed if found.call is not None
    ]
    return shares + [
        _share("consolidation", blob.key(), blob.call) for blob in versions if blob.call is not None
    ]


def _share(of: str, memory: str, call: Call) -> Share:
    return Share(of, memory, call.call_id, call.model, call.prompt, call.cost_usd, call.items)
