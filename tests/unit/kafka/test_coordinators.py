"""A coordinator that cannot answer yet is asked again, for a while; whatever else it says comes out at once."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, GroupCoordinatorNotAvailableError, KafkaError

from eden_memory.errors import EdenError
from eden_memory.kafka import group_admin
from eden_memory.kafka.group_admin import NOT_YET, GroupAdmin

NON_EMPTY, UNKNOWN_GROUP = 68, 69


class Broker:
    """Stands in for aiokafka's client; it refuses with these codes, one after the other."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    async def coordinator_lookup(self, _type: Any, _group: str) -> int:
        return 0

    async def send(self, _node: int, _request: Any) -> Any:
        code = self.codes.pop() if self.codes else 0
        return SimpleNamespace(results=[("g", code)])


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()

    def client(**_: Any) -> Broker:
        return broker

    monkeypatch.setattr(group_admin, "AIOKafkaClient", client)
    return broker


@pytest.mark.parametrize("refusal", NOT_YET)
async def test_a_coordinator_that_is_not_ready_is_asked_again(
    broker: Broker, refusal: type[KafkaError]
) -> None:
    broker.codes = [refusal.errno]
    await GroupAdmin({}).remove("g")
    assert broker.codes == []


@pytest.mark.parametrize(
    ("refusal", "seconds"), [(GroupAuthorizationFailedError, 60.0), (GroupCoordinatorNotAvailableError, -1.0)]
)
async def test_another_answer_or_one_that_comes_too_late_comes_out(
    broker: Broker, refusal: type[KafkaError], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_admin, "LONGEST_SECONDS", seconds)
    broker.codes = [refusal.errno]
    with pytest.raises(refusal):
        await GroupAdmin({}).remove("g")


async def test_a_group_that_is_gone_is_removed_and_one_that_is_in_use_is_not(broker: Broker) -> None:
    broker.codes = [UNKNOWN_GROUP]
    await GroupAdmin({}).remove("g")
    broker.codes = [NON_EMPTY]
    with pytest.raises(EdenError, match="g is reading"):
        await GroupAdmin({}).remove("g")
