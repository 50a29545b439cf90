"""A process ends within its deadlines, whatever its parts do."""

import asyncio
import signal
import subprocess
import sys
from typing import TextIO, cast

import pytest
from aiokafka.errors import SaslAuthenticationFailed, TopicAuthorizationFailedError
from pymongo.errors import OperationFailure

from eden_memory.errors import EdenError
from eden_memory.stages.patience import until_there
from eden_memory.stages.process import Process, Signals, State


class Part:
    """Ends when told to, when cancelled, or never."""

    name = "part"

    def __init__(self, *, stops: bool = True, ends: bool = True) -> None:
        self._stops, self._ends = stops, ends
        self._stopping = asyncio.Event()
        self.released = asyncio.Event()

    async def run(self) -> None:
        try:
            await (self._stopping if self._stops else asyncio.Event()).wait()
        except asyncio.CancelledError:
            if self._ends:
                raise
            await self.released.wait()

    def stop(self) -> None:
        self._stopping.set()

    def state(self) -> State:
        return State(True, "runs")


async def drained(*parts: Part) -> list[int]:
    """With what the process was ended by force, once one of its parts has ended by itself."""
    ended: list[int] = []
    done = Part()
    done.stop()
    signals = Signals(ended.append)
    try:
        with pytest.raises(EdenError, match="part has ended by itself"):
            await Process([done, *parts], signals, 0.01, cancel_seconds=0.01).run()
    finally:
        signals.over()
    return ended


async def test_parts_that_stop_or_can_be_cancelled_end_the_process_in_order() -> None:
    assert await drained(Part(), Part(stops=False)) == []


async def test_a_part_that_survives_its_cancelling_is_left_behind() -> None:
    stuck = Part(stops=False, ends=False)
    assert await drained(stuck) == [1]
    stuck.released.set()


PROGRAM = """
import asyncio, os, signal, sys, time
from eden_memory.cli import structured_logs
from eden_memory.stages import process

structured_logs.configure()
if sys.argv[1] in ("does not close", "blocks"):
    process.CLOSE_SECONDS = 0.3

class Part:
    name = "part"
    def __init__(self): self.stopping = asyncio.Event()
    async def run(self):
        print("runs", flush=True)
        await self.stopping.wait()
        print("drained", flush=True)
    def stop(self): self.stopping.set()

async def main(signals):
    if "while starting" in sys.argv:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)  # the loop has not heard of it when the process has started
    await process.Process([Part()], signals, 0.1, cancel_seconds=0.1).run()
    if "does not close" in sys.argv:
        await asyncio.Event().wait()
    if "blocks" in sys.argv:
        time.sleep(60)

process.run_until_signal(main)
print("closed", flush=True)
"""


def ended(how: str, *, signalled: bool = True) -> tuple[int, list[str], str]:
    """Exit code, what was printed, and all that was said, of a process of one part, told to end once it runs."""
    command = [sys.executable, "-c", PROGRAM, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as one:
        lines: list[str] = []
        for line in cast(TextIO, one.stdout):
            lines.append(line.rstrip())
            if signalled and lines[-1] == "runs":
                one.send_signal(signal.SIGTERM)
        one.wait(30)
    printed = [line for line in lines if line in {"runs", "drained", "closed"}]
    return one.returncode, printed, "\n".join(lines)


def test_a_signal_drains_and_closes() -> None:
    assert ended("")[:2] == (0, ["runs", "drained", "closed"])


def test_a_signal_that_came_just_before_the_process_had_started_is_not_lost() -> None:
    assert ended("while starting", signalled=False)[:2] == (0, ["runs", "drained", "closed"])


@pytest.mark.parametrize("how", ["does not close", "blocks"])
def test_what_does_not_close_is_left_behind_and_named(how: str) -> None:
    code, printed, said = ended(how)
    assert (code, printed) == (1, ["runs", "drained"])
    assert "ends without what does not close" in said
    assert "in main" in said


async def test_a_server_that_comes_late_is_waited_for() -> None:
    calls = 0

    async def step() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ConnectionError("refused")
        return "there"

    assert await until_there(step, "MongoDB", 60, "start it") == "there"


async def test_a_server_that_does_not_come_is_named_with_what_to_do() -> None:
    async def step() -> None:
        raise ConnectionError("refused")

    with pytest.raises(EdenError, match="MongoDB does not answer: ConnectionError: refused") as raised:
        await until_there(step, "MongoDB", 0.3, "start it")
    assert raised.value.hint == "start it"


async def test_what_no_waiting_can_cure_is_raised_at_once() -> None:
    async def step() -> None:
        raise EdenError("no topic", "make one")

    with pytest.raises(EdenError, match="no topic"):
        await until_there(step, "Kafka", 60, "start it")


@pytest.mark.parametrize(
    "error",
    [OperationFailure("not authorized", 13), TopicAuthorizationFailedError(), SaslAuthenticationFailed()],
)
async def test_a_server_that_refuses_is_not_waited_for(error: Exception) -> None:
    asked = 0

    async def step() -> None:
        nonlocal asked
        asked += 1
        raise error

    with pytest.raises(EdenError, match="it refuses") as said:
        await until_there(step, "it", 60, "start it")
    assert "eden doctor" in said.value.hint
    assert asked == 1
