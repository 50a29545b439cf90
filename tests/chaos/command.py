"""The command line of a fault run: its options, a folder, the run, what it shows and its exit code."""

import argparse
import asyncio
import logging
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.chaos.report import Outcome, show


def parser(name: str, doc: str | None, faults: int) -> argparse.ArgumentParser:
    """What every run takes; `faults` is how many it injects unless told."""
    made = argparse.ArgumentParser(prog=f"tests.chaos.{name}", description=(doc or "").splitlines()[0])
    made.add_argument("--faults", type=int, default=faults)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--folder", type=Path, help="keep data, logs and diaries there")
    return made


def run_and_show(name: str, kept: Path | None, run: Callable[[Path, Path], Awaitable[Outcome]]) -> int:
    """`run` gets the folder and the jars; 0 when nothing was violated."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="eden-chaos-") as temporary:
        folder = (kept or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        outcome = asyncio.run(_awaited(run(folder, Path(".eden/jars").absolute())))
    show(name, outcome)
    return 0 if outcome.clean else 1


async def _awaited(outcome: Awaitable[Outcome]) -> Outcome:
    return await outcome
