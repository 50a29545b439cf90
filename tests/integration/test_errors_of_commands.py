"""What the real `eden` command says and its exit code where something is wrong: a sentence, and what to do."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from pymongo import MongoClient

from eden_memory.local.mongo import LocalMongo
from eden_memory.models.catalogue import provider_name
from tests.integration.system.commands import ended
from tests.model_server.serving import model_server_process
from tests.servers import Namespace, TestServers

pytestmark = pytest.mark.servers
EDEN = str(Path(sys.executable).with_name("eden"))
PASSWORD = "pass-word-of-a-user"
Environment = dict[str, str]


@pytest.fixture
def environment(servers: TestServers, namespace: Namespace) -> Environment:
    return {
        **os.environ,
        "EDEN_MONGODB_URI": servers.mongodb_uri,
        "EDEN_MONGODB_DATABASE": namespace.database,
        "EDEN_KAFKA_BOOTSTRAP": servers.kafka_bootstrap,
        "EDEN_KAFKA_TOPIC_PREFIX": namespace.topic_prefix,
        "EDEN_KAFKA_GROUP_PREFIX": namespace.group_prefix,
    }


def eden(
    folder: Path, environment: Mapping[str, str], *words: str, seconds: float = 60.0
) -> tuple[int, list[str]]:
    """The exit code, and the lines on standard error that are no log lines."""
    code, _, errors = ended(folder, environment, *words, seconds=seconds)
    return code, [one for one in errors.splitlines() if not one.startswith("{")]


def said(
    folder: Path, environment: Mapping[str, str], *words: str, seconds: float = 60.0
) -> tuple[int, str, str]:
    """Exit code, the sentence and the hint: there is nothing else."""
    code, lines = eden(folder, environment, *words, seconds=seconds)
    assert len(lines) == 2, "\n".join(lines)
    return code, lines[0], lines[1]


def test_a_host_name_that_does_not_exist_is_one_sentence(tmp_path: Path, environment: Environment) -> None:
    wrong = {**environment, "EDEN_MONGODB_URI": "mongodb+srv://someone:secret@nowhere.invalid/"}
    code, what, hint = said(tmp_path, wrong, "facts")
    assert code == 1
    assert what.startswith("MongoDB's address cannot be used: ")
    assert "EDEN_MONGODB_URI" in hint
    assert "secret" not in what + hint


@pytest.mark.parametrize(("words", "name"), [(["serve"], "EDEN_SERVE_PORT"), (["run"], "EDEN_HTTP_PORT")])
def test_a_port_in_use_is_one_sentence(
    words: list[str], name: str, tmp_path: Path, environment: Environment
) -> None:
    for prepares in (["topics", "apply"], ["setup"]) if words == ["run"] else ():
        assert eden(tmp_path, environment, *prepares)[0] == 0
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, what, hint = said(tmp_path, {**environment, name: port}, *words)
    assert code == 1
    assert what == f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert name in hint


def test_an_endpoint_of_several_models_needs_one_named(tmp_path: Path, environment: Environment) -> None:
    for prepares in (["topics", "apply"], ["setup"]):
        assert eden(tmp_path, environment, *prepares)[0] == 0
    with model_server_process(models=("small", "big", "text-embed")) as models:
        code, what, hint = said(tmp_path, {**environment, "EDEN_LLM": models.openai_url}, "run")
        assert code == 1
        assert what == f"no model is named, and {provider_name(models.openai_url)} has small, big"
        assert "EDEN_MODELS_FAST=" in hint
        other = {
            "EDEN_LLM": models.openai_url,
            "EDEN_MODELS_FAST": "small",
            "EDEN_MODELS_FACTS": "http://127.0.0.1:1/v1",
        }
        code, what, _ = said(tmp_path, {**environment, **other}, "run")
    assert (code, what) == (1, "no model is named for facts at 127.0.0.1:1")


def test_nothing_is_added_for_an_agent_whose_document_is_missing(
    tmp_path: Path, environment: Environment, namespace: Namespace
) -> None:
    mapped = {**environment, "EDEN_AGENTS_COLLECTION": "agents"}
    words = ("add", "I live in Oslo.", "--user", "ada", "--agent", "support")
    code, what, hint = said(tmp_path, mapped, *words)
    assert (code, what) == (3, "there is no agent support in agents")
    assert "Write its document first" in hint
    with MongoClient[dict[str, str]](environment["EDEN_MONGODB_URI"]) as client:
        client[namespace.database]["agents"].insert_one({"_id": "support"})
    assert eden(tmp_path, mapped, *words)[0] == 0


def test_an_import_of_which_nothing_can_be_taken_fails(tmp_path: Path, environment: Environment) -> None:
    assert eden(tmp_path, environment, "setup")[0] == 0
    (tmp_path / "bad.jsonl").write_text("no JSON\n[1]\n")
    for more in ((), ("--dry-run",), ("--json",)):
        assert eden(tmp_path, environment, "import", "mem0", "bad.jsonl", "--yes", *more)[0] == 1
    (tmp_path / "empty.jsonl").write_text("")
    assert eden(tmp_path, environment, "import", "mem0", "empty.jsonl", "--yes")[0] == 0


def test_a_mistake_in_the_settings_file_names_the_file(tmp_path: Path, environment: Environment) -> None:
    (tmp_path / "eden.toml").write_text("[mongodb\n")
    code, what, _ = said(tmp_path, environment, "facts")
    assert code == 2
    assert what.startswith("settings cannot be read: eden.toml: ")
    assert "line 1" in what


def test_a_time_that_is_none_is_refused_with_an_example(tmp_path: Path, environment: Environment) -> None:
    for words in ("facts --since", "dead list --since", "search x --as-of", "tap x --until"):
        code, lines = eden(tmp_path, environment, *words.split(), "yesterday")
        text = " ".join(" ".join(lines).replace("│", " ").split())
        assert code == 2
        assert f"'{words.split()[-1]}'" in text
        assert "'yesterday' is not a time; give an ISO date or time, as 2026-01-31" in text


def test_reading_again_what_is_yet_to_come_is_refused(tmp_path: Path, environment: Environment) -> None:
    code, what, hint = said(tmp_path, environment, "source", "reread", "--since", "2099-01-01")
    assert (code, hint) == (2, "Give a time before now.")
    assert what.startswith("--since lies in the future")


def test_an_amount_below_nothing_is_refused(tmp_path: Path, environment: Environment) -> None:
    code, what, hint = said(tmp_path, environment, "budget", "set", "-1")
    assert (code, what) == (2, "a limit cannot be -1 USD")
    assert "from 0" in hint


def test_a_question_that_nobody_can_answer_names_the_option(tmp_path: Path, environment: Environment) -> None:
    code, lines = eden(tmp_path, environment, "dead", "drop")
    assert (code, lines[-2:]) == (
        2,
        ["this needs a confirmation, and standard input is no terminal", "Give --yes to skip the question."],
    )


def test_add_says_what_the_rules_leave_and_shows_no_encoded_id(
    tmp_path: Path, environment: Environment
) -> None:
    (_, first, formed), (_, second, left) = [
        ended(tmp_path, environment, "add", *texts, "--user", "ada")
        for texts in (("I live in Lima.",), ("I live in Lima.", "Hm, well."))
    ]
    assert first == "asked: `eden run` forms 1 text into memory of user ada\n"
    assert second == "asked: `eden run` forms 2 texts into memory of user ada\n"
    assert formed == ""
    assert "find nothing to remember in 1 of them" in left
    assert "EDEN_LLM" in left


NOT_THERE = (
    ("context", "nope"),
    ("trace", "nope"),
    ("history", "nope"),
    ("windows", "nope"),
    ("cost", "memory", "nope"),
    ("cost", "memory", "user:s.default:s.nope"),
    ("dead", "show", "nope"),
    ("budget", "remove", "--user", "nope"),
    ("topics", "describe", "nope"),
    ("keys", "revoke", "nope"),
    ("namespace", "switch", "nope"),
)


def test_what_is_not_there_is_3(tmp_path: Path, environment: Environment) -> None:
    for prepares in ("setup", "topics apply"):
        assert eden(tmp_path, environment, *prepares.split())[0] == 0
    ended = {words: eden(tmp_path, environment, *words) for words in NOT_THERE}
    assert {words: code for words, (code, _) in ended.items()} == dict.fromkeys(NOT_THERE, 3)
    assert all(len(lines) <= 2 for _, lines in ended.values())


def test_a_session_of_which_nothing_is_remembered_is_0(
    tmp_path: Path, environment: Environment, servers: TestServers, namespace: Namespace
) -> None:
    with MongoClient[dict[str, object]](servers.mongodb_uri) as client:
        client[namespace.database]["messages"].insert_one({"session_id": "known", "content": "hello"})
    assert eden(tmp_path, environment, "context", "known") == (
        0,
        [
            "no memory to show here; use --user ID to show what is known of a user",
            "no message of this session or user has been read yet",
            "`eden run` reads them, and must be running; `eden doctor` checks the mapping.",
        ],
    )
    assert eden(tmp_path, environment, "context", "nope")[0] == 3


@pytest.fixture
def silent() -> Generator[str]:
    """An address that takes connections and never answers."""
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


AWAY_SECONDS = 30.0
"""Below the 40 s that Kafka's client waits, and what doctor took for one server after the other."""


