"""docs/invariants.md: what enforces an invariant and what shows it exist, and code cites no other names."""

import ast
import re
from collections.abc import Mapping
from functools import cache

import pytest

from tests.named import ROOT, tracked

PAGE = "docs/invariants.md"
NAME = re.compile(r"^### ([a-z]+(?:-[a-z]+)+)$", re.MULTILINE)
PLACE = re.compile(r"`([\w/]+\.py)::([\w.]+)`")
CITED = re.compile(r"invariants?\s+((?:[a-z]+(?:-[a-z]+)+(?:,\s+|\s+and\s+)?)+)")


def invariants() -> Mapping[str, str]:
    """Each name, and the text under it."""
    _, *parts = NAME.split((ROOT / PAGE).read_text())
    return dict(zip(parts[::2], parts[1::2], strict=True))


@cache
def defined(path: str) -> frozenset[str]:
    """Functions and classes of a file, methods as `Class.method`."""
    names: set[str] = set()

    def collect(body: list[ast.stmt], before: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(before + node.name)
            if isinstance(node, ast.ClassDef):
                collect(node.body, f"{before}{node.name}.")

    collect(ast.parse((ROOT / path).read_text()).body, "")
    return frozenset(names)


def is_slow(path: str, name: str) -> bool:
    """Whether a test runs in `make test-slow` alone."""
    for node in ast.parse((ROOT / path).read_text()).body:
        marks: list[ast.expr] = []
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            marks = [node.value]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            marks = [one for one in node.decorator_list if not isinstance(one, ast.Call)]
        if any("mark.slow" in ast.unparse(one) for one in marks):
            return True
    return False


@pytest.mark.parametrize("name", invariants())
def test_what_enforces_and_shows_an_invariant_is_there(name: str) -> None:
    statement, *rest = re.split(r"^- (?:Enforced|Shown):", invariants()[name], flags=re.MULTILINE)
    assert "Without it, " in statement, "say what breaks without it"
    enforced, shown = (PLACE.findall(part) for part in rest)
    assert enforced
    assert shown
    assert [place for place in enforced if place[0].startswith("tests/")] == []
    assert [place for place in shown if not place[1].startswith("test_")] == []
    missing = [f"{path}::{of}" for path, of in (*enforced, *shown) if of not in defined(path)]
    assert missing == []
    assert [place for place in shown if not is_slow(*place)], "one that shows it runs with `make test`"


def test_code_and_pages_cite_only_invariants_of_the_page() -> None:
    files = [
        one
        for one in tracked()
        if one.endswith((".py", ".md")) and one.startswith(("eden_memory", "proc", "docs"))
    ]
    cited = {
        (path, name)
        for path in files
        if path != PAGE
        for found in CITED.findall((ROOT / path).read_text())
        for name in re.findall(r"[a-z]+(?:-[a-z]+)+", found)
    }
    assert [(path, name) for path, name in sorted(cited) if name not in invariants()] == []
