"""What a window is expected to cost before anything was counted. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from eden_memory.models.call_accounts import Cost
from eden_memory.models.catalogue import OFFLINE, chosen, provider_name
from eden_memory.models.provider_calls import Tokens
from eden_memory.models.question import Role
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
