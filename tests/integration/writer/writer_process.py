"""The writer in a process of its own, to be killed: `python -m … <mongodb> <kafka> <namespace>`."""

import asyncio
import sys

from pydantic import SecretStr

from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from tests.integration.writer.stage_kit import stage_kit


async def main(mongodb: str, kafka: str, name: str) -> None:
    settings = Settings(
        mongodb=MongoSettings(uri=SecretStr(mongodb), database=name),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(bootstrap=kafka, topic_prefix=f"{name}.", group_prefix=f"{name}."),  # pyright: ignore[reportCallIssue]
    )
    async with stage_kit(settings, prepare=False) as kit:
        await kit.worker(batch=25).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3]))
