"""How long an answer may become, in tokens: from the limits that its prompt states."""

from eden_memory.formation.prompt_material import (
    ConsolidationMaterial,
    DecisionMaterial,
    FactMaterial,
    Material,
)

TOKENS_OF_A_WORD = 4
"""English takes 1.3, most other languages up to 3."""
TOKENS_OF_AN_ITEM = 60
"""Its scope, its message numbers, its reason, and the JSON around them."""
LEAST = 256
DOUBLINGS = 3


def most_tokens(material: Material, repair: int = 0) -> int:
    """Tokens of the longest answer that is within the limits; a repair has twice as many as what it repairs."""
    return max(LEAST, _within_limits(material)) << min(repair, DOUBLINGS)


def _within_limits(material: Material) -> int:
    if isinstance(material, ConsolidationMaterial):
        return _items(1, material.words)
    if isinstance(material, FactMaterial):
        return _items(material.most, material.words)
    if isinstance(material, DecisionMaterial):
        return _items(len(material.new), material.words)
    return sum(_items(max(one.most, 1), one.words or material.words) for one in material.scopes)


def _items(number: int, words: int) -> int:
    return number * (words * TOKENS_OF_A_WORD + TOKENS_OF_AN_ITEM)
