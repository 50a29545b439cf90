"""Find free loopback ports, outside the system's range for outgoing connections."""

import random
import socket

HOST = "127.0.0.1"
FIRST, LAST = 20_000, 32_000
"""Below Linux's and macOS's ephemeral ranges: no client takes the port of a server that is down briefly."""


def is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """Return whether something accepts connections on this loopback port."""
    try:
        with socket.create_connection((HOST, port), timeout=1.0):
            return True
    except OSError:
        return False


def choose() -> int:
    """Return a random free port, so that programs that choose at the same time rarely collide."""
    for _ in range(1_000):
        port = random.randint(FIRST, LAST)  # noqa: S311
        if is_free(port):
            return port
    raise OSError(f"no free port between {FIRST} and {LAST} on {HOST}")
