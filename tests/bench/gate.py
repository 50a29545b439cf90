"""The gate: every benchmark in a short form, its ratios compared with those that were accepted last.

`python -m tests.bench.gate [--only BENCH …] [--times N]` runs the benchmarks one after the other, each as a process
of its own, all on one pair of servers. What seems worse runs twice more. It writes docs/benchmarks.json, and from it
the tables of docs/benchmarks.md, and it fails where a figure is missing or worse. `--accept FIGURE …
--because REASON` runs nothing: it accepts what was measured last (`all`: of every figure).

A figure is worse if its median is worse than the accepted median by more than 15 %, and its best run is worse than
the worst accepted run: the accepted runs show what is noise.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.bench.gate_figures import BENCHES, Bench, Better
from tests.bench.report import median
from tests.servers import TestServers, running_servers

ROOT = Path(__file__).parents[2]
FILE, PAGE = ROOT / "docs/benchmarks.json", ROOT / "docs/benchmarks.md"
WORSE, REPEATS, MOST_SECONDS = 0.15, 2, 300.0
"""By how much a median may be worse; how often what seems worse runs again; the most seconds of one run."""
BLOCK = re.compile(r"(<!-- gate: (?P<benches>[\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MESSAGE: dict[str, Any] = {
    "session_id": "session-0001", "role": "user", "content": "We meet on Thursday by the river. " * 8,
    "created_at": "2026-01-01T00:00:00Z", "numbers": list(range(20)),
}  # fmt: skip
FIGURES = {f"{bench.module}: {figure.field}": figure for bench in BENCHES for figure in bench.figures}
GOOD: dict[Better, str] = {"less": "↓", "more": "↑", "one": "→1"}
Verdict = Literal["worse", "better", "same", "new", "missing"]
Entry = dict[str, Any]
"""What is stored of a figure: `latest` and `accepted`, each with its values, commit and date."""


class Judged(NamedTuple):
    """A figure beside what was accepted; `change`: the share by which its median is worse (below 0: better)."""

    verdict: Verdict
    change: float = 0.0


def judged(better: Better, accepted: Sequence[float], found: Sequence[float]) -> Judged:
    """Compare the runs of a figure with its accepted ones."""
    if not found:
        return Judged("missing")
    if not accepted:
        return Judged("new")
    then, now = ([_cost(better, value) for value in values] for values in (accepted, found))
    before, after = median(then), median(now)
    change = after / before - 1 if before else float(after > 0)
    if change > WORSE and min(now) > max(then):
        return Judged("worse", change)
    if change < 1 / (1 + WORSE) - 1 and max(now) < min(then):
        return Judged("better", change)
    return Judged("same", change)


def _cost(better: Better, value: float) -> float:
    """Return what is greater the worse the value is."""
    if better == "less":
        return value
    inverse = 1 / value if value else float("inf")
    return inverse if better == "more" else max(value, inverse)


def judged_entry(name: str, entry: Entry) -> Judged:
    """Compare what was measured last of a figure with what is accepted."""
    accepted, latest = (entry.get(of, {"values": []})["values"] for of in ("accepted", "latest"))
    return judged(FIGURES[name].better, accepted, latest)


def read() -> dict[str, Entry]:
    """Return the stored figures that are still measured."""
    stored: dict[str, Entry] = json.loads(FILE.read_text())["figures"] if FILE.exists() else {}
    return {name: stored.get(name, {}) for name in FIGURES}


def written(entries: dict[str, Entry]) -> str:
    """Return the file's text, with a line for each thing that was measured or accepted."""
    figures = ",\n".join(
        f" {json.dumps(name, ensure_ascii=False)}: {{\n"
        + ",\n".join(f'  "{of}": {json.dumps(what, ensure_ascii=False)}' for of, what in entry.items())
        + "\n }"
        for name, entry in entries.items()
    )
    return f'{{"figures": {{\n{figures}\n}}}}\n'


