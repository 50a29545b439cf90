"""`eden topics` and `eden schemas` as people and programs call them."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import typer
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore
from typer.testing import CliRunner, Result

from eden_memory.cli import schemas, topic_commands
from eden_memory.errors import EdenError
from eden_memory.kafka.connection import admin_config
from eden_memory.settings import Settings
from tests.servers import wait_until

app = typer.Typer()
app.add_typer(topic_commands.app, name="topics")
app.add_typer(schemas.app, name="schemas")


@pytest.fixture
def eden(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`eden …` with this test's settings in its environment."""
    environment = {
        "EDEN_KAFKA_BOOTSTRAP": str(settings.kafka.bootstrap),
        "EDEN_KAFKA_TOPIC_PREFIX": settings.kafka.topic_prefix,
        "EDEN_KAFKA_PARTITIONS": "1",
    }

    def run(*arguments: str, answer: str | None = None, **more: str) -> Result:
        return CliRunner().invoke(app, arguments, input=answer, env=environment | more)

    return run


def make_topics(settings: Settings, names: Sequence[str]) -> None:
    admin: Any = AdminClient(admin_config(settings.kafka, str(settings.kafka.bootstrap)))
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        created.result(30)
    wait_until(lambda: set(names) <= set(admin.list_topics(timeout=10).topics), "the new topics")


@pytest.mark.servers
def test_diff_says_by_its_exit_code_whether_apply_is_needed(eden: Any, settings: Settings) -> None:
    assert (before := eden("topics", "diff")).exit_code == 1
    assert f"{settings.kafka.topic_prefix}chat.messages: missing" in before.stdout

    applied = eden("topics", "apply", "--json")
    assert applied.exit_code == 0
    assert {one["what"] for one in json.loads(applied.stdout)["differences"]} == {"missing"}

    after = eden("topics", "diff", "--json")
    assert after.exit_code == 0
    assert json.loads(after.stdout) == {"differences": [], "unknown": [], "applied": False}


@pytest.mark.servers
def test_apply_says_what_it_had_to_leave_and_fails(eden: Any) -> None:
    eden("topics", "apply")
    again = eden("topics", "apply", EDEN_KAFKA_PARTITIONS="2")
    assert again.exit_code == 1
    assert "compacted" in again.stdout
    assert "Re-form" in again.stdout


@pytest.mark.servers
def test_unknown_topics_are_deleted_only_after_a_yes(eden: Any, settings: Settings) -> None:
    stray = settings.kafka.topic_prefix + "stray"
    eden("topics", "apply")
    make_topics(settings, [stray])
    assert eden("topics", "apply", "--delete-unknown", answer="n\n").exit_code == 0
    assert json.loads(eden("topics", "diff", "--json").stdout)["unknown"] == [stray]
    assert eden("topics", "apply", "--delete-unknown", answer="y\n").exit_code == 0
    assert json.loads(eden("topics", "diff", "--json").stdout)["unknown"] == []


@pytest.mark.servers
def test_without_a_prefix_nothing_is_deleted(eden: Any) -> None:
    refused = eden("topics", "apply", "--delete-unknown", "--yes", EDEN_KAFKA_TOPIC_PREFIX="")
    assert isinstance(refused.exception, EdenError)
    assert "prefix" in str(refused.exception)


@pytest.mark.servers
def test_describe_shows_what_is_declared_beside_what_is_there(eden: Any, settings: Settings) -> None:
    eden("topics", "apply")
    (facts,) = json.loads(eden("topics", "describe", "memory.facts", "--json").stdout)
    assert facts["topic"] == settings.kafka.topic_prefix + "memory.facts"
    assert facts["events"] == ["FactChanged"]
    assert facts["on_broker"] == facts["declared"]
    assert "memory.facts" in eden("topics", "describe").stdout
    assert "cleanup.policy" in eden("topics", "describe", "memory.facts").stdout
    assert isinstance(eden("topics", "describe", "memory.fact").exception, EdenError)


def test_check_names_what_is_not_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(*_: object) -> list[str]:
        return ["docs/reference/events.md"]

    monkeypatch.setattr(schemas, "documents", stale)
    checked = CliRunner().invoke(app, ["schemas", "check"])
    assert isinstance(checked.exception, EdenError)
    assert str(checked.exception).startswith("docs/reference/events.md: ")


def test_a_type_that_does_not_exist_cannot_be_released() -> None:
    refused = CliRunner().invoke(app, ["schemas", "release", "Nonsense"])
    assert isinstance(refused.exception, EdenError)
