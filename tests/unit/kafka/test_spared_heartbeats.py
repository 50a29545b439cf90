"""A group's only member sends fewer heartbeats; beside others it sends each."""

from types import SimpleNamespace

from eden_memory.kafka.long_fetches import BEATS_LEFT_OUT, spare_heartbeats


class Coordinator:
    """Counts heartbeats as aiokafka's coordinator sends them."""

    def __init__(self) -> None:
        self.sent = 0

    async def _do_heartbeat(self) -> bool:
        self.sent += 1
        return False


async def beaten(times: int, *, alone: bool) -> tuple[int, list[bool]]:
    """Return how many were sent, and what the routine was told of each."""
    coordinator = Coordinator()
    spare_heartbeats(SimpleNamespace(_coordinator=coordinator), lambda: alone)
    told = [await coordinator._do_heartbeat() for _ in range(times)]  # pyright: ignore[reportPrivateUsage]
    return coordinator.sent, told


async def test_the_only_member_sends_every_third() -> None:
    sent, told = await beaten(3 * (BEATS_LEFT_OUT + 1), alone=True)
    assert sent == 3
    assert told[: BEATS_LEFT_OUT + 1] == [True] * BEATS_LEFT_OUT + [False], (
        "a beat that failed is said to have"
    )


async def test_a_member_beside_others_sends_each() -> None:
    assert (await beaten(5, alone=False))[0] == 5
