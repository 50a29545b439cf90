"""The exported contract: in step with the code, released versions untouched, every version with its examples."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from eden_memory.cli import schemas as command
from eden_memory.schemas import example_files, export
from eden_memory.schemas.documents import DOCUMENTS
from eden_memory.schemas.events import REGISTRY, MessageRecorded
from eden_memory.schemas.example_files import FOLDER as EXAMPLES
from eden_memory.schemas.exported import ExportLine
from tools.reference import export as reference

FILES = sorted(EXAMPLES.rglob("*.json"))
NEWEST = f"json/MessageRecorded.v{MessageRecorded.VERSION}.json"
VERSIONS = [(name, n) for name, event in REGISTRY.events.items() for n in range(1, event.VERSION + 1)]


def validator(schema: dict[str, Any]) -> Any:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


def schema_of(name: str, version: int) -> dict[str, Any]:
    return json.loads((export.FOLDER / "json" / f"{name}.v{version}.json").read_text())


def where(path: Path) -> tuple[str, int]:
    return path.parts[-3], int(path.parts[-2].removeprefix("v"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The exported files, free to be spoilt, with some of their types released."""
    shutil.copytree(export.FOLDER / "json", tmp_path / "json")
    export.release(["MessageRecorded", "Watermark"], tmp_path)
    return tmp_path


def test_schemas_and_lock_are_in_step_with_the_code() -> None:
    assert export.problems() == [], "run `make schemas`; a released type needs a new VERSION"


def test_the_generated_documents_are_in_step(pytestconfig: pytest.Config) -> None:
    assert reference.stale(pytestconfig.rootpath) == [], "run `make schemas`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_every_example_fits_its_schema(path: Path) -> None:
    name, version = where(path)
    payload = json.loads(path.read_text())
    validator(schema_of(name, version)).validate(payload)


def test_every_version_has_two_examples_or_more_and_they_read() -> None:
    assert export.example_problems() == []


def test_examples_that_are_missing_or_not_as_written_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = tmp_path / "examples"
    shutil.copytree(EXAMPLES, examples)
    monkeypatch.setattr(example_files, "FOLDER", examples)
    shutil.rmtree(examples / "ScopeChanged" / "v1")
    lacking = min((examples / "MessageRecorded" / f"v{MessageRecorded.VERSION}").iterdir())
    payload = json.loads(lacking.read_text())
    del payload["edited_at"]
    lacking.write_text(json.dumps(payload))
    found = [tuple(problem) for problem in export.example_problems()]
    assert found == [("unfit", lacking.relative_to(tmp_path).as_posix()), ("few", "examples/ScopeChanged/v1")]
    checked = CliRunner().invoke(command.app, ["check"])
    assert checked.exit_code == 1
    assert "examples/ScopeChanged/v1: fewer than two examples" in str(checked.exception)


def test_no_example_is_of_a_type_or_version_that_does_not_exist() -> None:
    assert {where(path) for path in FILES} == {*VERSIONS, (ExportLine.NAME, ExportLine.VERSION)}


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_schemas_are_closed_at_every_depth(name: str, version: int) -> None:
    schema = schema_of(name, version)
    objects = [schema, *schema.get("$defs", {}).values()]
    assert all(one["additionalProperties"] is False for one in objects if one.get("type") == "object")
    assert set(schema["required"]) == set(schema["properties"]), "writers write every field"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.NAME)
def test_document_schemas_are_valid_and_closed(document: Any) -> None:
    schema = schema_of(f"documents/{document.NAME}", document.VERSION)
    validator(schema)
    assert schema["additionalProperties"] is False
    assert "_id" in schema["properties"]
    assert document.COLLECTION


def test_every_document_has_a_name_of_its_own() -> None:
    names = [document.NAME for document in DOCUMENTS]
    assert len(set(names)) == len(names)


def spoil(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_released_file_that_was_edited_is_noticed(copy: Path) -> None:
    path = copy / NEWEST
    spoil(path, required=["message_id"])
    assert "released" in {one.what for one in export.problems(copy)}
    export.export(copy)
    assert export.problems(copy) == [], "the code still is what was released, so the file is restored"


def test_a_released_type_that_changed_in_the_code_needs_a_new_version(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = NEWEST
    changed = json.loads(export.newest()[path])
    changed["properties"]["mood"] = {"type": "string"}
    current = {**export.newest(), path: json.dumps(changed)}
    monkeypatch.setattr(export, "newest", lambda: current)
    assert [(one.what, one.path) for one in export.problems(copy)] == [("released", path)]
    assert export.export(copy) == []
    assert "mood" not in json.loads((copy / path).read_text())["properties"]


def test_a_better_description_is_no_new_version(copy: Path) -> None:
    spoil(copy / NEWEST, description="Said otherwise.")
    assert [one.what for one in export.problems(copy)] == ["stale"]
    assert export.export(copy) == [NEWEST]
    assert export.problems(copy) == []


def test_missing_and_unknown_files_are_noticed(copy: Path) -> None:
    (copy / "json" / "Watermark.v1.json").rename(copy / "json" / "Watermark.v7.json")
    found = {(one.what, one.path) for one in export.problems(copy)}
    assert found == {
        ("missing", "json/Watermark.v1.json"),
        ("released", "json/Watermark.v1.json"),
        ("unknown", "json/Watermark.v7.json"),
    }


def test_versions_are_contiguous(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTRY.events["ScopeChanged"], "VERSION", 4)
    export.export(copy)
    missing = [f"json/ScopeChanged.v{number}.json" for number in (2, 3)]
    assert [tuple(one) for one in export.problems(copy)] == [("gap", path) for path in missing]


def test_releasing_twice_changes_nothing(copy: Path) -> None:
    assert export.release(["documents/Fact"], copy) == ["json/documents/Fact.v1.json"]
    before = (copy / export.LOCK).read_text()
    assert export.release(["documents/Fact"], copy) == []
    assert (copy / export.LOCK).read_text() == before
