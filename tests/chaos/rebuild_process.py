"""One process of the fault run over rebuilding: `eden rebuild`, until it is killed."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eden_memory.cli.replay.rebuild import rebuild
from eden_memory.stages import membership as consuming
from eden_memory.stages.failure_decisions import Kind, classify
from eden_memory.tasks import claim_process
from tests.chaos.stages_process import SERVER_AWAY


@dataclass(frozen=True)
class Place:
    """Where everything is; `name` None: from nothing."""

    environment: Mapping[str, str]
    folder: Path
    session_ms: int
    name: str | None


def main(place: Place, log: Path) -> None:
    """Rebuild and follow, or restore; what it says goes to the log."""
    claim_process()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(place.environment)
    os.chdir(place.folder)
    consuming.SESSION_MS, consuming.HEARTBEAT_MS = place.session_ms, 300
    try:
        rebuild(place.name, follow=place.name is not None, nothing=place.name is None)
    except Exception as error:
        if classify(error) not in (Kind.AWAY, Kind.TRANSIENT):
            raise
        sys.stderr.write(f"a server is away: {type(error).__name__}: {error}\n")
        sys.exit(SERVER_AWAY)
