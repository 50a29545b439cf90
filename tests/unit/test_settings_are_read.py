"""Every setting is read somewhere: one that nothing reads promises what does not happen."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from eden_memory.search.ranking import Ranking
from eden_memory.settings import Settings, SettingsGroup

ROOT = Path(__file__).parents[2]
GROUPS: dict[str, type[SettingsGroup]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, SettingsGroup)
}
ALONE = sorted(set(Settings.model_fields) - set(GROUPS))
"""Settings of no group."""


@cache
def sources() -> tuple[tuple[str, ast.Module], ...]:
    """The text and tree of every module of the program."""
    paths = (
        path for folder in ("eden_memory", "processors") for path in sorted((ROOT / folder).rglob("*.py"))
    )
    texts = [path.read_text() for path in paths]
    return tuple((text, ast.parse(text)) for text in texts)


READ_BY_FIELDS = {"search": {field.name for field in fields(Ranking)}}
"""Settings of a group that are passed on by the names of a class's fields (`ranking_of`)."""


def reads(tree: ast.Module, group: str, kind: type[SettingsGroup]) -> set[str]:
    """The fields of a group that a module reads: as attributes of what holds the group, or by their names."""
    holders, grew = {group} | _annotated(tree, kind.__name__), True
    while grew:
        found = {name for name in _assigned(tree, group, holders) if name not in holders}
        holders, grew = holders | found, bool(found)
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    read = {one.attr for one in attributes if _holds(one.value, group, holders)}
    return read | set(_by_itself(tree, kind.__name__)) | set(_by_name(tree))


def _by_itself(tree: ast.Module, kind: str) -> Iterator[str]:
    """Fields that the methods of the group itself read."""
    for of_class in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == kind):
        for node in ast.walk(of_class):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
                yield node.attr


def _by_name(tree: ast.Module) -> Iterator[str]:
    """Names given to calls, in a module that reads attributes by their names."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if any(isinstance(one.func, ast.Name) and one.func.id == "getattr" for one in calls):
        given = (argument for one in calls for argument in one.args)
        yield from (
            one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)
        )


def _holds(node: ast.expr, group: str, holders: set[str]) -> bool:
    if isinstance(node, ast.NamedExpr):
        node = node.value
    return (isinstance(node, ast.Attribute) and node.attr == group) or ast.unparse(node) in holders


def _annotated(tree: ast.Module, kind: str) -> set[str]:
    """Arguments and fields of classes that are given the group."""
    arguments = (node for node in ast.walk(tree) if isinstance(node, ast.arg) and node.annotation)
    found = {one.arg for one in arguments if one.annotation and kind in ast.unparse(one.annotation)}
    fields_ = (node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and node.value is None)
    return found | {
        f"self.{ast.unparse(one.target)}" for one in fields_ if kind in ast.unparse(one.annotation)
    }


def _assigned(tree: ast.Module, group: str, holders: set[str]) -> Iterator[str]:
    """Names that are assigned what holds the group."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.NamedExpr | ast.AnnAssign) and node.value is not None:
            pairs = [(node.target, node.value)]
        else:
            continue
        for target, value in pairs:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                yield from (
                    ast.unparse(one)
                    for one, given in zip(target.elts, value.elts, strict=False)
                    if _holds(given, group, holders)
                )
            elif _holds(value, group, holders):
                yield ast.unparse(target)


@pytest.mark.parametrize("group", GROUPS)
def test_every_setting_of_a_group_is_read(group: str) -> None:
    kind = GROUPS[group]
    naming = [tree for text, tree in sources() if f".{group}" in text or kind.__name__ in text]
    read = {name for tree in naming for name in reads(tree, group, kind)}
    assert set(kind.model_fields) - read - READ_BY_FIELDS.get(group, set()) == set()


@pytest.mark.parametrize("name", ALONE)
def test_every_setting_of_no_group_is_read(name: str) -> None:
    assert any(
        isinstance(node, ast.Attribute) and node.attr == name and "ettings" in ast.unparse(node.value)
        for _, tree in sources()
        for node in ast.walk(tree)
    )


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("def f(settings): return settings.groups.name", {"name"}),
        (
            "class A:\n def __init__(self, s): self._x, self._g = s.users, s.groups\n def f(self): self._g.name",
            {"name"},
        ),
        ("def f(paths: GroupsSettings): return paths.members", {"members"}),
        ("def f(s):\n if (g := s.groups).collection: return g.name", {"collection", "name"}),
        ("def f(settings): settings.users.name; settings.groups", set[str]()),
        ("def f(other): return other.name", set[str]()),
    ],
)
def test_what_counts_as_read(text: str, read: set[str]) -> None:
    kind = GROUPS["groups"]
    assert reads(ast.parse(text), "groups", kind) & set(kind.model_fields) == read
