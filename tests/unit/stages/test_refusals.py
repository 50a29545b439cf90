"""A server that refuses what a stage asks: repeated until the rights are there, said once, shown while it lasts."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from pymongo.errors import OperationFailure

from eden_memory.logs import SAID_SECONDS
from eden_memory.stages import patience, worker
from eden_memory.stages.patience import ServerRefusals, until_done
from eden_memory.stages.stage import RetryPolicy
from eden_memory.stages.worker import Worker

REFUSED = OperationFailure("not authorized on db to execute command", code=13)


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> ServerRefusals:
    """Those of this test; steps are repeated at once."""
    refusals = ServerRefusals()
    for module in (patience, worker):
        monkeypatch.setattr(module, "REFUSALS", refusals)
    monkeypatch.setattr(patience, "SERVERS", RetryPolicy(first=0.0, cap=0.0))
    return refusals


def refusing(times: int, seen: Callable[[], object]) -> Any:
    """A step that works after so many refusals."""
    left = times

    async def step() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            seen()
            raise REFUSED
        return "done"

    return step


async def test_a_refusal_is_said_once_and_over_when_the_step_works(refusals: ServerRefusals) -> None:
    shown: list[str | None] = []
    with structlog.testing.capture_logs() as said:
        for _ in range(2):
            assert await until_done(refusing(5, lambda: shown.append(refusals.reason))) == "done"
            assert refusals.reason is None
    (told,) = (one for one in said if one["event"] == "refused, tried again")  # others may log beside it
    assert "eden doctor" in told["hint"]
    assert shown[0] is None
    assert all("not authorized on db" in (one or "") for one in shown[1:5])


def test_what_lasts_is_said_again_after_a_while() -> None:
    now = [0.0]
    refusals = ServerRefusals(lambda: now[0])
    with structlog.testing.capture_logs() as said:
        for now[0] in (0.0, SAID_SECONDS - 1, SAID_SECONDS, SAID_SECONDS + 1):
            refusals.met("step", REFUSED)
    assert len(said) == 2


async def test_a_stage_is_not_ready_while_a_server_refuses(refusals: ServerRefusals) -> None:
    held = SimpleNamespace(
        membership=SimpleNamespace(homes={"a partition": 1}, behind=lambda: 0),
        lanes=SimpleNamespace(running=0, queued=0, waiting_alone=list[str]),
        health=SimpleNamespace(pauses={}),
    )
    one = cast(Worker, held)
    assert Worker.state(one).ready
    refusals.met("step", REFUSED)
    state = Worker.state(one)
    assert not state.ready
    assert state.what.startswith("refused: OperationFailure: not authorized on db")
