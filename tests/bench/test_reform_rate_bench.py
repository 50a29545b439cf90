"""The benchmark of a reform's rate in a short form: ratios, never absolute times."""

import pytest

from tests.bench.reform_rate import OTHER, rates
from tests.bench.report import Report
from tests.servers import TestServers


@pytest.mark.servers
@pytest.mark.slow
async def test_a_reform_forms_every_window_that_live_formed(servers: TestServers) -> None:
    report = Report("reform-rate", "short")
    await rates(report, servers, 4, 45, 0.0, same=False)
    assert report.results[f"{OTHER}_windows_0s"] == report.results["windows_0s"] == 4
    assert report.ratios[f"{OTHER}_to_live_0s"] > 0.01, "a short run is mostly joining groups"
