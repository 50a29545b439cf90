"""The benchmark of the inspector in a short form: every page answers, however many facts there are."""

import pytest

from tests.bench.inspector import PAGES, main
from tests.servers import TestServers


@pytest.mark.servers
@pytest.mark.slow
async def test_every_page_is_measured_over_both_sizes(servers: TestServers) -> None:
    report = await main(servers, 600, 1_200, 1)
    assert set(report.results) == set(report.ratios) == set(PAGES)
