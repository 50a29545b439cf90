"""The replay benchmark in a short form: ratios and bounds, never absolute times."""

import pytest

from tests.bench.replay import main
from tests.servers import TestServers


@pytest.mark.servers
@pytest.mark.slow
async def test_a_rebuild_writes_every_document_within_its_memory(servers: TestServers) -> None:
    report = await main(servers.mongodb_uri, servers.kafka_bootstrap, 3_000, 900, 90, 30)
    assert report.results["facts"] == 3_000 - 3_000 // 20
    assert report.results["blobs"] == 90
    assert report.ratios["memory"] <= 1.5, "of 300 MB; most of it is the interpreter and what it imports"
    assert report.ratios["rebuild_to_upsert"] >= 0.05, "a short run is mostly joining the group"
