"""What a conversation will cost at most, before a provider is asked for anything."""

from collections import Counter
from decimal import Decimal
from math import ceil

from eden_memory.demo.conversation import Conversation, plain_text
from eden_memory.models.catalogue import OFFLINE, provider_name, used_for
from eden_memory.models.prices import per_million
from eden_memory.settings import Settings

CHARACTERS_PER_TOKEN = 3.5
INSTRUCTIONS = 1_500
"""Tokens of a prompt besides the conversation."""
ANSWER = 3_000
"""Tokens of an answer, thinking included."""
CALLS_WITHOUT_CONVERSATION = 4
"""Of a window: decisions, and consolidations of up to three scopes."""


def estimate(conversation: Conversation, settings: Settings) -> Decimal | None:
    """US dollars; 0 offline, None where a price is unknown. Every call is taken for the dearest model's."""
    asked = [choice for choice in used_for(settings) if choice.provider != OFFLINE]
    if not asked:
        return Decimal(0)
    lengths: Counter[str] = Counter()
    counts = Counter(message.session for message in conversation.messages)
    for message in conversation.messages:
        lengths[message.session] += len(plain_text(message.content)) + 40
    windows = sum(ceil(count / settings.windows.messages) + 1 for count in counts.values())
    said = sum(lengths.values()) / CHARACTERS_PER_TOKEN
    calls = windows * (2 + CALLS_WITHOUT_CONVERSATION)
    tokens_in, tokens_out = 2 * said + calls * INSTRUCTIONS, calls * ANSWER
    prices = [per_million(provider_name(choice.provider), choice.model or "") for choice in asked]
    known = [price for price in prices if price is not None and price.output is not None]
    if len(known) < len(prices):
        return None
    dearest = max(known, key=lambda price: price.output or 0)
    cost = Decimal(tokens_in) * dearest.input + Decimal(tokens_out) * (dearest.output or 0)
    return (cost / 1_000_000).quantize(Decimal("0.0001"))
