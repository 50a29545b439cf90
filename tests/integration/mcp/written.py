"""The blocks of code that a page shows, for tests that run them as they are written, and `eden serve`."""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, heading: str) -> list[tuple[str, str]]:
    """(language, text) of every block below a heading of the second level, in order."""
    text = (ROOT / page).read_text()
    start = text.index(f"\n## {heading}\n")
    end = text.find("\n## ", start + 1)
    return [(one[1], one[2]) for one in BLOCK.finditer(text[start : end if end > 0 else None])]


@asynccontextmanager
async def eden_serve(environment: Mapping[str, str], port: str) -> AsyncGenerator[None]:
    """`eden serve` in a process of its own, until the block ends."""
    command = (sys.executable, "-m", "eden_memory.cli.main", "serve")
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        async with httpx2.AsyncClient() as http, asyncio.timeout(120):
            while not await _ready(http, port):
                assert process.returncode is None, "eden serve has ended"
                await asyncio.sleep(0.1)
        yield
    finally:
        process.terminate()
        await process.wait()


async def _ready(http: httpx2.AsyncClient, port: str) -> bool:
    try:
        return (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
    except httpx2.TransportError:
        return False
