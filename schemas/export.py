"""JSON Schemas of events, documents and export files, one file a version, and the lock on what has been released.

`schemas/json/<Type>.v<N>.json` and `schemas/json/documents/<Type>.v<N>.json`, draft 2020-12, closed. A
version is released when `released.lock` holds the SHA-256 of what its file means (descriptions and examples
left out); from then on a change of meaning needs a new version.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from eden_memory.schemas.documents import DOCUMENTS, Document
from eden_memory.schemas.envelope import SCHEMA_PREFIX, data_schema
from eden_memory.schemas.events import REGISTRY
from eden_memory.schemas.events.base import Event
from eden_memory.schemas.example_files import examples_of
from eden_memory.schemas.exported import ExportLine
from eden_memory.schemas.registry import SchemaViolation

FOLDER = Path(__file__).parent
LOCK = "released.lock"
WORDS = {"description", "examples"}
LEAST_EXAMPLES = 2


class FileProblem(NamedTuple):
    """One file that is not as it should be.

    `what`: missing; stale (an export puts it right); released (it no longer means what was released: give
    the type a new version); unknown (no type has it); gap (a version below the newest is not there); few (a
    folder of fewer than two examples); unfit (an example that cannot be read, or is not written like this).
    """

    what: Literal["missing", "stale", "released", "unknown", "gap", "few", "unfit"]
    path: str


class _Untitled(GenerateJsonSchema):
    """Without a title for every field: the name says it."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def event_schema(event: type[Event]) -> dict[str, Any]:
    """The JSON Schema of an event's newest version."""
    return _schema(event, data_schema(event.NAME, event.VERSION), f"{event.NAME} v{event.VERSION}")


def document_schema(document: type[Document]) -> dict[str, Any]:
    """The JSON Schema of a stored document's newest version."""
    name, version = document.NAME, document.VERSION
    return _schema(
        document, f"{SCHEMA_PREFIX}documents:{name}.v{version}", f"{name} v{version}", "validation"
    )


def export_schema() -> dict[str, Any]:
    """The JSON Schema of a line of an `eden export` file."""
    name, version = ExportLine.NAME, ExportLine.VERSION
    return _schema(ExportLine, data_schema(name, version), f"{name} v{version}")


def newest() -> dict[str, str]:
    """Path under `schemas/` → text, for the newest version of everything."""
    events = {
        f"json/{event.NAME}.v{event.VERSION}.json": event_schema(event) for event in REGISTRY.events.values()
    }
    documents = {
        f"json/documents/{document.NAME}.v{document.VERSION}.json": document_schema(document)
        for document in DOCUMENTS
    }
    lines = {f"json/{ExportLine.NAME}.v{ExportLine.VERSION}.json": export_schema()}
    return {path: _text(schema) for path, schema in (events | documents | lines).items()}


def event_schemas(folder: Path = FOLDER) -> dict[str, list[str]]:
    """Name of each event → the JSON Schemas of all its versions, oldest first."""
    return {
        event.NAME: [
            (folder / f"json/{event.NAME}.v{version}.json").read_text()
            for version in range(1, event.VERSION + 1)
        ]
        for event in REGISTRY.events.values()
    }


def versions() -> dict[str, int]:
    """Path without version (`json/MessageRecorded`) → newest version, of everything."""
    events = {f"json/{event.NAME}": event.VERSION for event in REGISTRY.events.values()}
    lines = {f"json/{ExportLine.NAME}": ExportLine.VERSION}
    return events | lines | {f"json/documents/{document.NAME}": document.VERSION for document in DOCUMENTS}


def problems(folder: Path = FOLDER) -> list[FileProblem]:
    """Return how the code, the files under `folder` and its lock differ; empty when all is in step."""
    return [*_out_of_step(folder), *_broken_locks(folder), *_strays(folder)]


def example_problems() -> list[FileProblem]:
    """Return the faults in the examples of all versions of all events."""
    return [
        problem
        for event in REGISTRY.events.values()
        for version in range(1, event.VERSION + 1)
        for problem in _spoilt(event.NAME, version)
    ]


def export(folder: Path = FOLDER) -> list[str]:
    """Write what the code says; the paths that changed. What a released file means is never written over."""
    released = read_lock(folder)
    changed: list[str] = []
    for path, text in newest().items():
        if _read(folder / path) != text and released.get(path) in (None, digest(text)):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
            changed.append(path)
    return changed


