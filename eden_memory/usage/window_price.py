"""What a window's formation costs by the price tables, before anything was recorded."""

from collections.abc import Callable
from decimal import Decimal

from eden_memory.models.call_accounts import Cost
from eden_memory.models.calls import Tokens
from eden_memory.models.providers.catalogue import OFFLINE, chosen, provider_name
from eden_memory.models.question import Role
from eden_memory.settings import Settings
from eden_memory.usage.budget_rules import Estimate
from eden_memory.usage.estimates import CONSOLIDATING, FORMING, Expected, start_value, tokens_of

StartValue = Callable[[int, int], Estimate]
"""(tier, characters of the window) → what it is expected to cost."""


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