def test_a_silent_mongodb_is_said_sooner_than_a_process_would_give_it_up(
    silent: str, tmp_path: Path, environment: Environment
) -> None:
    def seconds(options: str) -> float:
        started = time.monotonic()
        away = {**environment, "EDEN_MONGODB_URI": f"mongodb://{silent}/?{options}"}
        code, what, hint = said(tmp_path, away, "facts")
        assert code == 1
        assert what.startswith(f"MongoDB does not answer: {silent}")
        assert "EDEN_MONGODB_URI" in hint
        return time.monotonic() - started

    assert seconds("") < seconds("serverSelectionTimeoutMS=9000&connectTimeoutMS=8000")


def test_a_silent_kafka_is_said_soon(silent: str, tmp_path: Path, environment: Environment) -> None:
    away = {**environment, "EDEN_KAFKA_BOOTSTRAP": silent}
    code, lines = eden(tmp_path, away, "topics", "diff", seconds=AWAY_SECONDS)
    assert code == 1
    assert len(lines) == 2, lines
    assert lines[0].startswith("Kafka ")
    assert "EDEN_KAFKA_" in lines[1]


@pytest.mark.parametrize("name", ["Kafka", "MongoDB"])
def test_eden_run_says_once_which_server_it_waits_for_and_then_ends(
    name: str, tmp_path: Path, environment: Environment
) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    away = {
        "Kafka": {"EDEN_KAFKA_BOOTSTRAP": nobody},
        "MongoDB": {"EDEN_MONGODB_URI": f"mongodb://user:{PASSWORD}@{nobody}/?serverSelectionTimeoutMS=4000"},
    }
    assert eden(tmp_path, environment, "setup")[0] == 0
    alone = {**environment, **away[name], "EDEN_RUN_START_SECONDS": "3"}
    code, _, errors = ended(tmp_path, alone, "run")
    lines = errors.splitlines()
    logged = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    waited = [line for line in logged if line.startswith(f"{name} at {nobody} does not answer")]
    assert 1 <= len(waited) <= 2
    assert all("check EDEN_" in line and "`eden up`" in line for line in waited)
    what, hint = (line for line in lines if not line.startswith("{"))
    assert what.startswith(f"{name} at {nobody} does not answer: ")
    assert (code, PASSWORD in errors) == (1, False)
    assert hint.startswith("Check EDEN_")


