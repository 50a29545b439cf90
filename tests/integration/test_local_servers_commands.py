"""`eden up`, `down` and `status`: both servers, the settings' own servers, two commands at once."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from eden_memory.cli.main import app
from eden_memory.errors import EdenError
from eden_memory.local import servers
from eden_memory.settings import Settings

pytestmark = pytest.mark.servers
UP = "from eden_memory.cli.server_commands import up; up()"


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, arguments, catch_exceptions=False).output


def status() -> dict[str, Any]:
    return {report["name"]: report for report in json.loads(run("status", "--json"))}


@pytest.fixture
def folder(tmp_path: Path, jars_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A local folder of its own, with the checkout's jars; whatever was started in it is stopped."""
    folder = tmp_path / "eden"
    folder.mkdir()
    (folder / "jars").symlink_to(jars_folder)
    monkeypatch.setenv("EDEN_LOCAL_FOLDER", str(folder))
    yield folder
    servers.down(Settings())


def pids_with(folder: Path) -> list[int]:
    """Server processes that work in this folder."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in argument for argument in process.info["cmdline"] or ())
        and Path(process.info["cmdline"][0]).name in ("mongod", "java")
    ]


def endpoint_for_another_program(folder: Path) -> str:
    """Where a program that knows nothing but the folder finds Kafka."""
    code = "from eden_memory.local import servers; from eden_memory.settings import Settings; "
    command = [sys.executable, "-c", code + "print(servers.endpoints(Settings()).kafka)"]
    environment = {"EDEN_LOCAL_FOLDER": str(folder), "PATH": os.environ["PATH"]}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return found.stdout.strip()


def test_up_status_and_down_tell_what_they_did(folder: Path) -> None:
    assert "not running" in run("status")
    assert "Kafka 4.3.1 runs: 127.0.0.1:" in run("up")
    assert "Kafka 4.3.1 was running already" in run("up")
    reports = status()
    assert all(report["running"] for report in reports.values())
    assert sorted(report["pid"] for report in reports.values()) == sorted(pids_with(folder))
    assert endpoint_for_another_program(folder) == reports["Kafka"]["endpoint"]
    assert run("down").startswith("stopped MongoDB and Kafka")
    assert run("down").startswith("no local server was running")
    assert pids_with(folder) == []


@pytest.mark.slow
def test_two_ups_at_once_start_each_server_once(folder: Path) -> None:
    both = [subprocess.Popen([sys.executable, "-c", UP], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [up.communicate(timeout=120)[0] for up in both]
    assert [up.returncode for up in both] == [0, 0]
    assert sum("was running already" in line for line in "".join(said).splitlines()) == 2
    assert len(pids_with(folder)) == 2


def test_up_starts_nothing_that_the_settings_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDEN_MONGODB_URI", "mongodb://someone:secret@db.example.net/?tls=true")
    monkeypatch.setenv("EDEN_KAFKA_BOOTSTRAP", "kafka.example.net:9093")
    said = run("up")
    assert "MongoDB: mongodb://db.example.net/ is used as the settings say" in said
    assert "Kafka: kafka.example.net:9093 is used as the settings say" in said
    assert "secret" not in said + run("status") + run("status", "--json")
    assert pids_with(folder) == []
    found = servers.endpoints(Settings())
    assert (found.mongodb, found.kafka) == (
        "mongodb://someone:secret@db.example.net/?tls=true",
        "kafka.example.net:9093",
    )


def test_each_server_is_started_or_not_on_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDEN_KAFKA_BOOTSTRAP", "kafka.example.net:9093")
    run("up")
    assert [Path(psutil.Process(pid).cmdline()[0]).name for pid in pids_with(folder)] == ["mongod"]
    assert servers.endpoints(Settings()).mongodb.startswith("mongodb://127.0.0.1:")


def test_endpoints_of_servers_that_are_down_say_how_to_start_them(folder: Path) -> None:
    with pytest.raises(EdenError, match="MongoDB does not run here") as raised:
        servers.endpoints(Settings())
    assert "eden up" in raised.value.hint
    assert "EDEN_MONGODB_URI" in raised.value.hint


def test_down_stops_only_what_up_started(folder: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        (folder / "mongodb").mkdir()
        (folder / "mongodb" / "server.json").write_text(
            json.dumps({"ports": {"mongodb": 1}, "pid": other.pid})
        )
        assert "no local server was running" in run("down")
        assert other.poll() is None
        other.kill()


def test_one_server_that_fails_does_not_take_the_other_down(folder: Path) -> None:
    (folder / "kafka").write_text("in the way")
    with pytest.raises(EdenError, match="cannot use"):
        servers.up(Settings())
    assert status()["MongoDB"]["running"]
    (folder / "kafka").unlink()
