"""The page of a reform with a changed prompt: its commands, played on three sessions, say what it shows."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from eden_memory.local.servers import Endpoints
from tests.servers import Namespace, TestServers
from tests.transcripts.playing import Step, commands_of, said_on
from tests.transcripts.reform import PAGE, SESSION, played
from tests.transcripts.stage import stage

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(900)]
SESSIONS = (SESSION, "s-priya-books", "s-tomas-room")
CHANGED = re.compile(r"^[<>] ", re.MULTILINE)


@pytest.fixture
async def steps(servers: TestServers, namespace: Namespace, tmp_path: Path) -> AsyncGenerator[list[Step]]:
    found = Endpoints(servers.mongodb_uri, servers.kafka_bootstrap)
    async with stage(found, namespace.name, tmp_path, SESSIONS) as shell, shell.system():
        yield await played(shell)


async def test_the_commands_of_the_page_say_what_it_shows(steps: list[Step]) -> None:
    page = PAGE.read_text()
    assert [one.command for one in steps] == commands_of(page)
    _, before, asked, report, switched, differs, listed, back, same, dropped, left = steps
    assert [one.code for one in steps if one is not differs] == [0] * (len(steps) - 1), steps
    for one in (asked, switched, back, dropped):
        assert set(one.frame()) == set(said_on(page, one.command).frame()), one.said
    assert re.search(r"expected: (?:at most )?0\.\d*[1-9]", asked.said), asked.said
    assert re.search(r"\{\+\d{4}-\d\d-\d\d[.,]?\+\}", report.said), report.said
    assert re.search(r"^  - fact  .*kronor", report.said, re.MULTILINE), report.said
    assert "<Facts>" in before.said
    assert (differs.code, bool(CHANGED.search(differs.said))) == (1, True)
    assert re.search(r"^trial +live", listed.said, re.MULTILINE)
    assert same.said == "as before\n"
    assert "trial" not in left.said
