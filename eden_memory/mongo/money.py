"""US dollars as Decimal128, there and back."""

from decimal import Decimal
from typing import Any

from bson import Decimal128


def stored(amount: Decimal) -> Decimal128:
    """For a document or `$inc`: exact."""
    return Decimal128(amount)


def plain(value: Any) -> Decimal:
    """As stored; nothing is 0, without the exponent that a zero may carry."""
    if value is None:
        return Decimal(0)
    amount = value.to_decimal() if isinstance(value, Decimal128) else Decimal(str(value))
    return amount if amount else Decimal(0)
