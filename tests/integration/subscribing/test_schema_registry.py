"""`eden schemas register` against a real Schema Registry."""

import asyncio
import json
from collections.abc import AsyncGenerator

import httpx2
import pytest
from typer.testing import CliRunner, Result

from eden_memory.cli.schemas import app
from eden_memory.errors import EdenError
from eden_memory.schemas.envelope import data_schema
from eden_memory.schemas.events import REGISTRY
from tests.schema_registry import schema_registry


@pytest.fixture(scope="module")
async def registry() -> AsyncGenerator[str]:
    async with schema_registry() as address:
        yield address


async def _register(address: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, ["register", address])


@pytest.mark.slow
async def test_every_version_of_every_event_is_registered_once(registry: str) -> None:
    for _ in range(2):
        result = await _register(registry)
        assert result.exit_code == 0, result.output
    async with httpx2.AsyncClient(base_url=registry) as client:
        subjects = set((await client.get("/subjects")).json())
        assert subjects == {f"eden.{name}" for name in REGISTRY.events}
        for name, event in REGISTRY.events.items():
            versions = (await client.get(f"/subjects/eden.{name}/versions")).json()
            assert versions == list(range(1, event.VERSION + 1))
        newest = (await client.get("/subjects/eden.FactChanged/versions/latest")).json()
    assert (newest["schemaType"], newest["version"]) == ("JSON", REGISTRY.events["FactChanged"].VERSION)
    assert json.loads(newest["schema"])["$id"] == data_schema("FactChanged", newest["version"])


async def test_a_wrong_address_is_named_without_its_password(registry: str) -> None:
    here = registry.removeprefix("http://").partition("/")[0]
    result = await _register(f"http://ana:secret@{here}/nowhere")
    assert isinstance(result.exception, EdenError)
    assert "127.0.0.1 refused POST /subjects/eden.MessageRecorded/versions: 404" in str(result.exception)
    assert "secret" not in str(result.exception)
