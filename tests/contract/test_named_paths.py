"""Every path, link and module of the repository that its pages name exists; paths of docs that code names, too."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatch
from functools import cache
from pathlib import PurePosixPath

import pytest

from eden_memory.stages.stage import Stage
from tests.named import ROOT, tracked

PAGES = tuple(one for one in tracked() if one.endswith(".md") and not one.startswith(("CHANGELOG", "tests/")))
CODE = tuple(one for one in tracked() if one.endswith((".py", ".yaml", ".yml", ".toml")))
SUFFIXES = r"(?:py|md|yaml|yml|toml|json|jsonl|j2|lock|sh|mjs|js|svg|tex)"
QUOTED = re.compile(r"`(?P<path>[\w.{}*<>-]+(?:/[\w.{}*<>,-]*)*)(?::\w+)?`")
FOLDER = re.compile(r"`(?P<folder>[\w/]+/)`(?P<files>(?:,?\s+(?:and )?`[\w.]+\.py`(?: \([^)]*\))?)+)")
PLAIN = re.compile(
    rf"(?<![\w/.-])(?:eden_memory|processors|schemas|tests|dashboards|examples)/[\w/.-]+\.{SUFFIXES}\b"
)
LINK = re.compile(r"\]\((?P<path>[^)#\s]+)(?:#[\w-]*)?\)")
MODULE = re.compile(r"python3? (?:-W \w+ )?-m (?P<module>(?:tests|eden_memory|processors|schemas)[\w.]*)")
DOCS = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.(?:md|yaml)")
MADE = (
    *(".", "eden.toml", "streams.json", "conversations.json", "server.json", "accuracy.svg", "report."),
    *("locomo10.json", "longmemeval_s.json", "shared_contexts_32k.jsonl"),
)
"""What people or programs make, and ends of names (`.user.j2`)."""


@cache
def places() -> frozenset[str]:
    """Every file and folder."""
    return frozenset(
        str(one) for path in tracked() for one in (PurePosixPath(path), *PurePosixPath(path).parents)
    )


@cache
def folders() -> frozenset[str]:
    """The folders at the top."""
    return frozenset(one.split("/")[0] for one in tracked() if "/" in one)


def is_path(text: str) -> bool:
    """Whether a text in backticks means a file or folder of the repository."""
    if text.startswith(MADE) or "<" in text:
        return False
    first, slash, _ = text.partition("/")
    return re.search(rf"\w\.{SUFFIXES}$", text) is not None or (bool(slash) and first in folders())


def is_there(text: str, page: str) -> bool:
    """As written from the top, from the page's folder, or as the end of just one path."""
    wanted = text.rstrip("/")
    wanted = re.sub(r"\{[^}]*\}|<[^>]*>", "*", wanted)
    beside = str(PurePosixPath(page).parent / wanted)
    patterns = (wanted, beside, f"*/{wanted}")
    if "*" not in wanted:
        return bool(places() & set(patterns[:2])) or sum(one.endswith(f"/{wanted}") for one in places()) == 1
    return any(fnmatch(one, pattern) for one in places() for pattern in patterns)


def gone(text: str, page: str) -> Iterator[str]:
    """What a page names and is not there."""
    for found in QUOTED.finditer(text):
        if is_path(found["path"]) and not is_there(found["path"], page):
            yield found["path"]
    for found in FOLDER.finditer(text):
        for name in re.findall(r"`([\w.]+)`", found["files"]):
            if found["folder"] + name not in places():
                yield found["folder"] + name
    for found in PLAIN.finditer(text):
        if found[0] not in places():
            yield found[0]
    for found in LINK.finditer(text):
        if "://" not in found["path"] and not (ROOT / page).parent.joinpath(found["path"]).exists():
            yield found["path"]
    for found in MODULE.finditer(text):
        name = found["module"].rstrip(".").replace(".", "/")
        if not places() & {f"{name}.py", f"{name}/__main__.py"}:
            yield found["module"]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_is_there(page: str) -> None:
    assert sorted(set(gone((ROOT / page).read_text(), page))) == []


def test_every_page_that_code_names_is_there() -> None:
    named = {(path, one) for path in CODE for one in DOCS.findall((ROOT / path).read_text())}
    assert len(named) > 20
    assert sorted((path, one) for path, one in named if one not in places()) == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_the_layers_of_a_page_are_those_that_are_held(page: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [one["layers"] for one in contracts if one["type"] == "layers"]
    folders = ["leaves" if "eden_memory.settings" in layer else layer for layer in layers]
    held = re.sub(r"eden_memory\.", "", " → ".join(folders))
    assert held in " ".join((ROOT / page).read_text().split())


def test_the_table_of_a_stage_lists_all_its_options() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/how-to/write-a-stage.md").read_text(), re.MULTILINE)
    options = {field.name for field in fields(Stage)} - {"name", "handler", "reads", "writes"}
    assert set(rows) >= options


def test_every_private_name_of_aiokafka_is_in_the_decision_record() -> None:
    record = (ROOT / "docs/decisions/kafka.md").read_text()
    code = "".join((ROOT / one).read_text() for one in CODE if one.startswith("eden_memory/"))
    used = set(re.findall(r"\b(?:consumer|producer)\._[a-z_]+", code))
    assert len(used) > 3
    assert {one for one in used if f"`{one}`" not in record} == set()


def test_what_is_gone_is_found() -> None:
    text = """`no_such.py`, `processors/` `atlas_writer.py`, `gone.py` (it), see tests/gone.py,
    [a page](no-such.md), python -m tests.bench.nothing; `README.md`, `conftest.py` of several folders."""
    assert sorted(set(gone(text, "docs/cli.md"))) == [
        "conftest.py",
        "gone.py",
        "no-such.md",
        "no_such.py",
        "processors/gone.py",
        "tests.bench.nothing",
        "tests/gone.py",
    ]
    assert not list(
        gone("`schemas/json/<type>.v1.json`, `cli/{main,tables}.py`, `docs/`, `tests/bench`", "README.md")
    )
