"""docs/images/memory.svg, the picture of README: parts of what `eden demo` prints (`make transcripts`)."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "memory.svg"
COLUMNS = 112
SECONDS = 900
MESSAGES, FACTS, CONTEXT = 4, 6, 34
MESSAGE, FACT = re.compile(r"^ *\d+/\d+ +[\d.]+ m?s "), re.compile(r"^ +fact  ")
DIM = "bright_black"


def main() -> None:
    """Play the demo, and draw it."""
    done = subprocess.run(
        [sys.executable, "-m", "eden_memory.cli.main", "demo"],
        env={**os.environ, "COLUMNS": str(COLUMNS - 4)},
        stdout=subprocess.PIPE,
        timeout=SECONDS,
        check=True,
        text=True,
    )
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in shown(done.stdout.splitlines()):
        console.print(line, no_wrap=True, overflow="ellipsis")
    console.save_svg(str(PICTURE), title="make demo")


def shown(lines: Sequence[str]) -> list[Text]:
    """The first messages and facts, the context of one session, a search, and the verdict."""
    messages = [line for line in lines if MESSAGE.match(line)]
    facts = [line for line in lines if FACT.match(line)]
    context = _after(lines, "what the agent reads")
    told = [line.strip("│").rstrip() for line in context if line.startswith("│")]
    return [
        Text("chat messages, written to MongoDB, seen on Kafka", "bold"),
        *(Text(line, DIM) for line in messages[1 : 1 + MESSAGES]),
        Text(f"  … {len(messages)} messages and edits"),
        Text(""),
        Text("memory forms in the background", "bold"),
        *(Text(line) for line in facts[:FACTS]),
        Text(f"  … {len(facts)} facts, with their history and their sources"),
        Text(""),
        Text(context[0], "bold"),
        *(Text(line, "green") for line in told[:CONTEXT]),
        *([Text("  …")] if len(told) > CONTEXT else []),
        *(Text(line) for line in takewhile(bool, _after(lines, "a search: "))),
        Text(""),
        *(Text(line) for line in _after(lines, "against what a person")[:4]),
    ]


def _after(lines: Sequence[str], heading: str) -> Sequence[str]:
    """The lines from the one on that begins so; StopIteration if none does."""
    return lines[next(number for number, line in enumerate(lines) if line.startswith(heading)) :]


if __name__ == "__main__":
    main()
