"""The cost of forming one fact or blob, from the calls that its records name. Pure.

A call that gave several items is shared equally among them; what was asked again for a fact's next version counts
again. A call without a known price is counted apart, never as 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from eden_memory.schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.provenance import Call


@dataclass(frozen=True, slots=True)
class Embedded:
    """An embedding call as it was counted."""

    model: str
    cost: Decimal | None
    items: int


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
    known, unknown = (
        [amount for amount in amounts if amount is not None],
        sum(amount is None for amount in amounts),
    )
    return sum(known, Decimal(0)) if known or not unknown else None, unknown


def of_fact(versions: Sequence[FactChanged], embedded: Mapping[str, Embedded]) -> list[Share]:
    """All versions of one fact: what stated it, what decided, its vectors."""
    shares: list[Share] = []
    seen: set[tuple[str, str]] = set()
    for version in sorted(versions, key=_version):
        for of, call in (
            ("extraction", version.statement and version.statement.call),
            ("decision", version.call),
        ):
            if call is not None:
                shares.append(_share(of, version.key(), call))
        vector = version.embedding.call_id if version.embedding is not None else None
        if vector is not None and vector in embedded and ("vector", vector) not in seen:
            seen.add(("vector", vector))
            known = embedded[vector]
            shares.append(
                Share("vector", version.key(), vector, known.model, None, known.cost, max(1, known.items))
            )
    return shares


def of_blob(versions: Sequence[ScopeConsolidated], reflections: Iterable[ReflectionFormed]) -> list[Share]:
    """Versions of one blob up to the one asked for, and the reflections that went into them."""
    absorbed = {name for version in versions for name in version.absorbed}
    shares = [
        _share("reflection", reflection.reflection_id, reflection.call)
        for reflection in reflections
        if reflection.reflection_id in absorbed and reflection.call is not None
    ]
    ordered = sorted(versions, key=_version)
    return shares + [
        _share("consolidation", scope_consolidated.key(), scope_consolidated.call)
        for scope_consolidated in ordered
        if scope_consolidated.call is not None
    ]


def _share(of: str, memory: str, call: Call) -> Share:
    return Share(of, memory, call.call_id, call.model, call.prompt, call.cost_usd, call.items)


def _version(fact_changed: FactChanged | ScopeConsolidated) -> int:
    return fact_changed.version
