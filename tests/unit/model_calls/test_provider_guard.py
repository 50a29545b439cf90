"""Calls at once, Retry-After, outages: how a provider is treated."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Gauge

from eden_memory import metrics
from eden_memory.errors import PermanentError
from eden_memory.models.breaker import Breaker, ProviderAway
from eden_memory.models.guard import Gate, Guard
from eden_memory.models.provider_calls import CallFailed

DOWN = CallFailed("provider_error", "503")


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Provider:
    """Is there or not; counts pings and calls."""

    def __init__(self) -> None:
        self.down = False
        self.pings = 0
        self.calls = 0

    async def ping(self) -> None:
        self.pings += 1
        await asyncio.sleep(0)
        if self.down:
            raise DOWN

    async def call(self) -> str:
        self.calls += 1
        await asyncio.sleep(0)
        if self.down:
            raise DOWN
        return "said"


def failing(error: BaseException) -> Callable[[], Awaitable[str]]:
    async def call() -> str:
        raise error

    return call


@given(st.lists(st.sampled_from(["succeeded", "refused"]), max_size=200), st.integers(1, 64))
def test_the_limit_stays_between_one_and_the_most(ends: list[str], most: int) -> None:
    clock = Clock()
    gate = Gate(most, clock)
    for end in ends:
        clock.now += 1
        gate.running = int(gate.limit)
        if end == "succeeded":
            gate.succeeded()
        else:
            gate.refused(clock.now)
        assert 1 <= gate.limit <= most


def test_all_refusals_of_one_round_halve_once() -> None:
    clock = Clock()
    gate = Gate(64, clock)
    begun = clock.now
    clock.now += 1
    for _ in range(10):
        gate.refused(begun)
    assert gate.limit == 16
    clock.now += 1
    gate.refused(clock.now)
    assert gate.limit == 8


def test_a_gate_that_is_hardly_used_does_not_grow() -> None:
    gate = Gate(64, Clock())
    for _ in range(100):
        gate.succeeded()
    assert gate.limit == 32


async def test_no_more_run_than_the_limit_and_none_is_forgotten() -> None:
    gate = Gate(8, Clock())
    most = 0

    async def work() -> None:
        nonlocal most
        async with gate.turn():
            most = max(most, gate.running)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(work()) for _ in range(50)]
    for task in tasks[10:40:3]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (most, gate.running) == (4, 0)
    async with gate.turn():
        assert gate.running == 1


async def test_many_calls_of_one_stage_do_not_stand_before_another_stages() -> None:
    gate, order = Gate(2, Clock()), list[str]()

    async def call(stage: str) -> None:
        async with gate.turn(stage):
            order.append(stage)
            await asyncio.sleep(0)

    await asyncio.gather(*(call("consolidation") for _ in range(20)), call("fact-extraction"))
    assert order.index("fact-extraction") <= 2
    assert len(order) == 21


async def test_a_waiter_that_is_cancelled_as_its_turn_comes_is_only_cancelled() -> None:
    gate = Gate(1, Clock())
    async with gate.turn():
        waiting = [asyncio.create_task(gate.turn().__aenter__()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in done] == [asyncio.CancelledError, type(None)]


async def test_a_cancelled_waiter_leaves_the_gate_open() -> None:
    gate = Gate(1, Clock())
    async with gate.turn():
        waiting = asyncio.create_task(gate.turn().__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(60), gate.turn():
        assert gate.running == 1


async def test_retry_after_holds_all_callers_of_the_provider() -> None:
    guard = Guard("test", 8, 5.0)
    provider = Provider()
    chat, vectors = guard.breaker("m", provider.ping), guard.breaker("v", provider.ping)
    with pytest.raises(CallFailed) as raised:
        await guard.run(chat, "u1", failing(CallFailed("rate_limited", "429", retry_after=1.0)))
    assert not raised.value.counts
    held = guard.gate.held()
    assert 0 < held <= 1.0
    begun = asyncio.get_running_loop().time()
    assert await guard.run(vectors, "u2", provider.call) == "said"
    assert asyncio.get_running_loop().time() - begun >= held * 0.9


async def test_callers_that_wait_for_a_place_honour_retry_after_too() -> None:
    guard, provider = Guard("test", 2, 5.0), Provider()
    breaker = guard.breaker("m", provider.ping)
    refused = asyncio.Event()

    async def busy() -> str:
        await refused.wait()
        raise CallFailed("rate_limited", "429", retry_after=0.05)

    first = asyncio.create_task(guard.run(breaker, "u1", busy))
    others = [asyncio.create_task(guard.run(breaker, f"u{n}", provider.call)) for n in range(2, 6)]
    await asyncio.sleep(0)
    refused.set()
    await asyncio.gather(first, return_exceptions=True)
    assert guard.gate.held() > 0
    assert provider.calls == 0
    assert await asyncio.gather(*others) == ["said"] * 4
    assert guard.gate.held() == 0


async def test_a_long_retry_after_sends_the_question_back_at_once() -> None:
    guard = Guard("test", 8, 5.0)
    provider = Provider()
    breaker = guard.breaker("m", provider.ping)
    with pytest.raises(CallFailed):
        await guard.run(breaker, "u1", failing(CallFailed("rate_limited", "429", retry_after=50)))
    with pytest.raises(ProviderAway) as raised:
        await guard.run(breaker, "u2", provider.call)
    assert not raised.value.counts
    assert 0 < (raised.value.retry_after or 0) <= 50
    assert provider.calls == 0


async def test_in_an_outage_no_failure_counts_and_calls_stop() -> None:
    guard, provider = Guard("test", 64, 5.0), Provider()
    breaker = guard.breaker("m", provider.ping)
    provider.down = True
    ends = await asyncio.gather(
        *(guard.run(breaker, f"u{n}", provider.call) for n in range(20)), return_exceptions=True
    )
    assert all(isinstance(end, CallFailed) for end in ends)
    assert not any(end.counts for end in ends if isinstance(end, CallFailed))
    calls = provider.calls
    for n in range(20):
        with pytest.raises(ProviderAway) as raised:
            await guard.run(breaker, f"u{n}", provider.call)
        assert not raised.value.counts
        assert raised.value.retry_after
    assert (provider.calls, provider.pings) == (calls, 1)


async def test_a_lone_question_in_an_outage_is_not_held_against_it() -> None:
    guard, provider = Guard("test", 64, 5.0), Provider()
    breaker = guard.breaker("m", provider.ping)
    provider.down = True
    counted = 0
    for _ in range(10):
        with pytest.raises(CallFailed) as raised:
            await guard.run(breaker, "u1", provider.call)
        counted += raised.value.counts
    assert counted == 0


BUSY = CallFailed("rate_limited", "429")
LATE = CallFailed("timed_out", "no answer in 5 s")


@pytest.mark.parametrize("error", [DOWN, BUSY, LATE])
async def test_a_failure_is_charged_only_once_another_unit_of_its_stage_has_succeeded_since(
    error: CallFailed,
) -> None:
    guard, provider = Guard("test", 64, 5.0), Provider()
    breaker = guard.breaker("m", provider.ping)

    async def charged(unit: str = "u1", stage: str = "facts") -> bool:
        with pytest.raises(CallFailed) as raised:
            await guard.run(breaker, unit, failing(error), stage=stage)
        assert raised.value.alone
        assert raised.value.counts == (raised.value.charged and error.outcome != "rate_limited")
        return raised.value.charged

    async def succeeds(unit: str, stage: str = "facts") -> None:
        await guard.run(breaker, unit, provider.call, stage=stage)

    await succeeds("u2")
    assert not await charged(), "what succeeded before the call says nothing of it"
    assert not await charged()
    await succeeds("u2", stage="reflections")
    assert not await charged(), "another stage asks otherwise"
    await guard.run(guard.breaker("other", provider.ping), "u2", provider.call, stage="facts")
    assert not await charged(), "another model may be well"
    await succeeds("u2")
    assert await charged()
    assert not await charged(), "it succeeded before the last failure"
    await succeeds("u1")
    assert not await charged(), "its own success shows nothing"


async def test_what_succeeds_while_a_call_runs_is_a_success_since_it_began() -> None:
    guard, provider = Guard("test", 64, 5.0), Provider()
    breaker = guard.breaker("m", provider.ping)
    runs, goes_on = asyncio.Event(), asyncio.Event()

    async def late() -> str:
        runs.set()
        await goes_on.wait()
        raise LATE

    task = asyncio.create_task(guard.run(breaker, "u1", late, stage="facts"))
    await runs.wait()
    await guard.run(breaker, "u2", provider.call, stage="facts")
    goes_on.set()
    (ended,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(ended, CallFailed)
    assert ended.charged


async def test_a_ping_that_succeeds_never_charges_a_unit() -> None:
    guard, provider = Guard("test", 64, 5.0), Provider()
    breaker = guard.breaker("m", provider.ping)
    for n in range(24):
        with pytest.raises(CallFailed) as raised:
            await guard.run(breaker, f"u{n % 4}", failing(DOWN), stage="facts")
        assert not raised.value.charged
        assert not isinstance(raised.value, ProviderAway)
    assert provider.pings


async def test_a_probe_every_so_often_ends_the_outage_by_itself() -> None:
    clock, provider, told = Clock(), Provider(), list[bool]()
    breaker = Breaker("test/m", provider.ping, clock=clock, opened=told.append)
    provider.down = True
    for n in range(3):
        await breaker.failed(f"u{n}", DOWN)
    waits: list[float] = []
    for _ in range(8):
        with pytest.raises(ProviderAway) as raised:
            await breaker.admit()
        waits.append(raised.value.retry_after or 0)
        clock.now += waits[-1] + 0.001
    assert provider.pings == 8
    assert max(waits) <= 10
    provider.down = False
    await breaker.admit()
    assert told == [True, False]


async def test_many_who_find_a_probe_due_share_it() -> None:
    clock, provider = Clock(), Provider()
    breaker = Breaker("test/m", provider.ping, clock=clock)
    provider.down = True
    for n in range(3):
        await breaker.failed(f"u{n}", DOWN)
    clock.now += 60
    provider.down = False
    await asyncio.gather(*(breaker.admit() for _ in range(50)))
    assert provider.pings == 2


def shown(gauge: Gauge, *labels: str) -> float:
    return gauge.labels(*labels)._value.get()  # pyright: ignore


async def test_metrics_show_the_places_and_the_outage() -> None:
    running: list[float] = []

    class Watched(Provider):
        async def call(self) -> str:
            running.append(shown(metrics.PROVIDER_RUNNING, "shown"))
            return await super().call()

    provider = Watched()
    guard = Guard("shown", 64, 5.0)
    breaker = guard.breaker("m", provider.ping)
    await guard.run(breaker, "u0", provider.call)
    assert shown(metrics.PROVIDER_AWAY, "shown", "m") == 0
    provider.down = True
    for n in range(3):
        with pytest.raises(CallFailed):
            await guard.run(breaker, f"u{n}", provider.call)
    assert shown(metrics.PROVIDER_AWAY, "shown", "m") == 1
    assert max(running) == 1
    assert shown(metrics.PROVIDER_RUNNING, "shown") == 0
    assert shown(metrics.PROVIDER_LIMIT, "shown") >= 1


async def test_one_model_away_leaves_the_others_alone() -> None:
    guard, provider = Guard("test", 64, 5.0), Provider()
    away = Provider()
    away.down = True
    for n in range(5):
        with pytest.raises(CallFailed):
            await guard.run(guard.breaker("pro", away.ping), f"u{n}", away.call)
    assert await guard.run(guard.breaker("flash", provider.ping), "u9", provider.call) == "said"


async def test_an_input_that_is_refused_shows_that_the_provider_is_there() -> None:
    guard, provider = Guard("test", 64, 5.0), Provider()
    breaker = guard.breaker("m", provider.ping)
    for n in range(2):
        with pytest.raises(CallFailed):
            await guard.run(breaker, f"u{n}", failing(DOWN))
    with pytest.raises(PermanentError):
        await guard.run(breaker, "u2", failing(PermanentError("too long")))
    with pytest.raises(CallFailed):
        await guard.run(breaker, "u3", failing(DOWN))
    assert provider.pings == 0
