"""The causal chain of a memory as a tree: what led to what, from stored data. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eden_memory.schemas.events import (
    Event,
    FactChanged,
    FormationRequested,
    ReflectionFormed,
    ScopeConsolidated,
)
from eden_memory.schemas.provenance import Call, SourceMessage

Kind = Literal["message", "window", "call", "fact", "reflection", "blob", "context"]
Told = dict[str, Any]


@dataclass(slots=True)
class Node:
    """One node of the chain with its details, and what follows from it (or, on the way back, what led to it)."""

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


@dataclass(frozen=True, slots=True)
class Stored:
    """Everything that was read for a chain."""

    windows: Mapping[str, Told]
    """`memory_windows`, by formation."""
    messages: Mapping[str, Told]
    """`memory_messages`, by id."""
    calls: Mapping[str, Told]
    """`memory_calls`, by id."""
    contexts: Sequence[Told]
    """`memory_contexts` that show any of the scopes."""
    events: Sequence[Event]
    """The records of the scopes in the memory topics."""

    def of(self, formation_id: str) -> tuple[list[FactChanged], list[ReflectionFormed]]:
        """Versions of facts, and reflections, to which one formation led."""
        facts = [
            event
            for event in self.events
            if isinstance(event, FactChanged) and formed_by(event, formation_id)
        ]
        reflections = [
            event
            for event in self.events
            if isinstance(event, ReflectionFormed) and event.formation_id == formation_id
        ]
        return sorted(facts, key=_key), sorted(reflections, key=_key)

    @property
    def blobs(self) -> list[ScopeConsolidated]:
        """Every version of the scopes' blobs, in order."""
        found = [event for event in self.events if isinstance(event, ScopeConsolidated)]
        return sorted(
            found, key=lambda scope_consolidated: (scope_consolidated.scope.key, scope_consolidated.version)
        )


def formed_by(change: FactChanged, formation_id: str) -> bool:
    """Whether this version is a decision about what a formation stated."""
    return change.statement is not None and change.statement.formation_id == formation_id


def from_message(stored: Stored, message_id: str) -> Node:
    """message → window → calls, facts, reflections → blobs → contexts."""
    row = stored.messages[message_id]
    node = message_node(row)
    if row.get("formation_id") in stored.windows:
        node.nodes.append(window_forward(stored, row["formation_id"], message_id))
    return node


def window_forward(stored: Stored, formation_id: str, message_id: str | None = None) -> Node:
    """A window and everything formed from it; items that rest on `message_id` are marked."""
    node = window_node(stored.windows[formation_id])
    facts, reflections = stored.of(formation_id)
    named = [fact.call for fact in (*facts, *reflections)] + [
        fact.statement and fact.statement.call for fact in facts
    ]
    node.nodes += call_nodes(stored, formation_id, [call for call in named if call is not None])
    node.nodes += [_resting(fact_node(fact), fact.sources, message_id) for fact in facts]
    for reflection in reflections:
        child = _resting(reflection_node(reflection), reflection.sources, message_id)
        absorbing = [blob for blob in stored.blobs if reflection.reflection_id in blob.absorbed]
        child.nodes += [_with_call(blob_node(blob), stored, blob.call) for blob in absorbing]
        node.nodes.append(child)
    keys = {fact.scope.key for fact in (*facts, *reflections)}
    node.nodes += [
        context_node(context, keys)
        for context in stored.contexts
        if keys & set(context.get("scope_keys") or context["scopes"])
    ]
    return node


def from_fact(stored: Stored, fact_id: str) -> Node:
    """fact → its versions, newest first → call, window, messages."""
    versions = [
        event for event in stored.events if isinstance(event, FactChanged) and event.fact_id == fact_id
    ]
    node = Node("fact", fact_id, {"versions": len(versions)})
    for version in sorted(versions, key=lambda version: -version.version):
        child = _with_call(fact_node(version), stored, version.call)
        statement = version.statement
        if statement is not None:
            child.nodes += _window_back(stored, statement.formation_id, statement.sources)
        node.nodes.append(child)
    return node


def from_blob(stored: Stored, scope_key: str, version: int | None) -> Node:
    """blob version → its call, the reflections that it absorbed → windows → messages; earlier versions beneath."""
    versions = [blob for blob in stored.blobs if blob.scope.key == scope_key]
    versions = [
        scope_consolidated
        for scope_consolidated in versions
        if version is None or scope_consolidated.version <= version
    ]
    newest = versions[-1]
    node = _blob_back(stored, newest)
    below = node
    for scope_consolidated in reversed(versions[:-1]):
        if scope_consolidated.version == newest.based_on:
            newest, child = scope_consolidated, _blob_back(stored, scope_consolidated)
            below.nodes.append(child)
            below = child
    return node


