"""What a text names: commands of `eden`, targets of make; and which of them are not there."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from subprocess import run
from typing import Any

from typer.core import TyperGroup

from eden_memory.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
COMMAND = re.compile(r"(?<![\w./-])(?:\.venv/bin/)?eden(?P<words>(?: (?![|#&>])[^\s`\"';,()&>#]+)+)")
TARGET = re.compile(
    r"""(?:(?:`|\$[ ]|&&[ ]|^[ ]*)make[ ](?P<target>[a-z][a-z-]*)(?=[\s`,;)]|$)
    |"make[ ](?P<quoted>[a-z][a-z-]*)(?=["]|[ ]{2}|[ ][A-Z]+=))""",
    re.MULTILINE | re.VERBOSE,
)
ANY_NAME = {"reform": "run"}
"""Groups whose first word may be a name instead of a command: what is then called."""


@cache
def tracked() -> tuple[str, ...]:
    """The paths of all files that are part of the repository."""
    listed = run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    return tuple(listed.stdout.splitlines())


@cache
def command_of(name: str) -> Any:
    """A command or family with its options, as typer has it."""
    return COMMANDS[name].load(name)


def commands(text: str) -> Iterator[list[str]]:
    """`eden dead retry --stage S` → its words behind `eden`; words in capitals stand for something."""
    for found in COMMAND.finditer(text):
        words = re.sub(r"[\[\]=]", " ", found["words"]).split()
        if words and re.fullmatch(r"[a-z][a-z-]*[.:]?", words[0]):
            yield [words[0].rstrip(".:"), *words[1:]]


def unknown(words: list[str]) -> str | None:
    """What of a command line there is not."""
    first, *rest = words
    if first not in COMMANDS:
        return f"no command {first}"
    called = [command_of(first)]
    for word in rest:
        if re.match(r"--[a-z]", word):
            option = re.match(r"--[a-z-]*[a-z]", word)
            known = {
                one
                for command in called
                for param in command.params
                for one in (*param.opts, *param.secondary_opts)
            } | {"--help"}
            if option is not None and option[0] not in known:
                return f"{called[0].name} has no {option[0]}"
        elif isinstance(called[0], TyperGroup) and not word.startswith("-"):
            group, inner = called[0], list[Any]()
            for name in word.rstrip(".:").split("|"):
                actual = name if name in group.commands else ANY_NAME.get(str(group.name))
                if actual is None:
                    return f"{group.name} has no {name}"
                inner.append(group.commands[actual])
            called = inner
    return None


def targets(text: str) -> Iterator[str]:
    """The targets of make that a text names."""
    for found in TARGET.finditer(text):
        yield found["target"] or found["quoted"]


@cache
def makefile_targets() -> frozenset[str]:
    """What make knows."""
    return frozenset(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
