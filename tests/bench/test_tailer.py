"""The tailer's benchmark in a short form: ratios to bounds of the same run, never absolute times."""

import json

import pytest

from tests.bench import tailer_pairs
from tests.bench.report import Report, Row
from tests.bench.tailer import measure
from tests.servers import TestServers

LEAST = {"catch_up_of_serial": 0.15, "backfill_of_catch_up": 0.4}
TIMES = 3
"""What is compared is measured one after the other: others may take the machine during one of them."""


@pytest.mark.servers
@pytest.mark.slow
async def test_catching_up_keeps_within_reach_of_its_bound(servers: TestServers) -> None:
    best = dict[str, float]()
    for _ in range(TIMES):
        ratios = (await measure(servers, 20_000, 1)).ratios
        assert ratios["memory_of_target"] <= 1.5
        best = {name: max(best.get(name, 0.0), ratios[name]) for name in LEAST}
        if all(best[name] >= least for name, least in LEAST.items()):
            return
    raise AssertionError(f"{best} of {LEAST}")


@pytest.mark.servers
@pytest.mark.slow
async def test_readers_of_committed_records_are_not_behind_the_others(servers: TestServers) -> None:
    results = (await tailer_pairs.measure(servers, 1, 20_000, 100, 3.0)).results
    assert results["read_committed_p50"] <= 4 * results["read_uncommitted_p50"]


def test_the_last_line_of_a_benchmark_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("x", "title", {"a": 1.0}, {"b": 2.0}, {"a_of_b": 0.5}, [Row("a", 1.0, "s", 2.0, "b")])
    report.show()
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert json.loads(last) == {
        "bench": "x",
        "results": {"a": 1.0},
        "bounds": {"b": 2.0},
        "ratios": {"a_of_b": 0.5},
    }
