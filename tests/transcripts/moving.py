"""docs/transcripts/bring-memory-along.md, played anew: `python -m tests.transcripts.moving` writes it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId
from pymongo import AsyncMongoClient

from tests.transcripts.playing import Shell, Step, blocks
from tests.transcripts.stage import PAGES, write

PAGE = PAGES / "bring-memory-along.md"
AGENT, USER, SESSION = "juniper", "priya", "s-priya-books"
MEM0 = (
    ("m1", "Priya's bookkeeping program is called Ledgerlight.", "2025-11-03T09:00:00Z"),
    ("m2", "Priya sails a folkboat at weekends.", "2025-12-14T17:30:00Z"),
    ("m3", "Priya's folkboat is called Skarv.", "2026-01-20T08:15:00Z"),
)
DIRECTIVE, SHARD, PLAN = "Priya wants the total first.", "boat show", "The stand needs two helpers."
OLD, NEW = "folkboat is called Skarv", "folkboat is called Tern"
MAPPING = {"agents": {"helper": AGENT}, "users": {"pr": USER}}
OPTIONS = "--mapping mapping.json --yes"
IMPORT_MEM0 = f"eden import mem0 mem0.jsonl --agent {AGENT} {OPTIONS}"
IMPORT_V1 = f'eden import v1 "$OLD_DATABASE" {OPTIONS}'
SEARCH = f"eden search 'What is the folkboat called?' --user {USER} --agent {AGENT} --top-k 1"
CONTEXT = f"eden context {SESSION} --user {USER} | sed 's/ ([^()]* ago)$//; s/ (just now)$//'"
FILE = f"notes/user.s.{USER}.md"
MIRROR = f"timeout -s INT 8 eden mirror notes --user {USER} --agent {AGENT}"
RECORDS = 'grep \'"line":"record"\' {}.jsonl | sort | sha256sum'


async def played(shell: Shell) -> list[Step]:
    """All steps, in order."""
    address = await _old_database(shell.environment)
    shell = replace(shell, environment={**shell.environment, "OLD_DATABASE": address})
    rows = [{"id": name, "memory": text, "user_id": "pr", "created_at": at} for name, text, at in MEM0]
    (shell.folder / "mem0.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (shell.folder / "mapping.json").write_text(f"{json.dumps(MAPPING)}\n")
    async with shell.system():
        await shell.run("cat mem0.jsonl mapping.json")
        await shell.run(f"{IMPORT_MEM0} --dry-run")
        await shell.run(IMPORT_MEM0)
        await shell.run(IMPORT_MEM0)
        await shell.run(f"{IMPORT_V1} --dry-run")
        await shell.run(IMPORT_V1)
        await shell.run(IMPORT_V1)
        await shell.until(CONTEXT, PLAN)
        await shell.until(SEARCH, OLD)
        await shell.run(SEARCH)
        await shell.run(CONTEXT)
        await shell.run(f"{MIRROR} --new")
        await shell.run(f"cat {FILE}")
        await shell.run(f"sed -i 's/{OLD}/{NEW}/' {FILE}")
        await shell.run(MIRROR)
        await shell.until(SEARCH, NEW)
        await shell.run(SEARCH)
        await shell.run(f"eden export --agent {AGENT} here.jsonl")
    other = await _elsewhere(shell)
    await other.run("eden topics apply | tail -n 1")
    await other.run("eden setup")
    async with other.system():
        await other.run("eden import eden here.jsonl --yes")
        await other.until(SEARCH, NEW)
        await other.run(SEARCH)
        await other.run(f"eden export --agent {AGENT} there.jsonl")
        await other.run(RECORDS.format("here"))
        await other.run(RECORDS.format("there"))
        await other.run("eden rebuild check --verify")
    return shell.steps


async def _elsewhere(shell: Shell) -> Shell:
    """The same folder, and another installation on the same servers, whose application has no chat yet."""
    name, uri = (
        f"{shell.environment['EDEN_MONGODB_DATABASE']}_elsewhere",
        shell.environment["EDEN_MONGODB_URI"],
    )
    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        for collection in ("messages", "sessions", "users", "groups", "agents"):
            await client[name].create_collection(collection)
    database = {"EDEN_MONGODB_DATABASE": name, "EDEN_SOURCE_DATABASE": name}
    kafka = {"EDEN_KAFKA_TOPIC_PREFIX": f"{name}.", "EDEN_KAFKA_GROUP_PREFIX": f"{name}."}
    return replace(shell, environment={**shell.environment, **database, **kafka})


async def _old_database(environment: Mapping[str, str]) -> str:
    """Make the previous system's database: a directive of the user, and a shard; its address."""
    name, uri = f"{environment['EDEN_MONGODB_DATABASE']}_old", environment["EDEN_MONGODB_URI"]
    at, directive, plan = datetime(2026, 1, 5, 12, tzinfo=UTC), ObjectId(), ObjectId()
    shared: dict[str, Any] = {"agent_id": "helper", "source_session_id": "old", "createdAt": at}
    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        await client[name]["memory_sessions"].insert_many(
            [
                {**shared, "_id": directive, "memory_type": "directive", "content": DIRECTIVE},
                {**shared, "_id": plan, "memory_type": "suggestion", "content": PLAN},
            ]
        )
        await client[name]["memory_user"].insert_one(
            {"agent_id": "helper", "user_id": "pr", "unabsorbed_memory_ids": [directive]}
        )
        await client[name]["memory_agent"].insert_one(
            {"agent_id": "helper", "shard_name": SHARD, "is_active": True, "unabsorbed_memory_ids": [plan]}
        )
    server, _, options = uri.partition("?")
    return f"{server.rstrip('/')}/{name}?{options}"


