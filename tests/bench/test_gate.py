"""The gate: what counts as worse, what accepting leaves behind, and that its file, its page and its table agree."""

import re
from collections.abc import Sequence

import pytest

from tests.bench.gate import (
    BLOCK,
    FIGURES,
    FILE,
    PAGE,
    ROOT,
    Entry,
    accept,
    compared,
    documented,
    judged,
    judged_entry,
    read,
    run,
    written,
)
from tests.bench.gate_figures import BENCHES, Bench, Better, Figure
from tests.servers import TestServers

NAME = next(name for name, figure in FIGURES.items() if figure.better == "less")
NOWHERE = TestServers("mongodb://127.0.0.1:9", "127.0.0.1:9")


@pytest.mark.parametrize(
    ("better", "accepted", "found", "verdict"),
    [
        ("less", [1.0], [1.16], "worse"),
        ("less", [1.0], [1.14], "same"),
        ("less", [1.0], [0.86], "better"),
        ("more", [1.0], [0.86], "worse"),
        ("more", [1.0], [0.88], "same"),
        ("more", [1.0], [1.16], "better"),
        ("one", [1.1], [0.78], "worse"),
        ("one", [1.3], [0.98], "better"),
        ("less", [0.9, 1.0, 1.3], [1.2, 1.25, 1.35], "same"),  # accepted runs were as bad
        ("less", [0.9, 1.0, 1.3], [1.31, 1.35, 1.4], "worse"),
        ("less", [1.0], [0.9, 1.2, 1.3], "same"),  # one run of these was as good
        ("less", [0.0], [0.0], "same"),
        ("less", [0.0], [1.0], "worse"),
        ("more", [1.0], [0.0], "worse"),
        ("less", [1.0], [], "missing"),
        ("less", [], [], "missing"),
        ("less", [], [1.0], "new"),
    ],
)
def test_a_figure_is_worse_beyond_fifteen_percent_and_beyond_its_noise(
    better: Better, accepted: Sequence[float], found: Sequence[float], verdict: str
) -> None:
    assert judged(better, accepted, found).verdict == verdict


def test_the_change_is_the_share_by_which_the_median_is_worse() -> None:
    assert judged("less", [1.0, 2.0, 9.0], [3.0]).change == pytest.approx(0.5)
    assert judged("more", [2.0], [1.0]).change == pytest.approx(1.0)


def entry(accepted: float, latest: float) -> Entry:
    at = {"commit": "0123abcd", "date": "2026-11-28"}
    return {
        "accepted": {"values": [accepted], **at, "reason": "the first run"},
        "latest": {"values": [latest], "shown": "", **at},
    }


def test_a_worse_figure_is_named_until_it_is_accepted_with_a_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    entries = {NAME: entry(1.0, 2.0)}
    assert not compared(entries, [NAME])
    assert f"worse or missing: {NAME}" in capsys.readouterr().out
    accept(entries, [NAME], "it does more")
    assert compared(entries, [NAME])
    (line,) = [line for line in written(entries).splitlines() if "it does more" in line]
    assert '"accepted": {"values": [2.0]' in line


def test_what_was_not_measured_is_not_accepted() -> None:
    with pytest.raises(SystemExit, match="nothing was measured"):
        accept({NAME: {}}, [NAME], "why")


def test_a_benchmark_that_fails_has_no_figures_and_one_that_ends_has_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(Bench("no_such_benchmark", "", ()), NOWHERE) == ({}, {})
    assert "no_such_benchmark failed" in capsys.readouterr().err
    figures = (
        Figure("100_processes", "", shown="100_partitions partitions"),
        Figure("100_processes / 100_partitions", ""),
        Figure("100_processes / json", ""),
        Figure("gone", ""),
    )
    found, beside = run(Bench("scaling_simulation", "--rates 100", figures), NOWHERE)
    unit = found.pop("scaling_simulation: 100_processes / json")
    assert 0 < unit < 1
    assert list(found.values()) == [1.0, pytest.approx(1 / 6, rel=1e-3)]
    assert beside == {"scaling_simulation: 100_processes": "6 partitions"}


def test_every_benchmark_of_make_bench_is_in_the_gate() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (targets,) = re.findall(r"^bench: (.*?) ##", makefile, re.MULTILINE)
    recipes = [
        recipe
        for target in targets.split()
        for recipe in re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    ]
    assert set(re.findall(r"-m tests\.bench\.(\w+)", "".join(recipes))) == {bench.module for bench in BENCHES}


def test_the_file_is_what_the_gate_writes_and_nothing_in_it_is_worse_than_accepted() -> None:
    entries = read()
    assert FILE.read_text() == written(entries)
    verdicts = {name: judged_entry(name, found).verdict for name, found in entries.items()}
    assert {name: verdict for name, verdict in verdicts.items() if verdict not in ("same", "better")} == {}
    assert all(found["accepted"]["reason"] for found in entries.values())


def test_the_page_shows_the_file_s_figures_each_once() -> None:
    page = PAGE.read_text()
    assert documented(page, read()) == page, "python -m tests.bench.gate writes both"
    shown = [bench for block in BLOCK.finditer(page) for bench in block["benches"].split()]
    assert sorted(shown) == sorted(bench.module for bench in BENCHES)
