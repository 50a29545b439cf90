"""What the package logs inside an application: nothing that it did not ask for."""

import subprocess
import sys

import pytest

LOG = (
    "from eden_memory.logs import LibraryLogger; log = LibraryLogger('eden.x'); log.warning('gone', by='us')"
)
TO_LOGGING = (
    "import logging, sys; logging.basicConfig(stream=sys.stdout, format='%(name)s %(levelname)s %(message)s')"
)
TO_STRUCTLOG = "import structlog; structlog.configure(processors=[structlog.processors.KeyValueRenderer()])"


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("", ""),
        (TO_LOGGING, "eden_memory WARNING gone by='us'"),
        (TO_STRUCTLOG, "by='us' event='gone'"),
    ],
    ids=["nothing configured", "logging", "structlog"],
)
def test_the_package_logs_only_where_its_application_has_said_to(before: str, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", f"{before}\n{LOG}"], capture_output=True, text=True, check=True
    )
    assert (ended.stdout.strip(), ended.stderr) == (said, "")


def test_a_failure_is_logged_with_its_trace() -> None:
    code = f"{TO_LOGGING}\n{LOG}\ntry:\n  1/0\nexcept Exception:\n  log.exception('broke')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "eden_memory ERROR broke" in ended.stdout
    assert "ZeroDivisionError" in ended.stdout


SEARCH_WITHOUT_MONGODB = """
import asyncio, structlog
from eden_memory.api import MemoryService
from eden_memory.settings import MongoSettings, Settings

uri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200"

async def main():
    async with MemoryService("a", settings=Settings(mongodb=MongoSettings(uri=uri))) as memory:
        try:
            await memory.search_facts("boats", user="ada")
        except Exception as error:
            print(type(error).__name__)

asyncio.run(main())
"""
STAGES_THAT_FAIL = """
import asyncio
from eden_memory.errors import EdenError
from eden_memory.stages.process import Process, Signals, State

class Part:
    name = "part"
    async def run(self): raise EdenError("it broke")
    def stop(self): ...
    def state(self): return State(True, "runs")

async def main():
    signals = Signals(print)
    try:
        await Process([Part()], signals, 0.1).run()
    except EdenError as error:
        print(type(error).__name__)
    finally:
        signals.over()

asyncio.run(main())
"""


@pytest.mark.parametrize("code", [SEARCH_WITHOUT_MONGODB, STAGES_THAT_FAIL], ids=["a search", "stages"])
def test_an_application_sees_what_it_prints_itself(code: str) -> None:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ended.stdout.count("\n"), ended.stderr) == (1, "")


def test_nothing_of_the_system_loads_structlog() -> None:
    code = "import sys, eden_memory.app.system; print('structlog' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"
