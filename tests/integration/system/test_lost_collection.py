"""A messages collection that is gone: `eden run` starts nothing for it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from eden_memory.assembly import tailer as source_tailing
from eden_memory.errors import EdenError
from eden_memory.settings import Settings
from tests.integration.source.harness import Kit, message, tailer_process
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
MANY = 8


async def dropped(app: Kit) -> None:
    await app.messages.drop()


async def emptied(app: Kit) -> None:
    """Emptied, and the stream's position is lost: the first start finds out by reading what is recorded."""
    await app.messages.delete_many({})
    await app.spoil_position("82" + "00" * 8 + "garbage")
    with pytest.raises(EdenError, match="does not exist or is empty"):
        async with source_tailing.tailing(app.settings) as part:
            await part.run()


async def recorded(at: System, app: Kit) -> None:
    """Messages that formation-trigger has stored."""
    stored: Any = at.memory("messages")

    async def all_of_them() -> bool:
        return await stored.count_documents({}) == MANY

    async with stages(at.settings, ["formation-trigger"]):
        await app.messages.insert_many([message(number) for number in range(MANY)])
        await until(all_of_them, "the messages are stored")
        await app.following()


@pytest.mark.parametrize("lose", [dropped, pytest.param(emptied, marks=pytest.mark.slow)])
async def test_eden_run_refuses_a_lost_collection_before_it_starts_anything(
    settings: Settings, shared_models: Serving, tmp_path: Path, lose: Callable[[Kit], Awaitable[None]]
) -> None:
    placed = fast(settings, shared_models, sessions={"collection": None})
    async with system(placed, shared_models, run=False) as at:
        app = Kit(placed, at.source.client)
        await recorded(at, app)
        await lose(app)
        async with tailer_process(placed, tmp_path / "log") as run:
            assert await run.ended() == 1
        assert f"does not exist or is empty, but {MANY} messages of it are recorded" in run.said
        assert '"leads"' not in run.said, "the tailer has not begun"


async def test_an_emptied_collection_whose_deletions_the_stream_tells_is_followed(
    settings: Settings, shared_models: Serving
) -> None:
    placed = fast(settings, shared_models, sessions={"collection": None})
    async with system(placed, shared_models, run=False) as at:
        app = Kit(placed, at.source.client)
        await recorded(at, app)
        await app.messages.delete_many({})
        await source_tailing.refuse_wrong_source(placed, at.source.client)
