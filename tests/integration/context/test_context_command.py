"""`eden context` as a person uses it."""

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from eden_memory.cli.main import app
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.context.harness import kit_for

pytestmark = pytest.mark.servers


@pytest.fixture
def environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    assert settings.mongodb.uri is not None
    monkeypatch.setenv("EDEN_MONGODB_URI", settings.mongodb.uri.get_secret_value())
    monkeypatch.setenv("EDEN_MONGODB_DATABASE", settings.mongodb.database)
    monkeypatch.setenv("EDEN_KAFKA_BOOTSTRAP", str(settings.kafka.bootstrap))
    return settings


async def prepared(settings: Settings) -> None:
    async with kit_for(settings) as kit:
        await kit.database["messages"].insert_one({"session_id": 5, "user_id": "ada"})
        await kit.authors(5, "ada")
        await kit.put(Scope.of_user("s.default", "s.ada"), blob="Prefers trains.")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["context", *arguments])


def test_the_context_of_a_sessions_only_user_is_printed(environment: Settings) -> None:
    asyncio.run(prepared(environment))
    assert "Prefers trains." in run("5").stdout
    assert "Prefers trains." in run("i.5", "--user", "ada", "--agent", "s.default").stdout
    numbers = json.loads(run("5", "--stats").stdout)
    assert numbers["user"]["words"] == 2


def test_where_nothing_is_remembered_that_is_said(environment: Settings) -> None:
    found = run("s.unknown")
    assert found.exit_code == 0
    assert found.stdout == ""
    assert "nothing is remembered" in found.stderr
