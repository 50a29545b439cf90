"""consolidation in a process that is killed before it publishes what it has stored.

`… <mongodb> <kafka> <db> <topics> <groups>`
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from eden_memory.kafka.connection import client_kwargs
from eden_memory.processors import pipeline
from eden_memory.settings import Settings
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.publishing import Publisher, new_producer
from eden_memory.tasks import claim_process
from tests.integration.formation.consolidation.consolidation_kit import Kit
from tests.integration.stages_on_servers import on_servers, settings_of
from tests.quick_sessions import quicken


class KillingPublisher(Publisher):
    """Ends the process, as `kill -9` does, in place of publishing."""

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


async def run_process(settings: Settings) -> None:
    async with on_servers(Kit, settings, prepare=False) as kit:
        assert settings.kafka.bootstrap is not None
        client = client_kwargs(settings.kafka, settings.kafka.bootstrap)
        kit.publisher = KillingPublisher(lambda: new_producer(client))
        await kit.worker(pipeline.CONSOLIDATION).run()


if __name__ == "__main__":
    claim_process()
    quicken()
    _, mongodb, kafka, database, topics, groups = sys.argv
    asyncio.run(run_process(settings_of(mongodb, kafka, (database, topics, groups))))
