"""The gateway's benchmark in a short form: ratios to the provider itself, never absolute times."""

from uuid import uuid4

import pytest

from tests.bench.context import _settings  # pyright: ignore[reportPrivateUsage]
from tests.bench.gateway import main
from tests.servers import TestServers


@pytest.mark.servers
async def test_the_gateway_stays_within_reach_of_the_provider_itself(servers: TestServers) -> None:
    settings = _settings(servers.mongodb_uri, f"bench{uuid4().hex[:8]}")
    report = await main(settings, 20, 500)
    assert report.ratios["first_p50"] <= 25
    assert report.ratios["token"] <= 25
    assert set(report.bounds) == {"direct_first_p50_ms", "direct_first_p95_ms", "direct_token_us"}
