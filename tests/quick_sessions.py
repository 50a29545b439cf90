"""`python -m tests.quick_sessions run …`: `eden`, whose dead members leave their groups as soon as any broker allows.

Tests that kill a worker wait until the broker gives its partitions to another one: 6 s (Kafka's own default of
`group.min.session.timeout.ms`) instead of the 10 s that the program asks for.
"""

from eden_memory.cli.main import main
from eden_memory.stages import membership as consuming

SESSION_MS = 6_000


def quicken() -> None:
    """For all consumers that this process makes from now on."""
    consuming.SESSION_MS = SESSION_MS


if __name__ == "__main__":
    quicken()
    main()
