"""Whether the process that a client id names is proved dead; in doubt it lives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eden_memory import tasks
from eden_memory.tasks import naming_process, proved_dead

OURS = naming_process("eden-memory")
pytestmark = pytest.mark.skipif(OURS == "eden-memory", reason="this system does not tell processes apart")


def ended() -> str:
    """The client id of a process that has ended."""
    code = "from eden_memory.tasks import naming_process; print(naming_process('eden-memory'))"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_process_that_has_ended_is_dead_and_this_one_is_not() -> None:
    assert proved_dead(ended())
    assert not proved_dead(OURS)


def test_a_pid_that_another_process_has_now_is_dead() -> None:
    name, kernel, pid, started = OURS.split(".")
    assert proved_dead(f"{name}.{kernel}.{pid}.{int(started) - 1}")


def test_a_process_of_another_machine_or_container_is_left() -> None:
    name, kernel, *process = ended().split(".")
    assert not proved_dead(".".join([name, kernel[::-1], *process]))


@pytest.mark.parametrize(
    "client_id",
    [
        "",
        "eden-memory",
        "rdkafka",
        "a.b.c.d",
        pytest.param(f"{OURS}.5", id="a part too many"),
        "eden-memory...",
        "…",
    ],
)
def test_a_client_id_that_names_no_process_is_left(client_id: str) -> None:
    assert not proved_dead(client_id)


@pytest.mark.parametrize("pid", ["x", "-1", "9" * 40])
def test_a_pid_that_is_none_is_left(pid: str) -> None:
    name, kernel, _, started = OURS.split(".")
    assert not proved_dead(f"{name}.{kernel}.{pid}.{started}")


def test_a_process_that_may_not_be_looked_at_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    name, kernel, pid, started = OURS.split(".")
    read = Path.read_text

    def hidden(path: Path) -> str:
        if path.name == "stat":
            raise PermissionError
        return read(path)

    monkeypatch.setattr(Path, "read_text", hidden)
    assert not proved_dead(f"{name}.{kernel}.{pid}.{int(started) - 1}")


def test_where_proc_is_of_another_namespace_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "self").symlink_to(str(os.getpid() + 1))
    monkeypatch.setattr(tasks, "PROC", tmp_path)
    assert naming_process("eden-memory") == "eden-memory"
    assert not proved_dead(OURS)
