"""Windows while processes join and leave: how long calls pause, how late windows are, which answers are paid twice.

`python -m tests.bench.scaling_rebalances [--rounds N] [--sessions N] [--seconds N] [--only-kill]`. Two processes
form an even load; a third joins, is stopped (SIGTERM), and joins again only to be killed (SIGKILL). Private servers,
calls of 1 s.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path

from tests.bench.formation_load import conversations, staggered
from tests.bench.formation_run import (
    WINDOW,
    Formed,
    Stand,
    all_running,
    of_known_size,
    running,
    stand,
    until_followed,
    until_formed,
    watching,
    write,
)
from tests.bench.report import Report, Row, median, percentile
from tests.model_server.serving import ModelServerProcess, model_server_process
from tests.servers import TestServers, running_servers

SESSIONS, WINDOWS_EACH, PACE = 60, 3, 60.0
MOVES = (("join", "leave"), ("join again", "kill"))


@dataclass(frozen=True)
class Plan:
    """What happens in a round."""

    sessions: int
    seconds: float
    """From the first closed window to the first move, and how long windows count to a move."""
    moves: Sequence[tuple[str, str]]


@dataclass
class Moved:
    """One round."""

    formed: Formed
    repeated: int = 0
    began: float = 0.0
    """When the first window closed."""
    moments: dict[str, float] = field(default_factory=dict[str, float])
    """When each move began."""

    def pause(self, start: float, end: float) -> float:
        """Return the longest time without a new call, seconds."""
        begun = sorted(call.started_at.timestamp() for call in self.formed.calls)
        within = [start, *(moment for moment in begun if start < moment < end), end]
        return max(later - earlier for earlier, later in pairwise(within))

    def beyond_calls(self, start: float, end: float) -> list[float]:
        """Return delay minus calls of the windows that were under way meanwhile, seconds."""
        return [delay - calls for delay, calls in self.formed.delays(start, end)]


async def come_and_go(made: Stand, log: Path, moved: Moved, join: str, leave: str, seconds: float) -> None:
    """Let a third process join, and later leave or die."""
    with ExitStack() as stack:
        moved.moments[join] = time.time()
        process = await asyncio.to_thread(stack.enter_context, running(made, log))
        await asyncio.sleep(seconds)
        moved.moments[leave] = time.time()
        if leave == "kill":
            process.kill()
        await asyncio.to_thread(stack.close)
    await asyncio.sleep(seconds)


async def move(made: Stand, folder: Path, moved: Moved, plan: Plan) -> None:
    """Make the moves, one after the other."""
    while not moved.formed.windows:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.1)
    moved.began = time.time()
    await asyncio.sleep(plan.seconds)
    for join, leave in plan.moves:
        await come_and_go(made, folder / f"{join}.log", moved, join, leave, plan.seconds)


async def moving(servers: TestServers, models: ModelServerProcess, plan: Plan) -> Moved:
    """One round."""
    moved = Moved(Formed(0))
    load = staggered(conversations(plan.sessions, WINDOWS_EACH * WINDOW), plan.sessions, WINDOW)
    moved.formed.expected = sum(message["role"] == "user" for message in load)
    with tempfile.TemporaryDirectory() as folder:
        async with stand(servers, models, of_known_size(models)) as made:
            with all_running(made, Path(folder), 2):
                await until_followed(made)
                models.change(reset=True)
                async with watching(made, moved.formed), asyncio.TaskGroup() as group:
                    group.create_task(move(made, Path(folder), moved, plan))
                    await write(made, load, PACE)
                    await until_formed(moved.formed)
    moved.repeated = len(models.counts()["repeated"])
    return moved


def describe(report: Report, rounds: Sequence[Moved], plan: Plan) -> None:
    """Add each move's figures beside those of the calm before the first one."""
    calm = [(done.began, min(done.moments.values())) for done in rounds]
    add(report, "calm", rounds, calm)
    for name in chain(*plan.moves):
        add(report, name, rounds, [(at := done.moments[name], at + plan.seconds) for done in rounds])
    lost = sum(done.formed.expected - len(done.formed.markers) for done in rounds)
    report.results |= {
        "markers_lost": float(lost),
        "answers_paid_twice": float(sum(done.repeated for done in rounds)),
    }
    report.rows += [
        Row("markers lost, all rounds", report.results["markers_lost"], "markers"),
        Row("answers paid twice, all rounds", report.results["answers_paid_twice"], "answers"),
    ]


def add(report: Report, name: str, rounds: Sequence[Moved], spans: Sequence[tuple[float, float]]) -> None:
    """Add a span's pause and delays."""
    pauses = [done.pause(*span) for done, span in zip(rounds, spans, strict=True)]
    late = [late for done, span in zip(rounds, spans, strict=True) for late in done.beyond_calls(*span)]
    found = {"pause_s": median(pauses), "p50_s": percentile(late, 0.5), "most_s": max(late)}
    report.results |= {f"{name}: {key}": value for key, value in found.items()}
    report.rows += [
        Row(
            f"{name}: longest time without a new call",
            found["pause_s"],
            "s",
            max(pauses),
            "most of the rounds",
        ),
        Row(f"{name}: delay of windows minus calls, p50", found["p50_s"], "s", found["most_s"], "the latest"),
    ]


async def measure(rounds: int, plan: Plan) -> Report:
    """Run so many rounds."""
    report = Report(
        "scaling-rebalances", f"{plan.sessions} sessions at {PACE:.0f} messages/s while processes come and go"
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
        model_server_process(base_seconds=1.0) as models,
    ):
        describe(report, [await moving(servers, models, plan) for _ in range(rounds)], plan)
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--seconds", type=float, default=15.0, help="of calm, and between moves")
    parser.add_argument("--only-kill", action="store_true", help="a third process joins once and is killed")
    given = parser.parse_args()
    moves = MOVES[1:] if given.only_kill else MOVES
    asyncio.run(measure(given.rounds, Plan(given.sessions, given.seconds, moves))).show()


if __name__ == "__main__":
    main()
