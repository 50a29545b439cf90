"""An application that imports the package finds PyMongo and aiokafka as they are; `eden` patches its own process."""

import subprocess
import sys

import pytest

APPLICATION = """
import asyncio
from aiokafka.consumer import fetcher
from pymongo import lock, pool_shared
from pymongo.asynchronous import pool

def patched():
    names = ((lock, "wait_for"), (pool_shared, "_CancellationContext"), (pool, "async_receive_message"),
             (pool, "async_sendall"), (fetcher, "MemoryRecords"), (fetcher, "PartitionRecords"))
    found = [(name, getattr(module, name, None)) for module, name in names]
    return sorted(name for name, one in found if one and one.__module__.startswith("eden_memory"))

async def main():
    from eden_memory.api.service import MemoryService
    from eden_memory.kafka.connection import client_kwargs
    from eden_memory.settings import KafkaSettings, Settings
    settings = Settings()
    MemoryService("helper", settings=settings)
    client_kwargs(KafkaSettings(), "127.0.0.1:1")

asyncio.run(main())
print(*patched())
"""
CLAIMED = "from eden_memory.tasks import claim_process\nclaim_process()\n"


def run(code: str) -> list[str]:
    """What a process with this program has patched."""
    environment = {"EDEN_MONGODB_URI": "mongodb://127.0.0.1:1"}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def test_an_application_that_uses_the_service_finds_its_libraries_unpatched() -> None:
    assert run(APPLICATION) == []


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="PyMongo needs no patch there")
def test_a_process_of_our_own_is_patched_where_it_connects() -> None:
    assert run(CLAIMED + APPLICATION) == ["MemoryRecords", "PartitionRecords", "wait_for"]
