"""What runs without which extra: the modules that only extras bring are made impossible to import."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from eden_memory.cli.main import COMMANDS
from eden_memory.errors import EXTRAS, MissingExtra, explained, needs, needs_extra

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IN_THE_BASE = sorted(
    {f"eden_memory.cli.{one.where.partition(':')[0]}" for one in COMMANDS.values() if one.extra is None}
)
WITHOUT = """
import importlib, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {absent} or name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
for module in {modules}:
    importlib.import_module(module)
"""


def brought(*extras: str) -> set[str]:
    return {module for extra in extras for module in EXTRAS[extra]}


@pytest.mark.parametrize(
    ("modules", "present"),
    [
        ([*IN_THE_BASE, "eden_memory.api.service", "eden_memory.app.own_search"], ()),
        (["eden_memory.api.mcp.mcp_server"], ("mcp",)),
        (["eden_memory.api.http.serving"], ("serve",)),
        (["eden_memory.app.system", "eden_memory.cli.run"], ("run",)),
    ],
    ids=["the base", "mcp", "serve", "run"],
)
def test_it_loads_with_its_own_extra_alone(modules: list[str], present: tuple[str, ...]) -> None:
    # Of a namespace package alone the part is taken away; what mcp itself stands on stays with it.
    of_mcp: set[str] = {"starlette", "uvicorn"} if "mcp" in present else set()
    kept = brought(*present) | of_mcp
    absent = brought(*EXTRAS) - kept - {"opentelemetry.sdk"}
    program = WITHOUT.format(absent=absent, modules=modules)
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1_000:]


def test_an_extra_names_modules_that_its_own_requirements_bring() -> None:
    distributions = packages_distributions()
    for extra, modules in EXTRAS.items():
        named = required(extra)
        for module in modules:
            top = module.partition(".")[0]
            assert extra == "aws" or named & {normal(one) for one in distributions[top]}, (extra, module)


def required(extra: str) -> set[str]:
    """The distributions of an extra and of the extras that it takes in."""
    found: set[str] = set()
    for line in PROJECT["optional-dependencies"][extra]:
        name = re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0]
        if name != PROJECT["name"]:
            found.add(normal(name))
            continue
        for other in line.partition("[")[2].partition("]")[0].split(","):
            found |= required(other)
    return found


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


def test_what_is_missing_is_named_with_the_command_that_installs_it() -> None:
    told = explained(ModuleNotFoundError("No module named 'watchfiles'", name="watchfiles"))
    assert told is not None
    assert told.hint == "pip install 'eden-memory[mirror]'"
    assert explained(ModuleNotFoundError("No module named 'mine'", name="mine")) is None
    missing = pytest.raises(MissingExtra, match="Kafka needs nothing_like_it, which is not installed")
    with missing, needs_extra("Kafka", "run", ", or not"):
        import nothing_like_it  # noqa: F401 # pyright: ignore
    with pytest.raises(ImportError):
        needs("aws", "MSK")
