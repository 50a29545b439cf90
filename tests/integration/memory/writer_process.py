"""The writer in a process of its own, to be killed: `python -m … <mongodb> <kafka> <namespace>`."""

import asyncio
import sys

from eden_memory.tasks import claim_process
from tests.integration.memory.stage_kit import StageKit
from tests.integration.stages_on_servers import on_servers, settings_of
from tests.quick_sessions import quicken


async def main(mongodb: str, kafka: str, name: str) -> None:
    settings = settings_of(mongodb, kafka, (name, f"{name}.", f"{name}."))
    async with on_servers(StageKit, settings, prepare=False) as kit:
        await kit.worker(batch=25).run()


if __name__ == "__main__":
    claim_process()
    quicken()
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3]))
