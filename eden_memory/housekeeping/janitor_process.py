"""The janitor as a part of a process: one active among all, a round every hour."""

import structlog

from eden_memory.housekeeping.janitor import Janitor
from eden_memory.mongo.leases import MongoLease
from eden_memory.stages.leased import Leased

log = structlog.get_logger("eden.janitor")

ROUND_SECONDS = 3_600.0
PAUSE_SECONDS = 30.0


class Housekeeping(Leased):
    """Rounds of the janitor while the lease is held; a round that fails is made again."""

    def __init__(self, lease: MongoLease, janitor: Janitor, every: float = ROUND_SECONDS) -> None:
        super().__init__("janitor", lease, self._tidy, every, PAUSE_SECONDS)
        self._janitor = janitor

    async def _tidy(self) -> None:
        removed = await self._janitor.round()
        if removed.records or removed.outcomes:
            log.info("removed what was consumed", topics=len(removed.records), stages=len(removed.outcomes))