def documented(page: str, entries: dict[str, Entry]) -> str:
    """Return the page with its tables written anew."""
    return BLOCK.sub(
        lambda block: f"{block[1]}\n{_table(block['benches'].split(), entries)}\n{block[3]}", page
    )


def _table(benches: Sequence[str], entries: dict[str, Entry]) -> str:
    """A row for each figure; what was accepted only where it differs; below, where and when they were measured."""
    rows = ["| figure | measured (least to most) | accepted | in the run |", "| --- | ---: | ---: | ---: |"]
    when: dict[str, None] = {}
    for name, entry in entries.items():
        if name.partition(":")[0] in benches and (latest := entry.get("latest")):
            figure, accepted = FIGURES[name], entry.get("accepted", {"values": []})["values"]
            measured, before = _values(latest["values"]), _values(accepted)
            what = f"{figure.what} {GOOD[figure.better]}"
            cells = [what, measured, "" if before == measured else before, latest.get("shown", "")]
            rows.append(f"| {' | '.join(cells)} |")
            when[f"`{latest['commit']}`, {latest['date']}"] = None
    return "\n".join([*rows, "", f"Measured at {'; '.join(when)}.", ""])


def _values(values: Sequence[float]) -> str:
    """The median; with least and most where there are several."""
    if not values:
        return ""
    spread = f" ({_said(min(values))} to {_said(max(values))})" if len(values) > 1 else ""
    return _said(median(values)) + spread


def _said(value: float) -> str:
    """Three digits, and all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def accept(entries: dict[str, Entry], names: Sequence[str], reason: str) -> None:
    """Accept what was measured last of these figures, for a reason that stays in the file."""
    for name in entries if list(names) == ["all"] else names:
        if "latest" not in entries.get(name, {}):
            raise SystemExit(f"nothing was measured of {name!r}; the figures: {', '.join(FIGURES)}")
        latest = {key: value for key, value in entries[name]["latest"].items() if key != "shown"}
        entries[name] = {"accepted": {**latest, "reason": reason}, "latest": entries[name]["latest"]}


def json_us() -> float:
    """Return the µs that this machine takes now to write and read a message as JSON."""
    return 1e6 * min(timeit.repeat(lambda: json.loads(json.dumps(MESSAGE)), number=2_000, repeat=5)) / 2_000


def run(bench: Bench, servers: TestServers) -> tuple[dict[str, float], dict[str, str]]:
    """Run a benchmark once; return its figures, and the results that people read beside them."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EDEN_")}
    environment |= {"EDEN_MONGODB_URI": servers.mongodb_uri, "EDEN_KAFKA_BOOTSTRAP": servers.kafka_bootstrap}
    arguments = shlex.split(bench.arguments.format(mongodb=servers.mongodb_uri))
    before = json_us()
    said = _output(
        (sys.executable, "-W", "ignore", "-m", f"tests.bench.{bench.module}", *arguments), environment
    )
    unit = (before + json_us()) / 2
    found: dict[str, float] = {}
    beside: dict[str, str] = {}
    try:
        line: dict[str, Any] = json.loads(said.strip().rpartition("\n")[2])
    except ValueError:
        print(f"{bench.module} failed:\n{said[-3_000:]}", file=sys.stderr)  # noqa: T201 - for who runs it
        return found, beside
    for figure in bench.figures:
        name, (field, _, of) = f"{bench.module}: {figure.field}", figure.shown.rpartition(" ")
        if (value := figure.value(line, unit)) is not None:
            found[name] = float(f"{value:.4g}")
        if field in line["results"]:
            beside[name] = f"{_said(line['results'][field])} {of}"
    return found, beside


