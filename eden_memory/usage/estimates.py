"""Estimates of a window's cost: from what live formation recorded, else from price tables. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from eden_memory.models.call_accounts import Cost
from eden_memory.models.catalogue import OFFLINE, chosen, provider_name
from eden_memory.models.provider_calls import Tokens
from eden_memory.models.question import Role
from eden_memory.settings import Settings
from eden_memory.usage.budget_rules import Estimate

ENOUGH = 5
"""Formations recorded, from which they are believed without the price tables."""
PLACES = Decimal("0.000000000001")
StartValue = Callable[[int, int], Estimate]
"""(tier, characters of the window) → what it is expected to cost."""


@dataclass(frozen=True, slots=True)
class RecordedCost:
    """The cost of an agent's last formations, all calls included."""

    windows: int
    characters: int
    """Of the windows' texts together."""
    usd: Decimal
    """Of extraction and decisions."""
    consolidation_usd: Decimal
    priced: bool
    """False where a call was charged for at an unknown price."""


NOTHING = RecordedCost(0, 0, Decimal(0), Decimal(0), priced=True)


def estimate(recorded: RecordedCost, start: Estimate, characters: int) -> Estimate:
    """The higher of the average per window and the average per character; with few windows, not below the tables'.

    A share for the consolidation that it may lead to comes on top.
    """
    if recorded.windows == 0:
        return start
    each = recorded.usd / recorded.windows
    long = recorded.usd / recorded.characters * characters if recorded.characters else each
    after = recorded.consolidation_usd / recorded.windows
    usd = max(each, long) + after
    if recorded.windows < ENOUGH:
        usd, after = max(usd, start.reserved), max(after, start.after)
    usd, after = usd.quantize(PLACES), after.quantize(PLACES)
    return Estimate(usd, after) if recorded.priced else Estimate(None, after, usd)


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
"""Start values, on the generous side; what was recorded takes their place after a few windows."""
CONSOLIDATING = Expected(1_500, 500, window=False)
CHARACTERS_PER_TOKEN = 3


def tokens_of(expected: Expected, characters: int) -> tuple[int, int]:
    """Input and output tokens of one call."""
    return expected.input + (characters // CHARACTERS_PER_TOKEN if expected.window else 0), expected.output


def start_value(forming: Sequence[Decimal | None], consolidation: Decimal | None) -> Estimate:
    """From the prices of the expected calls; unknown where one of them is, but for those that are known."""
    calls = (*forming, consolidation)
    usd = sum((call for call in calls if call is not None), Decimal(0)).quantize(PLACES)
    after = (consolidation or Decimal(0)).quantize(PLACES)
    return Estimate(None, after, usd) if None in calls else Estimate(usd, after)


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
        forming = [
            of_call(role, tier, FORMING[role], characters) for role in ("facts", "decisions", "reflections")
        ]
        return start_value(forming, of_call("consolidation", tier, CONSOLIDATING, characters))

    return of_window
