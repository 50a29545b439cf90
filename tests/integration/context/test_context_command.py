"""`eden context` as a person uses it."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from eden_memory.cli.main import app
from eden_memory.schemas.documents import RecentFact
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.context.harness import kit_for, now
from tests.integration.python.stored import fact as stored_fact
from tests.integration.python.stored import store

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
    assert "no memory to show here" in found.stderr


async def remembered(settings: Settings, days_ago: int, blob: str = "") -> None:
    """A fact of the session's only user."""
    await prepared(settings)
    scope, at = Scope.of_user("s.default", "s.ada"), now() - timedelta(days=days_ago)
    async with kit_for(settings) as kit:
        fact = stored_fact("f1", scope, "Ada lives in Lima.", formed_at=at, valid_from=at)
        await store(kit, [fact])
        recent = RecentFact(fact_id="f1", version=1, content=fact.content, formed_at=at, valid_from=at)
        await kit.put(scope, blob=blob, recent_facts=(recent,), active_facts=1)


def test_of_facts_that_a_context_shows_nothing_is_said(environment: Settings) -> None:
    asyncio.run(remembered(environment, 1))
    found = run("5")
    assert "Lima" in found.stdout
    assert found.stderr == ""
