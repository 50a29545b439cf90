"""A process that has loaded the whole program, and forks for each command: loading takes longer than most commands.

`python -m tests.integration.system.forked_commands PATH` listens on a Unix socket. A request is one line of JSON: the
arguments, the environment, the folder to run in, and the file for standard error (null: it comes with the rest). The
answer is what the command prints, and a last line with its exit code.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from select import select
from shutil import rmtree

from eden_memory import cli
from eden_memory.cli.main import main

CODE = b"\nended with "


@cache
def address() -> str:
    """Start it; it ends with this process."""
    folder = tempfile.mkdtemp(prefix="eden-")
    path = f"{folder}/commands"
    command = [sys.executable, "-m", "tests.integration.system.forked_commands", path]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=Path(__file__).parents[3])

    def end() -> None:
        started.kill()
        started.wait()
        rmtree(folder, ignore_errors=True)

    atexit.register(end)
    while not Path(path).exists():
        assert started.poll() is None, "it did not start"
        time.sleep(0.02)
    return path


def serve(path: str) -> None:
    """Load everything, then answer until the process that asked for it is gone."""
    for module in walk_packages(cli.__path__, f"{cli.__name__}."):
        import_module(module.name)
    signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # nobody waits for the forks: the request hears how it ended
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{path}.new")
        listening.listen(16)
        os.rename(f"{path}.new", path)
        while sys.stdin not in select([listening, sys.stdin], [], [])[0]:  # it closes with who started this
            asked, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _answer(asked)
                os._exit(0)
            asked.close()


def _answer(asked: socket.socket) -> None:
    with asked.makefile("rb") as read:
        arguments, environment, folder, errors = json.loads(read.readline())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command == 0:
        os.chdir(folder)
        _run(asked.fileno(), errors, arguments, environment)
    _, status = os.waitpid(command, 0)
    asked.sendall(CODE + str(os.waitstatus_to_exitcode(status)).encode())


def _run(output: int, errors: str | None, arguments: Sequence[str], environment: dict[str, str]) -> None:
    code: object = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output if errors is None else os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.closerange(3, 256)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["eden", *arguments]
        warnings.simplefilter("default" if "PYTHONWARNINGS" in environment else "ignore")
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as the interpreter shows it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    serve(sys.argv[1])
