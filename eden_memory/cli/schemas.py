"""`eden schemas`: the exported JSON Schemas, what is released of them, and the documents made from them."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from eden_memory.errors import EdenError
from eden_memory.kafka.schema_registry import SchemaRegistry
from eden_memory.kafka.topics import topics_path
from eden_memory.schemas import export as exported
from eden_memory.schemas.envelope import TYPE_PREFIX

app = typer.Typer(help="Export the contract: JSON Schemas, AsyncAPI, reference pages.", no_args_is_help=True)

HINTS = {
    "missing": "not exported yet: run `make schemas`",
    "stale": "not in step with the code: run `make schemas`",
    "released": "no longer means what was released: restore it, and give the type a new VERSION with an upcast",
    "unknown": "no type has this version: remove the file, or give the type its version",
    "gap": "a version between the first and the newest is missing: restore it",
    "few": "fewer than two examples: write them, one of them an edge case",
    "unfit": "not what a program writes in this version: write every field, nulls too, and no other",
}


@app.command()
def export() -> None:
    """Write schemas/json, docs/*.yaml and docs/reference; released schemas are never written over."""
    root = checkout()
    made = [f"schemas/{path}" for path in exported.export()]
    if not exported.example_problems():
        made += documents(root)
    for path in made:
        typer.echo(f"wrote {path}")
    _refuse(_problems(root))


@app.command()
def check() -> None:
    """Say what is not in step or was changed after its release; exit code 1 if anything is."""
    _refuse(_problems(checkout()))
    typer.echo("schemas, AsyncAPI document and reference pages are in step")


@app.command()
def release(types: Annotated[list[str], typer.Argument(help="MessageRecorded, documents/Fact, …")]) -> None:
    """Lock the newest version of types: from now on a change needs a new version."""
    root = checkout()
    unknown = [name for name in types if f"json/{name}" not in exported.versions()]
    if unknown:
        raise EdenError(f"no such type: {', '.join(unknown)}", "See schemas/json for their names.")
    _refuse(_problems(root))
    for path in exported.release(types):
        typer.echo(f"released {path}")


@app.command()
def register(
    registry: Annotated[
        str,
        typer.Argument(
            help="address of a Schema Registry (Confluent's protocol)", envvar="SCHEMA_REGISTRY_URL"
        ),
    ],
) -> None:
    """Register all versions of all events with a Schema Registry, under subjects like `eden.FactChanged`.

    Records stay plain JSON. It is safe to repeat.
    """
    asyncio.run(_register(registry))


async def _register(address: str) -> None:
    async with SchemaRegistry(address) as registry:
        for name, schemas in exported.event_schemas().items():
            subject = f"{TYPE_PREFIX}{name}"
            await registry.register(subject, schemas)
            typer.echo(f"registered {subject}, versions 1 to {len(schemas)}")


def _problems(root: Path) -> list[str]:
    """Documents show examples: without those, they are neither made nor compared."""
    examples = exported.example_problems()
    found = [
        f"schemas/{problem.path}: {HINTS[problem.what]}" for problem in (*exported.problems(), *examples)
    ]
    return found + [f"{path}: {HINTS['stale']}" for path in ([] if examples else documents(root, "--check"))]


def checkout() -> Path:
    """The checkout that this program runs from; an EdenError if it is an installed copy."""
    root = topics_path().parents[1]
    if not (root / "schemas" / "json").is_dir():
        raise EdenError(
            "the contract can be exported only from a checkout; this is an installed copy", "Clone it."
        )
    return root


def documents(root: Path, *arguments: str) -> list[str]:
    """Run the checkout's tools/reference/export.py; return the paths that it prints."""
    command = [sys.executable, "-W", "ignore", "-m", "tools.reference.export", *arguments]
    return subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise EdenError(
            "\n".join(problems), "Schemas are promises: docs/reference/events.md says how they change."
        )
