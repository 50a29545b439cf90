"""A coordinator that cannot answer yet is asked again, for a while; whatever else it says comes out at once."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from eden_memory.kafka.group_admin import NOT_YET, once_coordinated


@pytest.mark.parametrize("code", NOT_YET)
def test_a_coordinator_that_is_not_ready_is_asked_again(code: int) -> None:
    left = [code]

    def ask() -> str:
        if left:
            raise KafkaException(KafkaError(left.pop()))
        return "removed"

    assert once_coordinated(ask) == "removed"


@pytest.mark.parametrize(
    ("code", "seconds"),
    [(KafkaError.NON_EMPTY_GROUP, 60.0), (NOT_YET[0], 0.0)],  # pyright: ignore
)
def test_another_answer_or_one_that_comes_too_late_comes_out(code: int, seconds: float) -> None:
    def ask() -> None:
        raise KafkaException(KafkaError(code))

    with pytest.raises(KafkaException) as raised:
        once_coordinated(ask, seconds)
    assert raised.value.args[0].code() == code
