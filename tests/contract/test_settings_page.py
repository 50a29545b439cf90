"""docs/reference/settings.md names every setting as the environment does."""

from typing import Any
from uuid import uuid4

import pytest
from bson import Binary, ObjectId
from pydantic import ValidationError

from eden_memory.directory.id_reader_store import default_agent
from eden_memory.mongo.ids import encode_id
from eden_memory.settings import AgentsSettings, Settings, groups, variables
from tools.reference.export import fixed_numbers, settings_page


def test_every_setting_has_one_row() -> None:
    rows = [line.split("`")[1] for line in settings_page().splitlines() if line.startswith("| `EDEN_")]
    assert sorted(rows) == sorted(variables() - {f"EDEN_{group.upper()}" for group in groups()})


def test_a_variable_read_by_its_name_on_the_page_reaches_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDEN_MEMORY_CONTEXT_FACTS", "7")
    monkeypatch.setenv("EDEN_LLM", "openai")
    settings = Settings()
    assert (settings.memory.context_facts, settings.llm) == (7, "openai")


def test_a_name_that_a_group_does_not_have_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDEN_MEMORY_NO_SUCH", "7")
    with pytest.raises(ValidationError):
        Settings()


@pytest.mark.parametrize("default", ["", "o.zzz", "i.abc", "l.5", "u.5", "bot", "o.", "i.²"])
def test_a_default_agent_that_is_no_typed_id_is_an_error(default: str) -> None:
    with pytest.raises(ValidationError, match="a typed id is"):
        Settings(agents=AgentsSettings(default=default))


@pytest.mark.parametrize("value", ["a b", 5, -(2**63), uuid4(), ObjectId(), Binary(b"0" * 16, 3)])
def test_every_typed_id_is_read_as_the_default_agent(value: Any) -> None:
    assert default_agent(Settings(agents=AgentsSettings(default=encode_id(value)))) == value


@pytest.mark.parametrize(
    "name", ["EDEN_MESSAGE_CONTENT", "EDEN_MESAGES_CONTENT", "EDEN_LLM_URL", "EDEN_MCP_AGNET"]
)
def test_a_name_of_no_group_is_an_error_that_does_not_hold_its_value(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "sk-secret-value")
    monkeypatch.setenv("EDEN_KAFKA_SASL_USERNAME", "sk-secret-value")
    with pytest.raises(ValidationError) as raised:
        Settings()
    assert raised.value.errors()[0]["msg"] == f"not known in the environment: {name}"
    assert "sk-secret-value" not in str(raised.value)


@pytest.mark.parametrize("service", ["EDEN", "EDEN_WORKERS", "EDEN_MEMORY", "EDEN_SERVE"])
def test_variables_of_services_in_kubernetes_are_no_settings(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, tcp = Settings(), "tcp://10.0.0.1:80"
    variables = {"SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "80", "SERVICE_PORT_HTTP": "80", "PORT": tcp}
    variables |= {"PORT_80_TCP": tcp, "PORT_80_TCP_PROTO": "tcp", "PORT_80_TCP_PORT": "80"}
    for name, value in (variables | {"PORT_80_TCP_ADDR": "10.0.0.1"}).items():
        monkeypatch.setenv(f"{service}_{name}", value)
    assert Settings() == before
    monkeypatch.setenv("EDEN_SERVE_PORT", "8080")
    assert Settings().serve.port == 8080
    monkeypatch.setenv("EDEN_SERV_PORT", "8080")
    with pytest.raises(ValidationError):
        Settings()


def test_variables_that_hold_keys_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Settings()
    for name in ("EDEN_API_KEY", "EDEN_API_KEY_API_EXAMPLE_ORG", "EDEN_RERANK_KEY"):
        monkeypatch.setenv(name, "sk-secret-value")
    assert Settings() == before


def test_the_page_lists_every_fixed_number_with_what_it_is() -> None:
    found = fixed_numbers()
    assert found["MOST_FOUND"] == ("200", "Facts that one search returns, at most.")
    assert [name for name, (_, said) in found.items() if not said] == []
    assert all(f"| `{name}` | {value} | {said} |" in settings_page() for name, (value, said) in found.items())
