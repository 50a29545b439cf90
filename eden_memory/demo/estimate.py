"""Estimate what a conversation may cost before a provider is called; each part is estimated high."""

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from math import ceil

from eden_memory.demo.conversation import Conversation, plain_text
from eden_memory.models.call_accounts import PerMillion, per_million
from eden_memory.models.catalogue import OFFLINE, chosen, provider_name
from eden_memory.models.question import Role
from eden_memory.settings import Settings

CHARACTERS_PER_TOKEN = 3.5
INSTRUCTIONS = 1_500
"""Tokens of a prompt besides the conversation."""
ANSWER = 1_500
"""Tokens of an answer, thinking included."""
CALLS: Mapping[Role, int] = {"facts": 1, "decisions": 1, "reflections": 1, "consolidation": 3}
"""Of a window; consolidations of up to three scopes."""
SHOWN_THE_CONVERSATION = frozenset[Role]({"facts", "reflections"})


def estimate(conversation: Conversation, settings: Settings) -> Decimal | None:
    """Return US dollars; 0 if only rules are used, None if a price is unknown."""
    counts = Counter(message.session for message in conversation.messages)
    windows = sum(ceil(count / settings.windows.messages) for count in counts.values())
    characters = sum(len(plain_text(message.content)) + 40 for message in conversation.messages)
    costs = [_of_role(role, windows, characters / CHARACTERS_PER_TOKEN, settings) for role in CALLS]
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)).quantize(Decimal("0.0001")) if len(known) == len(costs) else None


def _of_role(role: Role, windows: int, said: float, settings: Settings) -> Decimal | None:
    """Estimate all calls of a role at the price of the dearest tier's model."""
    prices = _prices(role, settings)
    calls = windows * CALLS[role]
    asked = calls * INSTRUCTIONS + (said if role in SHOWN_THE_CONVERSATION else 0)
    costs = [
        Decimal(asked) * price.input + Decimal(calls * ANSWER) * price.output
        for price in prices
        if price is not None and price.output is not None
    ]
    return max(costs, default=Decimal(0)) / 1_000_000 if len(costs) == len(prices) else None


def _prices(role: Role, settings: Settings) -> list[PerMillion | None]:
    choices = {chosen(role, tier, settings) for tier in (0, 1)}
    return [
        per_million(provider_name(choice.provider), choice.model or "")
        for choice in choices
        if choice.provider != OFFLINE
    ]
