"""Costs: what a window is expected to cost, and what one fact or blob has cost. Pure.

A call that gave several items is shared equally among them; what was asked again for a fact's next version counts
again. A call without a known price is counted apart, never as 0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from eden_memory.models.call_accounts import Cost
from eden_memory.models.catalogue import OFFLINE, chosen, provider_name
from eden_memory.models.provider_calls import Tokens
from eden_memory.models.question import Role
from eden_memory.schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.provenance import Call
from eden_memory.settings import Settings

PLACES = Decimal("0.000000000001")


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected cost of a window's formation, its share of consolidations included."""

    known: Decimal
    """Of the calls whose price is known."""
    priced: bool = True
    """False where the price of one of its calls is not known."""

    @property
    def usd(self) -> Decimal | None:
        """US dollars; None where a price is not known."""
        return self.known if self.priced else None


StartValue = Callable[[int, int], Estimate]
"""(tier, characters of the window) → what it is expected to cost."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Tokens that one call of a role is expected to take, besides the window's own."""

    input: int
    output: int
    window: bool = True
    """Whether the window's text is part of its prompt."""


FORMING: dict[str, Expected] = {
    "facts": Expected(1_800, 500),
    "decisions": Expected(1_500, 400, window=False),
    "reflections": Expected(4_000, 600),
}
"""Start values, on the generous side; what was counted takes their place after a few windows."""
CONSOLIDATING = Expected(1_500, 500, window=False)
CHARACTERS_PER_TOKEN = 3


def tokens_of(expected: Expected, characters: int) -> tuple[int, int]:
    """Input and output tokens of one call."""
    return expected.input + (characters // CHARACTERS_PER_TOKEN if expected.window else 0), expected.output


def start_value(calls: Sequence[Decimal | None]) -> Estimate:
    """From the prices of the expected calls, None for one that is not known."""
    known = sum((call for call in calls if call is not None), Decimal(0))
    return Estimate(known.quantize(PLACES), None not in calls)


def start_values(settings: Settings, cost: Cost) -> StartValue:
    """By the models that the settings name; rules cost nothing."""

    def of_call(role: Role, tier: int, expected: Expected, characters: int) -> Decimal | None:
        choice = chosen(role, tier, settings)
        if choice.provider == OFFLINE:
            return Decimal(0)
        input_tokens, output_tokens = tokens_of(expected, characters)
        tokens = Tokens(input=input_tokens, output=output_tokens)
        return cost(provider_name(choice.provider), choice.model or "", tokens)

    def of_window(tier: int, characters: int) -> Estimate:
        roles: tuple[Role, ...] = ("facts", "decisions", "reflections")
        forming = [of_call(role, tier, FORMING[role], characters) for role in roles]
        return start_value([*forming, of_call("consolidation", tier, CONSOLIDATING, characters)])

    return of_window


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
