"""Move modules, folders and classes, and rewrite every reference to them: `python tools/move.py FILE.map`.

A map has one move a line, written from the repository's top; `#` begins a comment:

    old/module.py new/module.py            a file; everything that names it follows
    old/folder new/folder                  every tracked file of a folder
    old/module.py:Name new/module.py       one class or function, to a module that is there or is made
    + new/folder What the package holds.   the docstring of a package that is made

References are imports, dotted names and paths in every tracked text file. What must stay as written (promises to
stored data) is named in FROZEN. Then run `ruff check --fix` and `ruff format`, and read the lines that are printed.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

FROZEN_FILES = ("CHANGELOG.md", "tests/contract/promises.json")
FROZEN_NAMES = ("RECORDED_MODULES",)
"""Assignments whose values stay: modules as dead letters name them."""
Edit = tuple[int, int, str]


@dataclass
class Moves:
    """What a map asks for."""

    files: dict[str, str] = field(default_factory=dict[str, str])
    folders: dict[str, str] = field(default_factory=dict[str, str])
    symbols: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    docstrings: dict[str, str] = field(default_factory=dict[str, str])

    def dotted(self) -> dict[str, str]:
        """Old dotted names and their new ones: modules, packages and symbols."""
        named = {module_of(old): module_of(new) for old, new in self.files.items() if old.endswith(".py")}
        named |= {old.replace("/", "."): new.replace("/", ".") for old, new in self.folders.items()}
        return named | {
            f"{module_of(old)}.{name}": f"{module_of(new)}.{name}"
            for (old, name), new in self.symbols.items()
        }


def module_of(path: str) -> str:
    """The dotted name of a module's or a package's file."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def read_map(text: str, tracked: list[str]) -> Moves:
    """The moves of a map; a folder becomes its files."""
    moves = Moves()
    for line in filter(None, (line.split("#")[0].strip() for line in text.splitlines())):
        if line.startswith("+"):
            _, folder, docstring = line.split(maxsplit=2)
            moves.docstrings[folder] = docstring
            continue
        old, new = line.split()
        path, _, name = old.partition(":")
        inside = [file for file in tracked if file.startswith(path + "/")]
        if path not in tracked and not inside:
            raise SystemExit(f"{path} is not there")
        if name:
            moves.symbols[path, name] = new
        elif inside:
            moves.folders[old] = new
            moves.files.update({file: new + file.removeprefix(old) for file in inside})
        else:
            moves.files[old] = new
    return moves


def word_pattern(moves: Moves) -> tuple[re.Pattern[str], Mapping[str, str]]:
    """A pattern of all dotted names and paths, the longest first, and what each becomes."""
    inside = {inner(old): inner(new) for old, new in moves.files.items() if inner(old).count("/")}
    kinds = (
        (r"(?<![\w/-])", r"(?![\w-])", inside),  # as docs write a path inside the package
        (r"(?<![\w-])", r"(?![\w-])", moves.files | moves.folders),
        (r"(?<![\w.])", r"(?!\w)", moves.dotted()),
    )
    patterns = {old: start + re.escape(old) + end for start, end, words in kinds for old in words}
    longest = sorted(patterns, key=len, reverse=True)
    return re.compile("|".join(patterns[old] for old in longest)), {
        old: new for _, _, words in kinds for old, new in words.items()
    }


def inner(path: str) -> str:
    """A Python file's path inside the package."""
    return path.removeprefix("eden_memory/") if path.endswith(".py") else path


def rewritten(text: str, pattern: re.Pattern[str], words: Mapping[str, str], edits: list[Edit]) -> str:
    """A text with its edits, and every name outside them replaced."""
    parts: list[str] = []
    place = 0
    for start, end, new in [*sorted(edits), (len(text), len(text), "")]:
        parts += [pattern.sub(lambda found: words[found[0]], text[place:start]), new]
        place = end
    return "".join(parts)


def python_edits(text: str, path: str, dotted: Mapping[str, str]) -> Iterator[Edit]:
    """What names alone cannot do: `from package import name` where names go to other places; frozen values."""
    offsets = [0]
    for line in text.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line.encode()))

    def place(line: int, column: int) -> int:
        return len(text.encode()[: offsets[line - 1] + column].decode())

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt):
            start, end = (
                place(node.lineno, node.col_offset),
                place(node.end_lineno or 0, node.end_col_offset or 0),
            )
            if isinstance(node, ast.ImportFrom):
                statement = new_imports(node, path, dotted)
                if statement:
                    yield start, end, ("\n" + " " * node.col_offset).join(statement)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(one, ast.Name) and one.id in FROZEN_NAMES for one in targets):
                    yield start, end, text[start:end]


def new_imports(node: ast.ImportFrom, path: str, dotted: Mapping[str, str]) -> list[str]:
    """The statements in the place of one; none where replacing its module's name is enough."""
    if node.level or not any(f"{node.module}.{alias.name}" in dotted for alias in node.names):
        return []
    statements: dict[str, list[str]] = {}
    for alias in node.names:
        base = dotted.get(node.module or "", node.module)
        module, _, name = dotted.get(f"{node.module}.{alias.name}", f"{base}.{alias.name}").rpartition(".")
        called = alias.asname or alias.name
        statements.setdefault(module, []).append(name if name == called else f"{name} as {called}")
    own = [] if path.endswith("__init__.py") else statements.pop(module_of(path), None) and ["pass"]
    return [f"from {module} import {', '.join(names)}" for module, names in statements.items()] or own or []