def test_a_run_that_is_interrupted_says_that_it_stopped_and_no_error(
    tmp_path: Path, environment: Environment
) -> None:
    for prepares in ("setup", "topics apply"):
        assert eden(tmp_path, environment, *prepares.split())[0] == 0
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen([EDEN, "run"], cwd=tmp_path, env=environment, stderr=log) as running,
    ):
        until_in(tmp_path / "log", '"event": "leads"')
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert lines[-1]["event"] == "stopped"
    assert [line for line in lines if line["level"] == "error"] == []


def until_in(log: Path, words: str) -> None:
    """Wait until a running command has logged the words."""
    deadline = time.monotonic() + 60
    while words not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_doctor_says_soon_that_both_are_silent(silent: str, tmp_path: Path, environment: Environment) -> None:
    away = {**environment, "EDEN_MONGODB_URI": f"mongodb://{silent}/", "EDEN_KAFKA_BOOTSTRAP": silent}
    code, shown, errors = ended(tmp_path, away, "doctor", seconds=AWAY_SECONDS)
    assert code == 1
    assert "2 to put right" in " ".join(shown.split())
    assert not errors


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[LocalMongo]:
    """A mongod that checks who may do what."""
    folder = tmp_path_factory.mktemp("guarded")
    key_file = folder / "members.key"
    key_file.write_text("a2V5IG9mIHRoZSBtZW1iZXJz")
    key_file.chmod(0o400)
    options = {"security": {"authorization": "enabled", "keyFile": str(key_file)}}
    server = LocalMongo(folder / "mongodb", options=options)
    server.start()
    with server.connect() as client:
        client.admin.command("createUser", "root", pwd=PASSWORD, roles=["root"])
    with MongoClient[dict[str, object]](_as_user(server, "root")) as root:
        role = {"role": "read", "db": "another"}
        root.admin.command("createUser", "weak", pwd=PASSWORD, roles=[role])
    yield server
    server.kill()


def _as_user(server: LocalMongo, user: str, password: str = PASSWORD) -> str:
    return server.endpoint.replace("://", f"://{user}:{password}@")


def test_a_wrong_password_is_said(guarded: LocalMongo, tmp_path: Path, environment: Environment) -> None:
    wrong = {**environment, "EDEN_MONGODB_URI": _as_user(guarded, "weak", "another-password")}
    for command in ("facts", "run", "serve"):
        code, what, hint = said(tmp_path, wrong, command)
        assert (code, what) == (1, "MongoDB does not accept the user name or the password")
        assert "EDEN_MONGODB_URI" in hint


def test_missing_rights_are_said(guarded: LocalMongo, tmp_path: Path, environment: Environment) -> None:
    weak = {**environment, "EDEN_MONGODB_URI": _as_user(guarded, "weak")}
    for words in ("facts", "setup", "serve", "add x --user ada", "budget set 5"):
        code, what, hint = said(tmp_path, weak, *words.split())
        assert code == 1
        assert what.startswith("MongoDB refuses: not authorized on ")
        assert "eden doctor --rights" in hint