def _output(command: Sequence[str], environment: dict[str, str]) -> str:
    """Return what a command says; it ends with all that it started."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True
        )
        try:
            process.wait(MOST_SECONDS)
        except subprocess.TimeoutExpired:
            log.write(f"\nnot within {MOST_SECONDS:.0f} s")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        return log.read()


def measure(benches: Sequence[Bench], entries: dict[str, Entry], times: int) -> None:
    """Run the benchmarks so many times, and what then seems worse again; put what is found into the entries."""
    at = {"commit": _commit(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    for bench in benches:
        for figure in bench.figures:
            entries[f"{bench.module}: {figure.field}"].pop("latest", None)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers({}, Path(folder), ROOT / ".eden/jars") as servers,
    ):
        for bench in [bench for _ in range(times) for bench in benches]:
            _add(entries, bench, servers, at)
        for bench in [bench for bench in benches if _seems_worse(bench, entries) for _ in range(REPEATS)]:
            _add(entries, bench, servers, at)


def _add(entries: dict[str, Entry], bench: Bench, servers: TestServers, at: dict[str, str]) -> None:
    began = time.monotonic()
    found, beside = run(bench, servers)
    print(f"{bench.module}: {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201 - for who waits
    for name, value in found.items():
        latest = entries[name].setdefault("latest", {"values": [], "shown": beside.get(name, ""), **at})
        latest["values"].append(value)


def _seems_worse(bench: Bench, entries: dict[str, Entry]) -> bool:
    names = (f"{bench.module}: {figure.field}" for figure in bench.figures)
    return any(judged_entry(name, entries[name]).verdict in ("worse", "missing") for name in names)


def _commit() -> str:
    """Return the commit, with a plus where files other than the gate's own differ from it."""
    commit = subprocess.run(
        ("git", "rev-parse", "--short=8", "HEAD"), cwd=ROOT, check=True, capture_output=True
    )
    others = [f":!{path.relative_to(ROOT)}" for path in (FILE, PAGE)]
    changed = subprocess.run(("git", "diff", "--quiet", "HEAD", "--", ".", *others), cwd=ROOT, check=False)
    return commit.stdout.decode().strip() + "+" * changed.returncode


def compared(entries: dict[str, Entry], names: Sequence[str]) -> bool:
    """Print what differs from what is accepted; return whether nothing is worse or missing."""
    table = Table("figure", "measured", "accepted", "", title="beside the accepted figures")
    failed: list[str] = []
    for name in names:
        verdict, change = judged_entry(name, entries[name])
        latest, accepted = (entries[name].get(of, {"values": []})["values"] for of in ("latest", "accepted"))
        if verdict != "same":
            said = f"{verdict} by {abs(change):.0%}" if change else verdict
            table.add_row(escape(name), _values(latest), _values(accepted), said)
        if verdict in ("worse", "missing"):
            failed.append(name)
    Console(width=120).print(table)
    print("\n".join(f"worse or missing: {name}" for name in failed) or "no figure is worse")  # noqa: T201
    return not failed


def main() -> None:
    """Measure, or accept; write both files; end with 1 where a figure is worse or missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=[bench.module for bench in BENCHES], metavar="BENCH")
    parser.add_argument("--times", type=int, default=1, help="runs of each, which show what is noise")
    parser.add_argument(
        "--accept", nargs="+", metavar="FIGURE", help="run nothing, accept what was measured last"
    )
    parser.add_argument("--because", metavar="REASON", help="why, for the file")
    given = parser.parse_args()
    if bool(given.accept) != bool(given.because):
        parser.error("--accept needs --because, and --because needs --accept")
    entries = read()
    benches = [bench for bench in BENCHES if not given.only or bench.module in given.only]
    if given.accept:
        accept(entries, given.accept, given.because)
    else:
        measure(benches, entries, given.times)
    FILE.write_text(written(entries))
    PAGE.write_text(documented(PAGE.read_text(), entries))
    chosen = [name for name in FIGURES if name.partition(":")[0] in [bench.module for bench in benches]]
    sys.exit(not compared(entries, chosen))


if __name__ == "__main__":
    main()
