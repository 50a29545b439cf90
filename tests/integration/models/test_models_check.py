"""`eden models check`, run as people run it."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from eden_memory.cli import models as models_command
from eden_memory.cli.main import app
from eden_memory.errors import EdenError
from eden_memory.models.catalogue import provider_name
from tests.model_server.serving import ModelServerProcess, model_server_process


@pytest.fixture(scope="module")
def server() -> Generator[ModelServerProcess]:
    with model_server_process() as running:
        yield running


@pytest.fixture
def models(server: ModelServerProcess) -> ModelServerProcess:
    server.change(reset=True, outage=False, models=None, supports="schema", rates={}, rules=())
    return server


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, **environment: str) -> Result:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return CliRunner().invoke(app, ["models", "check", *arguments])


def test_offline_there_is_nothing_to_call_and_a_key_is_mentioned_but_not_used(
    monkeypatch: pytest.MonkeyPatch, models: ModelServerProcess
) -> None:
    found = run(monkeypatch, OPENAI_API_KEY="sk-mine", OPENAI_BASE_URL=models.openai_url)
    assert found.exit_code == 0
    assert "nothing to call" in found.output
    assert "OPENAI_API_KEY is set" in found.output
    assert "sk-mine" not in found.output
    assert models.counts()["calls"] == {}


def test_each_configured_model_is_called_once(
    monkeypatch: pytest.MonkeyPatch, models: ModelServerProcess
) -> None:
    found = run(
        monkeypatch, "--json", EDEN_LLM="openai", OPENAI_API_KEY="k", OPENAI_BASE_URL=models.openai_url
    )
    assert found.exit_code == 1
    told = {one["model"]: one for one in json.loads(found.stdout)["models"]}
    assert list(told) == ["gpt-5-mini", "gpt-5.1", "text-embedding-3-small"]
    assert told["gpt-5-mini"]["used_for"] == ["facts", "decisions", "reflections", "consolidation"]
    assert told["gpt-5-mini"]["supports"] == "schema"
    assert float(told["gpt-5-mini"]["price"]["input"]) > 0
    assert told["text-embedding-3-small"]["problem"] == "64 dimensions, not 1536"
    assert models.counts()["calls"] == {"check": 2, "embeddings": 1}


def test_google_is_asked_for_the_dimensions_wanted(
    monkeypatch: pytest.MonkeyPatch, models: ModelServerProcess
) -> None:
    found = run(
        monkeypatch, "--json", EDEN_LLM="google", GEMINI_API_KEY="k", GOOGLE_GEMINI_BASE_URL=models.google_url
    )
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)["models"]
    assert [one["model"] for one in told] == [
        "gemini-3-flash-preview",
        "gemini-3.1-pro-preview",
        "gemini-embedding-2",
    ]
    assert told[-1]["supports"] == "1536 dimensions"


def test_of_a_compatible_endpoint_it_says_what_was_found_out(
    monkeypatch: pytest.MonkeyPatch, models: ModelServerProcess, tmp_path: Path
) -> None:
    """Also without MongoDB, where the trial of sharing cannot be stored."""
    models.change(supports="json")
    found = run(
        monkeypatch,
        EDEN_LLM=models.openai_url,
        EDEN_MODELS_FAST="small",
        EDEN_MODELS_PAID="big",
        EDEN_MEMORY_SHARING="team",
        EDEN_LOCAL_FOLDER=str(tmp_path),
        COLUMNS="200",
    )
    assert found.exit_code == 0, found.output
    assert "was not stored, so they share nothing yet: MongoDB does not run here" in found.output
    said = [line for line in found.stdout.splitlines() if "127.0.0.1" in line]
    rows = [line for line in said if "tried" not in line and "shared" not in line]
    assert [" json " in row and "unknown" in row for row in rows] == [True, True]
    assert "small" in rows[0]
    assert "facts, decisions, reflections, consolidation" in rows[0]
    assert "small, tried:" in found.output
    assert "settings that fit it: EDEN_MODELS_PROMPTS=" in found.output


def test_what_is_slow_is_said_and_left(monkeypatch: pytest.MonkeyPatch, models: ModelServerProcess) -> None:
    monkeypatch.setattr(models_command, "CHECK_SECONDS", 2.5)
    monkeypatch.setattr(models_command, "REMIND_SECONDS", 0.5)
    models.change(rules=[{"contains": "Porto", "fault": "hang"}])
    found = run(
        monkeypatch, "--no-sharing", EDEN_LLM=models.openai_url, EDEN_MODELS_FAST="small", COLUMNS="200"
    )
    where = f"{provider_name(models.openai_url)} small"
    assert found.exit_code == 0, found.output
    asked = f"{where}: finds facts in 7 languages"
    lines = found.stderr.splitlines()
    assert [line for line in lines if "no answer" not in line] == [
        f"· {where}: a small call, for at most 2.5 s",
        f"· {asked}",
    ]
    assert f"· no answer for 1 s: {asked}" in lines
    slow = f"Stopped after 2.5 s without an answer to this, which is slow: {asked}."
    assert slow in found.stdout


def test_a_model_that_is_not_there_is_told_and_the_exit_code_says_so(
    monkeypatch: pytest.MonkeyPatch, models: ModelServerProcess
) -> None:
    models.change(models=("small",))
    found = run(
        monkeypatch,
        EDEN_LLM=models.openai_url,
        EDEN_MODELS_FAST="small",
        EDEN_MODELS_PAID="big",
        COLUMNS="200",
    )
    assert found.exit_code == 1
    assert "has no model big" in found.output


def test_the_only_model_of_an_endpoint_is_checked_without_its_name(
    monkeypatch: pytest.MonkeyPatch, models: ModelServerProcess
) -> None:
    models.change(models=("only", "embed"))
    found = run(monkeypatch, "--json", EDEN_LLM=models.openai_url)
    assert found.exit_code == 0, found.output
    (told,) = json.loads(found.stdout)["models"]
    assert (told["model"], told["used_for"]) == (
        "only",
        ["facts", "decisions", "reflections", "consolidation"],
    )


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("a", "b"), "has a, b"),
        (tuple(f"m{number}" for number in range(14)), "m10, m11 and 2 more"),
        (("embed",), "does not say which it has"),
    ],
)
def test_of_several_models_one_has_to_be_named(
    names: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, models: ModelServerProcess
) -> None:
    models.change(models=names)
    error = run(monkeypatch, EDEN_LLM=models.openai_url).exception
    assert isinstance(error, EdenError)
    assert said in error.what
    assert error.hint == "Name one: EDEN_MODELS_FAST=… for everything (of another endpoint: URL#model)."


def test_without_its_key_a_provider_asked_for_is_an_error_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = run(monkeypatch, EDEN_LLM="google")
    assert "GEMINI_API_KEY or GOOGLE_API_KEY" in str(found.exception)


def test_every_provider_that_a_role_names_is_called(
    monkeypatch: pytest.MonkeyPatch, models: ModelServerProcess
) -> None:
    with model_server_process() as other:
        found = run(
            monkeypatch,
            "--json",
            EDEN_MODELS_FACTS=f"{models.openai_url}#small",
            EDEN_MODELS_DECISIONS=f"{other.openai_url}#small",
            EDEN_MODELS_CONSOLIDATION="google",
            GEMINI_API_KEY="k",
            GOOGLE_GEMINI_BASE_URL=models.google_url,
        )
        told = json.loads(found.stdout)
        assert [(one["model"], one["used_for"]) for one in told["models"]] == [
            ("small", ["facts"]),
            ("small", ["decisions"]),
            ("gemini-3-flash-preview", ["consolidation"]),
            ("gemini-3.1-pro-preview", ["consolidation of tier 1 and above"]),
        ]
        assert found.exit_code == 0
        assert "much poorer than a model's work: reflections;" in told["notes"][0]
        assert (models.counts()["calls"]["check"], other.counts()["calls"]["check"]) == (3, 1)
        assert [(one["model"], one["settings"]["EDEN_MODELS_PROMPTS"]) for one in told["tried"]] == [
            ("small", "full"),
            ("small", "full"),
        ]
