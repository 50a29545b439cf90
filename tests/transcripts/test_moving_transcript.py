"""The page of memories that are brought along: its commands, played on one session, say what it shows."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from eden_memory.local.servers import Endpoints
from tests.servers import Namespace, TestServers
from tests.transcripts.moving import DIRECTIVE, NEW, PAGE, PLAN, SESSION, played
from tests.transcripts.playing import Step, commands_of
from tests.transcripts.stage import stage

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
async def steps(servers: TestServers, namespace: Namespace, tmp_path: Path) -> AsyncGenerator[list[Step]]:
    found = Endpoints(servers.mongodb_uri, servers.kafka_bootstrap)
    async with stage(found, namespace.name, tmp_path, (SESSION,)) as shell:
        yield await played(shell)


async def test_what_is_brought_along_is_found_edited_and_moved(steps: list[Step]) -> None:
    assert [step.command for step in steps] == commands_of(PAGE.read_text())
    _, tried, taken, again, old_tried, old, old_again, _, context, _, shown, _, _, changed, *moved = steps
    there, _, here, equal, checked = moved[-5:]
    assert "3 facts" in tried.said
    assert "3 facts" in taken.said
    assert "nothing" in again.said.lower() or "known" in again.said
    assert "would be taken: 1 shard, 2 reflections" in old_tried.said
    assert (old.code, old_again.code) == (0, 0)
    assert all(text in context.said for text in (DIRECTIVE, PLAN))
    assert "Skarv" in shown.said
    assert all(NEW in step.said for step in (changed, there))
    assert here.said == equal.said
    assert "equal to live" in checked.said
