"""Indexes as stores declare them: `eden setup` creates them, and its check looks for the same."""

from collections.abc import Mapping
from typing import Any

from pymongo import ASCENDING, DESCENDING, IndexModel

Indexes = Mapping[str, tuple[IndexModel, ...]]
"""Indexes by collection, without prefix."""


def index_on(*fields: str, **options: Any) -> IndexModel:
    """Return an index: ascending, or descending for a name with a minus."""
    keys = [(field.lstrip("-"), DESCENDING if field.startswith("-") else ASCENDING) for field in fields]
    return IndexModel(keys, **options)
