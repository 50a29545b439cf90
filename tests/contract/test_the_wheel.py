"""What stands in the wheel and in the source archive: the program runs from it, beside any other package."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = """
import sys
from pathlib import Path
from eden_memory.demo.conversation import EXAMPLE, PEOPLE, read_conversation
from eden_memory.demo.judgement import read_expectations
from eden_memory.cli.main import app
found = read_conversation()
assert EXAMPLE.is_relative_to(Path(sys.argv[1])), EXAMPLE
assert len(found.messages) == 281 and found.changes and all(found.people[name] for name in PEOPLE)
assert read_expectations().facts
app(["demo", "--help"])
"""


PAGES = """
import sys
from pathlib import Path
from eden_memory.api.ui import pages
from eden_memory.api.ui.entry_routes import ASSETS, Asset
from typing import get_args
assert ASSETS.is_relative_to(Path(sys.argv[1])), ASSETS
assert all((ASSETS / name).stat().st_size for name in get_args(Asset))
environment = pages._environment()
names = environment.list_templates()
assert {"base.html", "scope.html", "fact.html"} <= set(names), names
assert all(environment.get_template(name) for name in names)
"""
BESIDE = """
import sys
import processors, schemas
assert (schemas.OF, processors.OF) == ("an application", "an application"), (schemas, processors)
import eden_memory
from eden_memory.app import system
from eden_memory.cli.main import app
from eden_memory.api.service import MemoryService
from eden_memory.schemas import events
from eden_memory.kafka.topics import read_topics, topics_path
assert read_topics(topics_path()).topics
ours = {name for name in sys.modules if name.partition(".")[0] in ("schemas", "processors")}
assert ours == {"schemas", "processors"}, ours
app(["--help"])
"""


def build(kind: str, source: Path, folder: Path) -> Path:
    """The built archive, in `folder`."""
    program = f"import sys; from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[1]))"
    built = subprocess.run(
        [sys.executable, "-c", program, str(folder)], cwd=source, check=True, capture_output=True, text=True
    )
    return folder / built.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the checkout."""
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A folder with the contents of the wheel, as an installer puts them there."""
    site = wheel.parent / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.mark.slow
def test_the_demo_runs_from_a_wheel(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    found = subprocess.run(
        [sys.executable, "-c", EXAMPLE, str(installed)],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert "--conversation" in found.stdout


def test_the_inspector_finds_its_pages_and_assets_in_a_wheel(installed: Path, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PAGES, str(installed)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr


@pytest.mark.slow
def test_it_runs_beside_packages_of_an_application_that_have_the_names_of_our_folders(
    installed: Path, tmp_path: Path
) -> None:
    for name in ("schemas", "processors"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('OF = "an application"\n')
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{installed}"}
    found = subprocess.run(
        [sys.executable, "-c", BESIDE],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert "tap" in found.stdout
    assert {one.name for one in installed.iterdir() if one.suffix != ".dist-info"} == {"eden_memory"}


def test_the_source_archive_has_both_the_folders_and_what_the_package_links_to(
    wheel: Path, tmp_path: Path
) -> None:
    with tarfile.open(build("sdist", ROOT, tmp_path)) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    for name in ("schemas", "processors"):
        assert _files(source / name) == _files(source / "eden_memory" / name) != []
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(build("wheel", source, tmp_path)) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


def _files(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
