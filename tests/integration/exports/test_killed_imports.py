"""`eden import eden` is killed again and again: the next run goes on, and nothing is lost, doubled or half taken."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from eden_memory.replay.rebuild.document_comparing import MemoryComparison
from eden_memory.settings import Settings
from tests.integration.replay.replay_kit import ReplayKit
from tests.integration.stages_on_servers import on_servers

pytestmark = pytest.mark.servers
SCOPES = 40
IN_SMALL_PARTS = "tests.integration.exports.small_parts"
KILLS = 3


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[ReplayKit]:
    async with on_servers(ReplayKit, settings) as kit:
        yield kit


@pytest.fixture
async def other(elsewhere: Settings) -> AsyncGenerator[ReplayKit]:
    async with on_servers(ReplayKit, elsewhere) as other:
        yield other


async def published(kit: ReplayKit) -> int:
    return sum((await kit.ends()).values())


async def noted(kit: ReplayKit) -> int:
    """How many claims and published batches the ledger holds."""
    return await kit.database["memory_outcomes"].count_documents({"stage": "import"})


async def killed(other: ReplayKit, file: Path) -> bool:
    """Run the command, and kill it once it has come a step further; False if it ended by itself."""
    before = await noted(other)
    process = other.eden("import", "eden", str(file), "--yes", program=IN_SMALL_PARTS)
    while process.poll() is None:
        if await noted(other) > before:
            process.send_signal(signal.SIGKILL)
        await asyncio.sleep(0.002)
    await asyncio.to_thread(process.communicate)
    return process.returncode == -signal.SIGKILL


@pytest.mark.slow
async def test_killed_again_and_again_it_is_whole_in_the_end(
    kit: ReplayKit, other: ReplayKit, tmp_path: Path
) -> None:
    await kit.lived(SCOPES)
    file = tmp_path / "memory.jsonl"
    code, said = await kit.told("export", str(file))
    assert code == 0, said
    kills = 0
    while kills < KILLS and await killed(other, file):
        kills += 1
    assert kills >= KILLS, "once with its claims, and after each batch"
    code, said = await other.told("import", "eden", str(file), "--yes")
    assert code == 0, said
    await other.live()
    for name in ("facts", "reflections", "consolidated", "blobs", "snapshots"):
        out = {"$out": {"db": other.database.name, "coll": f"from_{name}"}}
        await (await kit.database[f"memory_{name}"].aggregate([out])).to_list()
    comparing = MemoryComparison(other.database, "from_", "memory_")
    assert not (await comparing.whole()).differing
    verdict, _ = await other.rebuilt()
    assert verdict.equal
    ends = await published(other)
    assert (await other.told("import", "eden", str(file), "--yes"))[0] == 0
    assert await published(other) == ends, "a further run publishes nothing"


@pytest.mark.slow
async def test_an_installation_without_topics_is_told_what_to_do(
    kit: ReplayKit, elsewhere: Settings, tmp_path: Path
) -> None:
    await kit.lived(1)
    file = tmp_path / "memory.jsonl"
    assert (await kit.told("export", str(file)))[0] == 0
    async with on_servers(ReplayKit, elsewhere, prepare=False) as bare:
        code, said = await bare.told("import", "eden", str(file), "--dry-run")
    assert (code, "eden topics apply" in said) == (1, True), said