def from_reflection(stored: Stored, reflection: ReflectionFormed) -> Node:
    """reflection → its call, window, messages; and the blobs that absorbed it."""
    node = _with_call(reflection_node(reflection), stored, reflection.call)
    node.nodes += _window_back(stored, reflection.formation_id, reflection.sources)
    node.nodes += [blob_node(blob) for blob in stored.blobs if reflection.reflection_id in blob.absorbed]
    return node


def _blob_back(stored: Stored, blob: ScopeConsolidated) -> Node:
    node = _with_call(blob_node(blob), stored, blob.call)
    for event in stored.events:
        if isinstance(event, ReflectionFormed) and event.reflection_id in blob.absorbed:
            child = _with_call(reflection_node(event), stored, event.call)
            child.nodes += _window_back(stored, event.formation_id, event.sources)
            node.nodes.append(child)
    return node


def _window_back(stored: Stored, formation_id: str | None, sources: Iterable[SourceMessage]) -> list[Node]:
    """The window with the messages that something rests on, if it is stored."""
    if formation_id is None or formation_id not in stored.windows:
        return []
    node = window_node(stored.windows[formation_id])
    known = (stored.messages.get(source.message_id) for source in sources)
    node.nodes = [message_node(row) for row in known if row is not None]
    return [node]


def message_node(row: Told) -> Node:
    """A message as formation-trigger knows it."""
    names = ("session_id", "version", "time", "role", "user_id", "characters", "formation_id", "deleted")
    told = {name: row.get(name) for name in names}
    return Node("message", row["_id"], told, row.get("text"))


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


def call_nodes(stored: Stored, formation_id: str | None, named: Sequence[Call]) -> list[Node]:
    """The calls of a formation as they were counted, and those that records name."""
    found = {name: row for name, row in stored.calls.items() if row.get("formation_id") == formation_id}
    nodes = [call_node(row) for row in sorted(found.values(), key=lambda row: row["started_at"])]
    others = {call.call_id: call for call in named if call.call_id not in found}
    return nodes + [
        call_node(stored.calls[name]) if name in stored.calls else _uncounted(call)
        for name, call in others.items()
    ]


def call_node(row: Told) -> Node:
    """A counted call."""
    names = ("stage", "model", "prompt", "outcome", "input_tokens", "cached_tokens", "output_tokens", "items")
    told = {name: row.get(name) for name in names} | {"cost_usd": row.get("cost_usd")}
    return Node("call", row["_id"], {**told, "at": row["started_at"], "seconds": row["seconds"]})


def _uncounted(call: Call) -> Node:
    cost = None if call.cost_usd is None else f"{call.cost_usd:f}"
    return Node("call", call.call_id, {"model": call.model, "prompt": call.prompt, "cost_usd": cost})


def fact_node(fact_changed: FactChanged) -> Node:
    """One version of a fact: what was decided, and why."""
    told: Told = {
        "scope": fact_changed.scope.key,
        "decision": fact_changed.decision,
        "reason": fact_changed.reason,
    }
    told["considered"] = [f"{near.fact_id}@{near.version}" for near in fact_changed.considered]
    told |= {
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
    }
    told["call_id"] = reflection_formed.call.call_id if reflection_formed.call else None
    return Node("reflection", reflection_formed.reflection_id, told, reflection_formed.text)


def blob_node(scope_consolidated: ScopeConsolidated) -> Node:
    """One version of a scope's blob."""
    told: Told = {
        "because": scope_consolidated.because,
        "based_on": scope_consolidated.based_on,
        "absorbed": len(scope_consolidated.absorbed),
    }
    told |= {
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


def _with_call(node: Node, stored: Stored, call: Call | None) -> Node:
    if call is not None:
        row = stored.calls.get(call.call_id)
        node.nodes.append(call_node(row) if row else _uncounted(call))
    return node


def _resting(node: Node, sources: Iterable[SourceMessage], message_id: str | None) -> Node:
    if message_id is not None:
        node.told["rests_on_message"] = any(source.message_id == message_id for source in sources)
    return node


def _key(event: Event) -> str:
    return event.key()
