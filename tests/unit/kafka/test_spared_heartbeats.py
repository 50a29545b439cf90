"""A group's only member sends fewer heartbeats; beside others it waits for none."""

from types import SimpleNamespace

from eden_memory.kafka.topic_reading import SPARING_SECONDS, spare_heartbeats


class Coordinator:
    """Answers heartbeats as aiokafka's coordinator does; `paused` before each, if it was."""

    def __init__(self, answers: list[bool]) -> None:
        self.answers, self.paused = answers, list[bool]()
        self._waited = False

    async def pause(self, seconds: float) -> None:
        assert 0 <= seconds <= SPARING_SECONDS
        self._waited = True

    async def _do_heartbeat(self) -> bool:
        self.paused.append(self._waited)
        self._waited = False
        return self.answers.pop(0)


async def paused(answers: list[bool], *, alone: bool) -> list[bool]:
    """Return whether each heartbeat was paused before; each is sent, and its answer told."""
    coordinator, expected = Coordinator(list(answers)), list(answers)
    spare_heartbeats(SimpleNamespace(_coordinator=coordinator), lambda: alone, coordinator.pause)
    assert [await coordinator._do_heartbeat() for _ in answers] == expected  # pyright: ignore[reportPrivateUsage]
    return coordinator.paused


async def test_the_only_member_waits_before_each_but_the_first() -> None:
    assert await paused([True] * 3, alone=True) == [False, True, True]


async def test_after_one_that_failed_the_next_is_sent_at_once() -> None:
    assert await paused([True, False, False, True, True], alone=True) == [False, True, False, False, True]


async def test_a_member_beside_others_sends_each_at_once() -> None:
    assert await paused([True] * 3, alone=False) == [False] * 3
