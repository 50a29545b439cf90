"""A coordinator that cannot answer yet is asked again, for a while; whatever else it says comes out at once."""

from concurrent.futures import Future

import pytest
from aiokafka.errors import KafkaError as Answer
from confluent_kafka import KafkaError, KafkaException

from eden_memory.kafka import group_admin
from eden_memory.kafka.group_admin import NOT_YET, GroupAdmin


class Coordinator:
    """Stands in for librdkafka's admin client."""

    def __init__(self, *refusals: int) -> None:
        self._refusals = list(refusals)

    def delete_consumer_groups(self, groups: list[str], **_: object) -> "dict[str, Future[None]]":
        answer: Future[None] = Future()
        if self._refusals:
            answer.set_exception(KafkaException(KafkaError(self._refusals.pop())))
        else:
            answer.set_result(None)
        return dict.fromkeys(groups, answer)


@pytest.fixture
def groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> GroupAdmin:
    coordinator = Coordinator(*request.param)
    monkeypatch.setattr(group_admin, "AdminClient", lambda _: coordinator)
    return GroupAdmin({})


@pytest.mark.parametrize("groups", [(code,) for code in NOT_YET], indirect=True)
async def test_a_coordinator_that_is_not_ready_is_asked_again(groups: GroupAdmin) -> None:
    await groups.remove("g")


@pytest.mark.parametrize(
    ("groups", "seconds"),
    [((KafkaError.GROUP_AUTHORIZATION_FAILED,), 60.0), ((NOT_YET[0],), 0.0)],  # pyright: ignore
    indirect=["groups"],
)
async def test_another_answer_or_one_that_comes_too_late_comes_out(
    groups: GroupAdmin, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_admin, "LONGEST_SECONDS", seconds)
    with pytest.raises(Answer) as raised:
        await groups.remove("g")
    assert raised.value.errno in {KafkaError.GROUP_AUTHORIZATION_FAILED, NOT_YET[0]}  # pyright: ignore
