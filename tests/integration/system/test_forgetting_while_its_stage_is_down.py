"""A message that is to be forgotten is shown to nobody, however long the forgetting stage does not run."""

import pytest

from eden_memory.api.service import MemoryService
from eden_memory.processors import pipeline
from eden_memory.settings import Settings
from tests.awaiting import until
from tests.integration.system.every_door import Asker, every_door
from tests.integration.system.running_system import AGENT, System, fast, stages, system
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
SAID = "We adopted a greyhound named Pixel on Sunday."
OTHERS = [name for name in pipeline.NAMES if name != pipeline.FORGETTING]


@pytest.mark.parametrize(
    "what", ["message", *(pytest.param(what, marks=pytest.mark.slow) for what in ("session", "user"))]
)
async def test_the_request_goes_and_the_message_stays_away(
    settings: Settings, shared_models: Serving, what: str
) -> None:
    async with system(fast(settings, shared_models), shared_models, run=False) as at:
        user = "ada"
        said_in, asker = await at.session(user), Asker(await at.session(user), user)
        async with stages(at.settings, OTHERS):
            (message,) = await at.write(said_in, user, SAID)
            assert "greyhound" in await _said(at, asker)
            target = {"message": message, "session": said_in, "user": user}[what]
            await at.service.forget(what, target)  # pyright: ignore[reportArgumentType]
            assert "greyhound" not in await _said(at, asker), "while the request waits"
            await until(lambda: _is_erased(at), "the request is erased")
            assert "greyhound" not in await _said(at, asker), "once the request is erased"
        async with stages(at.settings, OTHERS):
            assert "greyhound" not in await _said(at, asker), "after a restart"
        assert await at.memory("erasures").count_documents({}) == 0, "no stage has forgotten anything"
        async with stages(at.settings):
            await until(lambda: _has_erased(at), "the stage carries it out")
        assert "greyhound" not in await _said(at, asker)


async def _said(at: System, asker: Asker) -> str:
    """What a process that has just begun says at every door."""
    async with MemoryService(AGENT, settings=at.settings) as service, every_door(at) as doors:
        own = await service.get_memory_context(asker.session, asker.user)
        explained = await service.why("adopted Sunday", **asker.named)
        return f"{own} {explained} {await doors.quick(asker, ['What did we adopt on Sunday?'])}"


async def _is_erased(at: System) -> bool:
    return await at.source["memory_inbox"].count_documents({}) == 0


async def _has_erased(at: System) -> bool:
    return await at.memory("erasures").count_documents({}) > 0
