"""`eden run` of a demo or an evaluation ends when whoever started it is killed."""

import asyncio
import signal
import sys

COMMAND = (sys.executable, "-m", "eden_memory.demo.beside_parent", "--help")
HOLDING = """
import runpy, time
from eden_memory.demo import beside_parent
runpy.run_module = lambda *_, **__: (print("runs", flush=True), time.sleep(60))
beside_parent.main()
"""


async def test_it_runs_the_command_line() -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    said = await process.stdout.read()
    assert await process.wait() == 0
    assert b"eden" in said


async def test_it_is_told_to_end_when_its_standard_input_ends() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HOLDING), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"runs\n"
    process.stdin.close()
    async with asyncio.timeout(30):
        assert await process.wait() == -signal.SIGTERM
