"""Timers of the same period wake a process together."""

import asyncio

import pytest

from eden_memory.tasks import PHASE, until_tick


@pytest.mark.parametrize("now", [0.0, 0.1, 1.4, 1.6, 2.99, 3.0, 100.25])
async def test_a_wait_ends_at_a_multiple_of_its_period(now: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now - PHASE, raising=False)
    left = until_tick(3.0)
    assert 1.5 <= left <= 4.5
    assert (now + left) / 3.0 == pytest.approx(round((now + left) / 3.0))
