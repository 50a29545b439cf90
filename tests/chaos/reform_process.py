"""One process of the fault run over reforms: `eden reform NAME`, until it is killed or has formed everything."""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from eden_memory.cli.replay import reform
from eden_memory.models import providers as _loaded  # noqa: F401  # pyright: ignore[reportUnusedImport]
from eden_memory.mongo.leases import LeaseLost
from eden_memory.replay.reform import reform_store
from eden_memory.replay.reform.namespace_reform import ReformRequest
from eden_memory.settings import Settings
from eden_memory.stages import membership as consuming
from eden_memory.tasks import claim_process
from tests.chaos.stages_process import SERVER_AWAY

FORMED = 0


@dataclass(frozen=True)
class Place:
    """Where everything is."""

    environment: Mapping[str, str]
    session_ms: int
    lease_seconds: float


def main(place: Place, name: str, given: ReformRequest, log: Path) -> None:
    """The command's own function; what it says goes to the log."""
    claim_process()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(place.environment)
    consuming.SESSION_MS, consuming.HEARTBEAT_MS = place.session_ms, 300
    reform_store.LEASE_SECONDS = place.lease_seconds
    try:
        asyncio.run(
            reform.reformed(Settings(), name, given, Console(width=150, force_terminal=False), yes=True)
        )
    except LeaseLost as error:  # it got no time of the processor for so long
        sys.stderr.write(f"{error}\n")
        sys.exit(SERVER_AWAY)
