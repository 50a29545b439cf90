"""Eden Memory beside mem0 and Graphiti: one conversation, one model server, one embedding.

`python -m tests.bench.peers [--kills N] [--seed N] [--only mem0,graphiti,eden]`: a table for people and one JSON
object as the last line. The others are installed in `.eden/peers` (`make bench-peers`). docs/benchmarks.md says what
the figures show and what they do not.
"""

import argparse
import asyncio
import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Printed

from tests.bench import peers_eden
from tests.bench.peers_process import KILLED_SECONDS, Outcome, Peer, killed_alone, play, play_killed
from tests.bench.peers_talk import Turn, table, turns
from tests.bench.report import Report, figure, median, percentile
from tests.model_server.serving import ModelServerProcess, model_server_process
from tests.servers import TestServers, running_servers

HALF = {"error": 0.05, "drop": 0.05}
FAULTS: dict[str, dict[str, Any]] = {
    "failing": {
        "rates": HALF,
        "embedding_rates": HALF,
    },  # HTTP 500 or a broken connection: one request of ten
    "cut": {"rates": {"truncated": 0.1}},  # half of the answer, so no JSON: one chat of ten
}
NO_FAULTS: dict[str, Any] = {"rates": {}, "embedding_rates": {}, "base_seconds": 0.0, "embed_seconds": 0.0}
FRESH_SECONDS, FRESH_TURNS = 1.0, 8
Figures = dict[str, float]


class Bench:
    """Every system through the same parts."""

    def __init__(self, servers: TestServers, models: ModelServerProcess, folder: Path, kills: int) -> None:
        self._servers, self._models, self._folder = servers, models, folder
        self._kills = kill_plan(kills)

    async def peer(self, kind: str) -> Figures:
        """mem0 or Graphiti."""
        async with self._peer(kind) as peer:
            figures = of_calls(await play(peer, self._models, turns()))
        for name, faults in FAULTS.items():
            self._models.change(**{**NO_FAULTS, **faults})
            async with self._peer(kind) as peer:
                figures |= of_loss(name, await play(peer, self._models, turns()))
        self._models.change(**NO_FAULTS)
        figures |= await self._killed(kind)
        self._models.change(**{**NO_FAULTS, "base_seconds": FRESH_SECONDS, "embed_seconds": 0.1})
        async with self._peer(kind) as peer:
            figures |= of_freshness(*await self._freshness(peer))
        self._models.change(**NO_FAULTS)
        return figures

    async def _killed(self, kind: str) -> Figures:
        if kind == "graphiti":
            return of_loss("kill", await killed_alone(lambda: self._peer(kind), self._models, self._kills))
        figures: Figures = {}
        for name, again in (("kill", False), ("repeat", True)):
            async with self._peer(kind) as peer:
                done = await play_killed(peer, self._models, turns(), self._kills, again=again)
                figures |= of_loss(name, done)
        return figures

    async def whole_sessions(self) -> Figures:
        """mem0, told a session in one call instead of a turn."""
        async with self._peer("mem0") as peer:
            return of_calls(await play(peer, self._models, sessions()))

    async def eden(self) -> Figures:
        """This project."""
        async with self._eden() as one:
            figures = of_calls(await peers_eden.play(one, turns()))
        for name, faults in FAULTS.items():
            self._models.change(**{**NO_FAULTS, **faults})
            async with self._eden() as one:
                figures |= of_loss(name, await peers_eden.play(one, turns()))
        self._models.change(**{**NO_FAULTS, "base_seconds": KILLED_SECONDS})
        async with self._eden() as one:
            figures |= of_loss("kill", await peers_eden.play(one, turns(), self._kills))
        self._models.change(**{**NO_FAULTS, "base_seconds": FRESH_SECONDS, "embed_seconds": 0.1})
        async with self._eden() as one:
            figures |= of_freshness(*await peers_eden.freshness(one, fresh_turns(), statements()))
        self._models.change(**NO_FAULTS)
        return figures

    async def _freshness(self, peer: Peer) -> tuple[list[float], list[float]]:
        """Seconds that the application's call takes, and until a search finds the facts."""
        blocked: list[float] = []
        fresh: list[float] = []
        for turn in fresh_turns():
            began = time.perf_counter()
            blocked.append((await peer.add(turn))["seconds"])
            for fact in turn.facts:
                found = await peer.call("find", user=turn.user, query=statements()[fact])
                assert statements()[fact] in found["result"], fact
            fresh.append(time.perf_counter() - began)
        return blocked, fresh

    def _peer(self, kind: str) -> Peer:
        return Peer(kind, Path(tempfile.mkdtemp(dir=self._folder)) / kind, self._models)

    def _eden(self) -> Any:
        return peers_eden.eden(self._servers, self._models, Path(tempfile.mkdtemp(dir=self._folder)))


