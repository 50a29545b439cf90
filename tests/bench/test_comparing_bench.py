"""The benchmark of comparing two memories in a short form: what it counts, never absolute times."""

import pytest

from tests.bench.comparing import main
from tests.servers import TestServers


@pytest.mark.servers
@pytest.mark.slow
async def test_every_fact_in_other_words_finds_its_partner(servers: TestServers) -> None:
    report = await main(servers.mongodb_uri, 3_000, 0.5)
    assert {name: report.results[name] for name in ("same", "changed", "added", "lost")} == {
        "same": 1_500,
        "changed": 1_500,
        "added": 0,
        "lost": 0,
    }
    assert report.ratios["memory"] <= 1