def page(steps: list[Step]) -> str:
    """The document."""
    files, tried, taken, again, old_tried, old, old_again, found, context, mirror, *after = steps
    (
        shown,
        edited,
        mirrored,
        changed,
        exported,
        topics,
        made,
        imported,
        there,
        exported_there,
        here,
        equal,
        checked,
    ) = after
    return blocks(
        [
            "# Memories brought along, edited as Markdown, and moved on",
            _about(),
            "## From mem0",
            "An export of mem0, and a mapping of its names. The command first says what it would take, then takes"
            " it; a second run takes nothing.",
            files,
            tried,
            taken,
            again,
            "## From the previous system",
            "`$OLD_DATABASE` is the address of a database with `memory_user`, `memory_agent` and"
            " `memory_sessions`, which are only read.",
            old_tried,
            old,
            old_again,
            "## Found",
            found,
            context,
            "## Edited as Markdown",
            "The mirror runs for a few seconds, until Ctrl-C. The file is edited while the mirror is stopped.",
            mirror,
            shown,
            edited,
            mirrored,
            changed,
            "## Moved to another installation",
            "An export, and its import into an empty database and empty topics.",
            exported,
            topics,
            made,
            imported,
            there,
            "Both installations hold the same records, and a rebuild from them gives the same memory:",
            exported_there,
            here,
            equal,
            checked,
        ]
    )


def _about() -> str:
    return (
        "A real run: the 281 messages of `examples/demo.jsonl` were formed by `eden run`, which keeps running, with"
        " one mongod and one Kafka broker. OpenAI's SDK talks to the tests' own model server, which answers by"
        " rules. `make transcripts` makes this page; a test runs it with one session"
        " ([test_moving_transcript.py](../../tests/transcripts/test_moving_transcript.py))."
        " More: [import](../how-to/import.md), [mirror](../how-to/mirror.md), [export](../how-to/export.md)."
    )


async def play(shell: Shell) -> str:
    """The page, played."""
    return page(await played(shell))


if __name__ == "__main__":
    write(PAGE, play)