def kill_plan(kills: int) -> dict[Turn, int]:
    """Turns that state facts, spread over all sessions, each with the model call to be killed in."""
    dice = random.Random(7)
    chosen = dice.sample([turn for turn in turns() if turn.facts], kills)
    return {turn: dice.randint(1, 3) for turn in chosen}


def fresh_turns() -> tuple[Turn, ...]:
    """The first turns that state facts."""
    return tuple(turn for turn in turns() if turn.facts)[:FRESH_TURNS]


def statements() -> dict[str, str]:
    """Fact → its first words."""
    return {fact: text for facts in reversed(table().stated.values()) for fact, text in facts}


def sessions() -> tuple[Turn, ...]:
    """Each session as one turn."""
    whole: dict[str, Turn] = {}
    for turn in turns():
        earlier = whole[turn.session].messages if turn.session in whole else ()
        whole[turn.session] = Turn(turn.session, turn.user, (*earlier, *turn.messages))
    return tuple(whole.values())


def of_calls(done: Outcome) -> Figures:
    """Per 100 messages, and copies."""
    hundreds = sum(len(turn.messages) for turn in turns()) / 100
    embeddings = done.counts["calls"]["embeddings"]
    return {
        "calls": (sum(done.counts["calls"].values()) - embeddings) / hundreds,
        "embedding_requests": embeddings / hundreds,
        "prompt_tokens": done.counts["input_tokens"] / hundreds,
        "cacheable": done.counts["cached_tokens"] / done.counts["input_tokens"],
        "output_tokens": done.counts["output_tokens"] / hundreds,
        "missing": len(done.missing),
        "copies": done.copies,
    }


def of_loss(what: str, done: Outcome) -> Figures:
    """What is missing after faults or kills."""
    figures: Figures = {
        f"{what}_missing": len(done.missing),
        f"{what}_silent": len(done.silent),
        f"{what}_copies": done.copies,
    }
    if done.kills:
        figures[f"{what}_kills"] = done.kills
    return figures


def of_freshness(blocked: list[float], fresh: list[float]) -> Figures:
    return {
        "blocked_p50_s": median(blocked),
        "blocked_max_s": percentile(blocked, 1.0),
        "fresh_p50_s": median(fresh),
        "fresh_max_s": percentile(fresh, 1.0),
    }


async def measure(only: list[str], kills: int, seed: int) -> dict[str, Figures]:
    """System → its figures."""
    found: dict[str, Figures] = {}
    script = "tests.bench.peers_answers:answer"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = stack.enter_context(running_servers({}, folder, Path(".eden/jars")))
        models = stack.enter_context(model_server_process(script, dimensions=1_536, seed=seed))
        bench = Bench(servers, models, folder, kills)
        for kind in only:
            print(f"{time.strftime('%H:%M:%S')} {kind}", flush=True)  # noqa: T201
            found[kind] = await (bench.eden() if kind == "eden" else bench.peer(kind))
            if kind == "mem0":
                found["mem0-sessions"] = await bench.whole_sessions()
    return found


def show(found: dict[str, Figures]) -> None:
    """The table, then the line for programs."""
    printed = Printed(
        "what", *found, title=f"{len(turns())} turns, {len(table().users)} facts, 10 said again"
    )
    for name in dict.fromkeys(name for figures in found.values() for name in figures):
        values = (figures.get(name) for figures in found.values())
        printed.add_row(name, *("" if value is None else figure(value) for value in values))
    Console(width=110).print(printed)
    results = {f"{kind}_{name}": value for kind, figures in found.items() for name, value in figures.items()}
    print(Report("peers", "", results=results).line())  # noqa: T201 - the last line is for programs


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    parser.add_argument("--only", default="mem0,graphiti,eden")
    given = parser.parse_args()
    show(asyncio.run(measure(given.only.split(","), given.kills, given.seed)))
