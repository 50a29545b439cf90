"""OmniMemEval's client of the examples, on a base class of the harness's shape: add, search and delete over HTTP."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from importlib import import_module
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from eden_memory.mongo.client import connect
from eden_memory.settings import Settings
from tests.integration.context.harness import Kit
from tests.integration.doors.conftest import doors_of
from tests.integration.mcp.written import ROOT
from tests.integration.system.running_system import fast, system, until
from tests.model_server.script import Asked, Said, default_script
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
CLIENT = ROOT / "examples" / "harnesses" / "eden_client.py"
BASE = """
import os
from collections.abc import Callable, Iterator
from typing import Any

import httpx2


def env_str(name: str, default: str | None = None) -> str | None:
    return os.environ.get(name, default)


def env_int(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


def iter_batches(items: list[Any], batch_size: int = 20, max_chars: int = 0) -> Iterator[list[Any]]:
    assert max_chars > 0
    for at in range(0, len(items), batch_size):
        yield items[at : at + batch_size]


class BaseApiClient:
    def __init__(self, base_url: str, headers: dict[str, str]) -> None:
        self._session = httpx2.Client(base_url=base_url, headers=headers, timeout=60)

    def _post(self, path: str, **kwargs: Any) -> httpx2.Response:
        return self._session.post(path, **kwargs)

    def _get(self, path: str, **kwargs: Any) -> httpx2.Response:
        return self._session.get(path, **kwargs)

    def _delete(self, path: str, **kwargs: Any) -> httpx2.Response:
        return self._session.delete(path, **kwargs)

    def _retry(self, fn: Callable[[], Any]) -> Any:
        return fn()
"""
"""The parts of the harness's base class that a client uses."""


def verbatim(asked: Asked) -> Said:
    """What is said about a canoe is a fact, word for word."""
    if asked.kind != "facts" or not asked.labels:
        return default_script(asked)
    said = {number: text.splitlines()[0].rpartition(": ")[2] for number, text in asked.messages.items()}
    return {
        "facts": [
            {"text": text, "scope": asked.labels[0], "messages": [number], "about": "person"}
            for number, text in said.items()
            if "canoe" in text
        ]
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A client factory as in the harness, with our client in it."""
    factory = tmp_path / "client_factory"
    factory.mkdir()
    (factory / "__init__.py").touch()
    (factory / "base_client.py").write_text(BASE)
    copy(CLIENT, factory)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in [name for name in sys.modules if name.startswith("client_factory")]:
        monkeypatch.delitem(sys.modules, name)
    return factory


@pytest.fixture
async def client(folder: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Any]:
    async with serving(verbatim) as models:
        placed = fast(settings, models, memory={"sharing": "private"})
        assert placed.mongodb.uri is not None
        async with (
            system(placed, models),
            connect(placed.mongodb.uri.get_secret_value()) as mongo,
            doors_of(Kit(placed, mongo)) as doors,
        ):
            monkeypatch.setenv("EDEN_BASE_URL", doors.url)
            monkeypatch.setenv("EDEN_FORM_SECONDS", "60")
            yield import_module(f"{folder.name}.eden_client").EdenClient()


async def test_a_harness_adds_searches_and_deletes(client: Any) -> None:
    ada, bob = "exp user/0 a", "exp_user_0_b"
    said = [
        {"role": "user", "content": "My canoe is called Petrel.", "chat_time": "2024-05-08T13:56:00Z"},
        {"role": "assistant", "content": "A fine name.", "chat_time": "2024-05-08T13:57:00Z"},
    ]
    await asyncio.to_thread(client.delete, ada)
    await asyncio.to_thread(client.add, said, ada, session_key="session_1")

    async def found() -> bool:  # formed when `add` returns; a search hears of it a moment later
        lines = (await asyncio.to_thread(client.search, "What is the canoe called?", ada, 5)).splitlines()
        return lines[:1] == ["[2024-05-08T13:56] My canoe is called Petrel."]

    await until(found, "the search finds what was added")
    assert await asyncio.to_thread(client.search, "What is the canoe called?", bob, 5) == ""
    await asyncio.to_thread(client.delete, ada)

    async def forgotten() -> bool:
        return not await asyncio.to_thread(client.search, "What is the canoe called?", ada, 5)

    await until(forgotten, "a user who is deleted is forgotten")
    await asyncio.sleep(1.1)  # what is said in the second of a deletion is forgotten with it
    again = [{"role": "user", "content": "My canoe is called Gannet."}]
    await asyncio.to_thread(client.add, again, ada)

    async def renamed() -> bool:
        after = await asyncio.to_thread(client.search, "What is the canoe called?", ada, 5)
        assert "Petrel" not in after
        return "Gannet" in after

    await until(renamed, "what is added after that is found, and nothing of before")
