"""The page of a MongoDB that lost all that is ours: its commands, played on two sessions, say what it shows."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from eden_memory.local.servers import Endpoints
from tests.servers import Namespace, TestServers
from tests.transcripts.playing import Step, commands_of, said_on
from tests.transcripts.rebuild import PAGE, SESSION, played
from tests.transcripts.stage import stage

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(900)]
SESSIONS = (SESSION, "s-mara-order")
HASH = re.compile(r"^(\w+): .*, ([0-9a-f]{32}) equal$", re.MULTILINE)
COUNTED = re.compile(r"(\d+) windows with (\d+) messages, (\d+) different ones")


@pytest.fixture
async def steps(servers: TestServers, namespace: Namespace, tmp_path: Path) -> AsyncGenerator[list[Step]]:
    found = Endpoints(servers.mongodb_uri, servers.kafka_bootstrap)
    async with stage(found, namespace.name, tmp_path, SESSIONS) as shell:
        yield await played(shell)


async def test_the_commands_of_the_page_say_what_it_shows(steps: list[Step]) -> None:
    page = PAGE.read_text()
    assert [one.command for one in steps] == commands_of(page)
    before, checked, _, counted, _, dropped, during, _, written, *after = steps
    restored, same, checked_again, counted_again, _, differs, counted_last, checked_last = after
    assert [one.code for one in steps if one is not differs] == [0] * (len(steps) - 1), steps
    for one in (dropped, during, written, restored):
        assert _plain(one) == _plain(said_on(page, one.command)), one.said
    assert "<Facts>" in before.said
    assert same.said == "as before\n"
    assert len(HASH.findall(checked.said)) == 5, checked.said
    assert HASH.findall(checked.said) == HASH.findall(checked_again.said)
    assert HASH.findall(checked.said) != HASH.findall(checked_last.said)
    assert "equal to live" in checked_last.said
    assert counted_again.said == counted.said
    windows, messages, different = _counts(counted)
    assert (differs.code, messages) == (1, different)
    assert _counts(counted_last) == (windows + 1, messages + 4, different + 4)


def _counts(step: Step) -> tuple[int, ...]:
    found = COUNTED.fullmatch(step.said.strip())
    assert found, step.said
    return tuple(map(int, found.groups()))


def _plain(step: Step) -> set[str]:
    return {line for line in step.frame() if " of N offsets" not in line}