def git(*words: str) -> str:
    """What a git command prints."""
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def move_symbols(moves: Moves) -> None:
    """Cut classes, functions and constants out, and put them below the imports of other modules."""
    for (old, name), new in moves.symbols.items():
        source, target = Path(moves.files.get(old, old)), Path(new)
        text = source.read_text()
        nodes = ast.parse(text).body
        place = next(place for place, one in enumerate(nodes) if name in names_of(one))
        node, after = nodes[place], nodes[place + 1] if place + 1 < len(nodes) else None
        end = node.end_lineno or 0
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            end = after.end_lineno or 0  # the constant's docstring
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))]) - 1
        lines = text.splitlines(keepends=True)
        taken, left = lines[first:end], [*lines[:first], *lines[end:]]
        needed = imports_for("".join(taken), nodes, module_of(new))
        if re.search(rf"\b{name}\b", "".join(left)):
            left = put_in("".join(left), [f"from {module_of(new)} import {name}\n"])
        source.write_text("".join(left))
        target.parent.mkdir(parents=True, exist_ok=True)
        before = (
            target.read_text()
            if target.exists()
            else f'"""{target.stem.replace("_", " ").capitalize()}."""\n'
        )
        if isinstance(
            node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):  # may need what stands there
            target.write_text("".join([*put_in(before, needed), "\n\n", *taken]))
        else:
            target.write_text("".join(put_in(before, [*needed, "\n\n", *taken, "\n\n"])))
        git("add", new)


def names_of(node: ast.stmt) -> list[str]:
    """The names that a statement at a module's top binds."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [getattr(node, "name", ""), *(one.id for one in targets if isinstance(one, ast.Name))]


def imports_for(text: str, nodes: list[ast.stmt], target: str) -> list[str]:
    """The imports among a module's statements that a text needs where it goes."""
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module != target:
            used = [one for one in node.names if re.search(rf"\b{one.asname or one.name}\b", text)]
            if used:
                found.append(ast.unparse(ast.ImportFrom(node.module, used, node.level)) + "\n")
        elif isinstance(node, ast.Import):
            found.append(ast.unparse(node) + "\n")
    return found


def put_in(text: str, added: list[str]) -> list[str]:
    """A module's lines, with others below its imports."""
    lines = text.splitlines(keepends=True)
    top = [
        one
        for place, one in enumerate(ast.parse(text).body)
        if not place or isinstance(one, ast.Import | ast.ImportFrom)
    ]
    end = max((one.end_lineno or 0 for one in top), default=0)
    return [*lines[:end], "\n", *added, *lines[end:]]


def make_packages(moves: Moves) -> None:
    """An `__init__.py` for each new folder of a package, and none where a folder has nothing else any more."""
    targets = [
        PurePosixPath(new) for new in (*moves.files.values(), *moves.symbols.values()) if new.endswith(".py")
    ]
    for folder in {
        parent for new in targets for parent in new.parents if parent.parts[:1] == ("eden_memory",)
    }:
        file = Path(folder) / "__init__.py"
        if not file.exists():
            said = moves.docstrings.get(str(folder), folder.name.replace("_", " ").capitalize() + ".")
            file.write_text(f'"""{said}"""\n')
            git("add", str(file))
    olds = {parent for old in moves.files for parent in PurePosixPath(old).parents if len(parent.parts) > 1}
    for folder in sorted(olds, key=str, reverse=True):
        left = git("ls-files", str(folder)).split()
        if left == [f"{folder}/__init__.py"] and left[0] not in moves.files.values():
            git("rm", "-q", left[0])


def main(file: str) -> None:
    """Carry out a map in the working tree and in git's index."""
    moves = read_map(Path(file).read_text(), git("ls-files").split())
    (pattern, words), dotted = word_pattern(moves), moves.dotted()
    ends = {".".join(old.split(".")[-2:]) for old in dotted}
    doubtful = re.compile("|".join(rf"(?<![\w.]){re.escape(end)}\b" for end in ends) or r"(?!)")
    for old, new in moves.files.items():
        Path(new).parent.mkdir(parents=True, exist_ok=True)
        git("mv", old, new)
    move_symbols(moves)
    make_packages(moves)
    for path in map(Path, git("ls-files").split()):
        if path.is_symlink() or str(path) in FROZEN_FILES or path.resolve() == Path(file).resolve():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        edits = list(python_edits(text, str(path), dotted)) if path.suffix == ".py" else []
        new_text = rewritten(text, pattern, words, edits)
        if new_text != text:
            path.write_text(new_text)
        for number, line in enumerate(new_text.splitlines(), 1):
            if doubtful.search(line):
                sys.stdout.write(f"look at {path}:{number}: {line.strip()[:100]}\n")


if __name__ == "__main__":
    main(sys.argv[1])