def release(names: Iterable[str], folder: Path = FOLDER) -> list[str]:
    """Lock the newest version of types (`MessageRecorded`, `documents/Fact`); the paths newly locked."""
    locked = dict(read_lock(folder))
    paths = (f"json/{name}.v{versions()[f'json/{name}']}.json" for name in names)
    new = {path: digest((folder / path).read_text()) for path in paths if path not in locked}
    lines = sorted((path, sha) for path, sha in (locked | new).items())
    (folder / LOCK).write_text("".join(f"{sha}  {path}\n" for path, sha in lines))
    return sorted(new)


def read_lock(folder: Path = FOLDER) -> Mapping[str, str]:
    """Path → SHA-256 of every released file's meaning."""
    lines = (_read(folder / LOCK) or "").splitlines()
    return {path: locked for locked, _, path in (line.partition("  ") for line in lines)}


def digest(schema: str) -> str:
    """SHA-256, in hexadecimal, of what a schema means: descriptions, examples and layout do not count."""
    return sha256(json.dumps(_meaning(json.loads(schema)), sort_keys=True).encode()).hexdigest()


def _schema(
    model: type[BaseModel], identity: str, title: str, mode: JsonSchemaMode = "serialization"
) -> dict[str, Any]:
    body = model.model_json_schema(mode=mode, schema_generator=_Untitled)
    head = {"$schema": GenerateJsonSchema.schema_dialect, "$id": identity, "title": title}
    return _one_line({**head, **{name: value for name, value in body.items() if name != "title"}})


def _one_line(node: Any) -> Any:
    """Descriptions without the line breaks of the source."""
    if isinstance(node, list):
        return [_one_line(value) for value in cast("list[Any]", node)]
    if isinstance(node, dict):
        return {key: _described(key, value) for key, value in cast("dict[str, Any]", node).items()}
    return node


def _described(key: str, value: Any) -> Any:
    return " ".join(value.split()) if key == "description" and isinstance(value, str) else _one_line(value)


def _meaning(node: Any) -> Any:
    if isinstance(node, list):
        return [_meaning(value) for value in cast("list[Any]", node)]
    if isinstance(node, dict):
        items = cast("dict[str, Any]", node).items()
        return {key: _meaning(value) for key, value in items if key not in WORDS or isinstance(value, dict)}
    return node


def _text(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _out_of_step(folder: Path) -> Iterator[FileProblem]:
    released = read_lock(folder)
    for path, text in newest().items():
        stored = _read(folder / path)
        if stored is None:
            yield FileProblem("missing", path)
        elif stored != text:
            yield FileProblem("stale" if released.get(path) in (None, digest(text)) else "released", path)


def _broken_locks(folder: Path) -> Iterator[FileProblem]:
    for path, locked in read_lock(folder).items():
        stored = _read(folder / path)
        if stored is None or digest(stored) != locked:
            yield FileProblem("released", path)


def _strays(folder: Path) -> Iterator[FileProblem]:
    """Versions that no type has, or that are missing between the first and the newest."""
    found = {path.relative_to(folder).as_posix() for path in (folder / "json").rglob("*.json")}
    wanted = {f"{name}.v{number}.json" for name, last in versions().items() for number in range(1, last + 1)}
    yield from (FileProblem("unknown", path) for path in sorted(found - wanted))
    yield from (FileProblem("gap", path) for path in sorted(wanted - found - set(newest())))


def _spoilt(name: str, version: int) -> Iterator[FileProblem]:
    folder, examples = f"examples/{name}/v{version}", examples_of(name, version)
    if len(examples) < LEAST_EXAMPLES:
        yield FileProblem("few", folder)
    for title, payload in examples.items():
        if not _fits(name, version, payload):
            yield FileProblem("unfit", f"{folder}/{title.replace(' ', '_')}.json")


def _fits(name: str, version: int, payload: Any) -> bool:
    """Whether an example can be read and, in the newest version, is just what a program writes."""
    try:
        event = REGISTRY.decode(name, version, json.dumps(payload).encode())
    except SchemaViolation:
        return False
    return version < event.VERSION or json.loads(event.json_bytes()) == payload
