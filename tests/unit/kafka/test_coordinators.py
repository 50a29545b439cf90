"""A coordinator that cannot answer yet is asked again, for a while; whatever else it says comes out at once."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, GroupCoordinatorNotAvailableError, KafkaError

from eden_memory.errors import EdenError
from eden_memory.kafka import groups
from eden_memory.kafka.groups import GroupAdmin

LOADING, NOT_AVAILABLE, NOT_COORDINATOR, NOT_AUTHORIZED = 14, 15, 16, 30
NON_EMPTY, UNKNOWN_GROUP = 68, 69


class Broker:
    """Stands in for aiokafka's client; it refuses with these codes, one after the other."""

    def __init__(self, *codes: int) -> None:
        self.codes: list[int] = list(codes)

    async def coordinator_lookup(self, _type: Any, _group: str) -> int:
        return 0

    async def send(self, _node: int, _request: Any) -> Any:
        code = self.codes.pop() if self.codes else 0
        groups = [(code, "g")]
        return SimpleNamespace(results=[("g", code)], topics=[], groups=groups, error_code=code)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()

    def client(**_: Any) -> Broker:
        return broker

    monkeypatch.setattr(groups, "AIOKafkaClient", client)
    return broker


@pytest.mark.parametrize("code", [LOADING, NOT_AVAILABLE, NOT_COORDINATOR])
async def test_a_coordinator_that_is_not_ready_is_asked_again(broker: Broker, code: int) -> None:
    broker.codes = [code]
    await GroupAdmin({}).remove("g")
    assert broker.codes == []


@pytest.mark.parametrize(
    ("code", "refusal", "seconds"),
    [
        (NOT_AUTHORIZED, GroupAuthorizationFailedError, 60.0),
        (NOT_AVAILABLE, GroupCoordinatorNotAvailableError, -1.0),
    ],
)
async def test_another_answer_or_one_that_comes_too_late_comes_out(
    broker: Broker, code: int, refusal: type[KafkaError], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "LONGEST_SECONDS", seconds)
    broker.codes = [code]
    with pytest.raises(refusal):
        await GroupAdmin({}).remove("g")


async def test_a_group_that_is_gone_is_removed_and_one_that_is_in_use_is_not(broker: Broker) -> None:
    broker.codes = [UNKNOWN_GROUP]
    await GroupAdmin({}).remove("g")
    broker.codes = [NON_EMPTY]
    with pytest.raises(EdenError, match="g is reading"):
        await GroupAdmin({}).remove("g")


async def test_a_refusal_for_the_whole_group_is_not_taken_for_no_offsets(broker: Broker) -> None:
    broker.codes = [NOT_AUTHORIZED]
    with pytest.raises(GroupAuthorizationFailedError):
        await GroupAdmin({}).committed("g")
    broker.codes = [LOADING]
    assert await GroupAdmin({}).committed("g") == {}
    assert broker.codes == []


async def test_once_one_group_is_refused_the_others_are_asked_no_more(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another attempt after the client was closed opened a connection that nobody closed."""
    monkeypatch.setattr(groups, "PAUSE_SECONDS", 0.0)
    broker.codes = [LOADING] * 100 + [NOT_AUTHORIZED, LOADING]
    with pytest.raises(GroupAuthorizationFailedError):
        await GroupAdmin({}).members(["loading", "refused"])
    left = len(broker.codes)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(broker.codes) == left > 0


async def test_of_no_group_nothing_is_asked(broker: Broker) -> None:
    broker.codes = [NOT_AUTHORIZED]
    assert await GroupAdmin({}).members([]) == {}
    assert broker.codes == [NOT_AUTHORIZED]
