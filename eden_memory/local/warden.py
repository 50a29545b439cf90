"""Ends a server when the process that started it for itself is gone, however that ended: `kill -9`, too.

`python -m eden_memory.local.warden PID PROGRAM MARKER`, with the read end of a pipe as standard input. Only the
starting process holds the write end, so the system closes it with that process.
"""

import sys

from eden_memory.local import server_process

STOP_SECONDS = 10.0


def main() -> None:
    """Wait until the pipe is closed, then end the server if it is still that one."""
    pid, program, marker = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    sys.stdin.buffer.read()
    if server_process.is_server(pid, program, marker):
        server_process.end(pid, lambda: server_process.is_server(pid, program, marker), STOP_SECONDS)


if __name__ == "__main__":
    main()
