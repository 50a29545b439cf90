"""`python -m eden_memory.demo.beside_parent …`: run `eden …` until it ends, or until standard input does.

Whoever starts it holds the other end of a pipe. If that process is killed, nobody stops this one, and it would go
on paying for calls.
"""

import os
import runpy
import signal
import sys
from threading import Thread


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run the command line."""
    Thread(target=_end_with_parent, daemon=True).start()
    runpy.run_module("eden_memory.cli.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
