"""Budgets are looked at less often while there are none."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eden_memory.usage.reservation_release import BudgetKeeping

NOW = datetime(2026, 3, 1, tzinfo=UTC)
RESERVATION = {"_id": "f1", "complete_at": NOW, "reserved_at": NOW}


class Stores:
    """Budgets and reservations; nothing is formed."""

    def __init__(self, reservations: Sequence[Mapping[str, Any]]) -> None:
        self._reservations = reservations

    async def open(self, after: Mapping[str, Any] | None, most: int) -> Sequence[Mapping[str, Any]]:
        return self._reservations if after is None else ()

    async def all(self) -> Sequence[Any]:
        return ()

    async def costs(self, calls: set[str]) -> Mapping[str, float]:
        return {}

    async def find(self, stage: str, asked: Sequence[str]) -> Mapping[str, Any]:
        return {}


@pytest.mark.parametrize(("reservations", "used"), [((), False), ((RESERVATION,), True)])
async def test_a_round_tells_whether_there_is_anything_to_look_at(
    reservations: Sequence[Mapping[str, Any]], used: bool
) -> None:
    stores: Any = Stores(reservations)
    keeping = BudgetKeeping(stores, stores, stores, settle=timedelta(hours=1))
    assert await keeping.round(NOW) is used
