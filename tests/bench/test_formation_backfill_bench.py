"""The benchmark of a backfill in a short form: every message is in a window, whatever it costs."""

import pytest

from tests.bench.formation_backfill import AT_ONCE, EACH, history, measured, report
from tests.servers import TestServers


def test_conversations_go_on_until_they_end() -> None:
    messages = [message for some in history(2 * EACH * AT_ONCE) for message in some]
    assert len({message["_id"] for message in messages}) == 2 * EACH * AT_ONCE
    of_first = [message for message in messages if message["session_id"] == "session-000000"]
    assert len(of_first) == EACH
    assert sorted(of_first, key=lambda message: message["created_at"]) == of_first


@pytest.mark.servers
@pytest.mark.slow
async def test_a_backfill_leaves_no_message_without_a_window(servers: TestServers) -> None:
    found = await measured(servers, EACH * AT_ONCE)
    assert found.unformed == 0
    assert found.cpu > 0
    assert report(found).ratios["memory_grown"] > 0
