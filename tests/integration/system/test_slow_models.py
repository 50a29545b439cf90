"""A slow local model: one answer after the other, 5 tokens a second, and the settings of docs/models.md.

Everything that is measured in seconds is a hundredth of what it is outside of tests: the model makes 500 tokens a
second, a call may take 1.2 s (not 120 s), a ping 0.2 s (not 20 s), a handler 3 s (not 300 s).
"""

from collections.abc import AsyncGenerator
from functools import partial

import pytest
from prometheus_client import REGISTRY

from eden_memory.models import guard
from eden_memory.processors import pipeline
from eden_memory.schemas.events import ModelCalled
from eden_memory.settings import Settings
from eden_memory.stages.stage import Stage
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, system
from tests.model_server.script import Asked, Said
from tests.model_server.serving import Serving, serving

pytestmark = pytest.mark.servers
SCALE = 100
SESSIONS, MESSAGES = 20, 5
WORDS = " ".join(f"word{n}" for n in range(24))
ENDED = frozenset({"answered"})


def wordy(asked: Asked) -> Said:
    """Obeys, at the length that answers of local models have."""
    return {"works": True} if asked.kind == "check" else obey(asked)


@pytest.fixture
async def local_model() -> AsyncGenerator[Serving]:
    async with serving(wordy, slots=1, token_seconds=0.2 / SCALE) as models:
        yield models


@pytest.fixture
async def slow(
    settings: Settings, local_model: Serving, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[System]:
    monkeypatch.setattr(pipeline, "Stage", partial(Stage, timeout=300.0 / SCALE))
    monkeypatch.setattr(guard, "PING_SECONDS", guard.PING_SECONDS / SCALE)
    named = {"fast": "local", "free": None, "paid": None, "timeout_seconds": 120.0 / SCALE}
    async with system(fast(settings, local_model, models=named), local_model) as running:
        yield running


@pytest.mark.slow
async def test_a_hundred_messages_are_formed_without_a_failed_attempt(slow: System) -> None:
    failed = _failed_attempts()
    sessions = [(await slow.session(f"user-{n}"), f"user-{n}") for n in range(SESSIONS)]
    said: list[str] = []
    for number, (session, user) in enumerate(sessions):
        texts = [f"fact user: Berth {number}.{n} has {WORDS}." for n in range(MESSAGES - 1)]
        said += await slow.write(session, user, *texts, f"note user: Likes pier {number}.")
    for session, _ in sessions:
        await slow.form(session)
    await slow.formed(said, SESSIONS * MESSAGES)
    assert slow.models.tally.most_at_once > 1, "the calls did wait for one another"
    outcomes = slow.models.tally.outcomes
    assert {name for found in outcomes.values() for name in found} == ENDED
    assert _failed_attempts() == failed
    calls = [one.event for one in await slow.records("memory.usage")]
    assert {one.outcome for one in calls if isinstance(one, ModelCalled)} == ENDED
    assert await slow.dead() == []


def _failed_attempts() -> float:
    samples = (one for found in REGISTRY.collect() for one in found.samples)
    return sum(one.value for one in samples if one.name == "eden_stage_failed_attempts_total")
