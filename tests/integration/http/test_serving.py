"""`eden serve` and `eden keys`: starting, refusing to start, draining; keys shown once."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from eden_memory.access.admission_store import ApiKeys
from eden_memory.api.http.serving import DoorsServer, serving
from eden_memory.cli.keys import app as keys_command
from eden_memory.errors import EdenError
from eden_memory.mongo.client import connect
from eden_memory.settings import ServeSettings, Settings
from tests.model_server.serving import until

pytestmark = pytest.mark.servers


def served(settings: Settings, host: str = "127.0.0.1") -> Settings:
    serve = ServeSettings(host=host, port=0)  # pyright: ignore[reportCallIssue]
    return settings.model_copy(update={"serve": serve})


@asynccontextmanager
async def running(
    settings: Settings, **options: Any
) -> AsyncGenerator[tuple[DoorsServer, str, asyncio.Task[None]]]:
    async with serving(served(settings), **options) as parts:
        doors = next(one for one in parts if isinstance(one, DoorsServer))
        task = asyncio.create_task(doors.run())
        await until(lambda: doors.server.started or task.done())
        port = doors.server.servers[0].sockets[0].getsockname()[1]
        try:
            yield doors, f"http://127.0.0.1:{port}", task
        finally:
            doors.stop()
            await task


async def test_a_stop_ends_event_streams_and_then_the_server(settings: Settings) -> None:
    async with (
        running(settings) as (doors, url, task),
        httpx2.AsyncClient(base_url=url, timeout=30) as client,
    ):
        await until(lambda: doors.state().ready)
        assert (await client.get("/readyz")).json()["ready"] is True
        async with client.stream("GET", "/v1/agents/a/events") as stream:
            lines = stream.aiter_lines()
            while not (await anext(lines)).startswith(": listening"):
                pass
            doors.stop()
            async with asyncio.timeout(60):
                assert [line async for line in lines if line] == []
                await task


@pytest.mark.slow
async def test_a_key_that_is_revoked_while_the_clock_is_set_back_is_turned_away(settings: Settings) -> None:
    time = [datetime.now(UTC)]
    assert settings.mongodb.uri is not None
    async with (
        connect(settings.mongodb.uri.get_secret_value()) as mongo,
        running(settings, clock=lambda: time[0]) as (_, url, _),
        httpx2.AsyncClient(base_url=url, timeout=30) as client,
    ):
        keys = ApiKeys(mongo[settings.mongodb.database], settings.names)
        secret, key = await keys.create("one")

        async def status() -> int:
            headers = {"Authorization": f"Bearer {secret}"}
            return (await client.get("/metrics", headers=headers)).status_code

        assert await status() == 200
        time[0] -= timedelta(days=1)
        await keys.revoke(key.id)
        async with asyncio.timeout(60):
            while await status() != 401:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.1)


async def test_others_reach_no_server_without_a_key(settings: Settings) -> None:
    with pytest.raises(EdenError, match="there is no API key"):
        async with serving(served(settings, "0.0.0.0")):
            pass
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        keys = ApiKeys(client[settings.mongodb.database], settings.names)
        _, key = await keys.create("one")
        async with serving(served(settings, "0.0.0.0")):
            pass
        await keys.revoke(key.id[:8])
    with pytest.raises(EdenError, match="there is no API key"):
        async with serving(served(settings, "0.0.0.0")):
            pass


def test_keys_are_made_shown_once_listed_and_revoked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.mongodb.uri is not None
    monkeypatch.setenv("EDEN_MONGODB_URI", settings.mongodb.uri.get_secret_value())
    monkeypatch.setenv("EDEN_MONGODB_DATABASE", settings.mongodb.database)
    monkeypatch.setenv("EDEN_KAFKA_BOOTSTRAP", "127.0.0.1:1")

    def eden(*words: str) -> Any:
        result = CliRunner().invoke(keys_command, list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    made = json.loads(
        eden("create", "mine", "--agent", "a", "--user", "i.5", "--right", "read", "--json").stdout
    )
    assert made["secret"].startswith("eden_")
    assert (made["agents"], made["users"], made["rights"]) == (["s.a"], ["i.5"], ["read"])
    with pytest.raises(EdenError, match="there is a key named"):
        eden("create", "mine")
    with pytest.raises(EdenError, match="unknown rights: fly"):
        eden("create", "other", "--right", "fly")
    shown = eden("list", "--json").stdout
    assert made["secret"] not in shown
    assert [one["name"] for one in json.loads(shown)] == ["mine"]
    assert "mine is revoked" in eden("revoke", "mine").stdout
    assert json.loads(eden("list", "--json").stdout) == []
    with pytest.raises(EdenError, match="no valid key"):
        eden("revoke", "mine")
