"""`eden namespace diff` on two memories with one large scope: seconds and memory, against the bare matrix product.

`python -m tests.bench.comparing [--facts N] [--other SHARE]`: both memories hold N facts of one user, a share of
them in other words; the command is run in a process of its own. Bounds of the same run: reading all facts of both as
they are stored, and the product of the differing vectors with each other, all of them in memory. MongoDB of its own,
or EDEN_MONGODB_URI.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.memory.memory_batch import fact_hash
from eden_memory.mongo.client import connect
from eden_memory.mongo.documents import vector_of
from eden_memory.names import Placement
from eden_memory.schemas.documents import Namespace
from eden_memory.settings import Settings
from tests.bench.report import Report, Row, most_memory
from tests.integration.stages_on_servers import PREFIX, settings_of
from tests.servers import running_servers

NAME = "anew"
DIMENSIONS, BLOCK, BATCH = 384, 2_048, 1_000
MOST_MB = 400.0
SCOPE = "user:s.agent:s.ana"
NOISE = 0.2
Stored = dict[str, Any]


def vectors(place: int, count: int, noise: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Of the facts from `place` on; with noise they mean nearly the same."""
    made = np.random.default_rng(place).normal(size=(count, DIMENSIONS))
    made += noise * np.random.default_rng(place + 1).normal(size=made.shape)
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def batches(facts: int, other: int, *, anew: bool) -> Iterator[list[Stored]]:
    """Stored facts; the first `other` of them in other words where formed `anew`."""
    now = datetime.now(UTC)
    for start in range(0, facts, BATCH):
        rows: list[Stored] = []
        same, noisy = vectors(start, BATCH, 0), vectors(start, BATCH, NOISE)
        for place in range(start, min(start + BATCH, facts)):
            worded = anew and place < other
            text = f"Ana told on day {place} of the tree number {place}" + (", she said" if worded else "")
            vector = (noisy if worded else same)[place - start]
            rows.append(
                {
                    "_id": f"{'a' if anew else 'l'}{place}",
                    "scope": "user",
                    "scope_key": SCOPE,
                    "agent_id": "s.agent",
                    "user_id": "s.ana",
                    "content": text,
                    "hash": fact_hash(text),
                    "embedding": vector_of(vector.tobytes()),
                    "embedding_model": "bench",
                    "active": True,
                    "version": 1,
                    "decision": "ADD",
                    "formed_at": now,
                    "said_at": now,
                    "valid_from": now,
                    "revision": 1,
                }
            )
        yield rows


async def filled(database: AsyncDatabase[Stored], facts: int, other: int) -> None:
    """Both memories, and the namespace that one of them is."""
    for placement in (Placement(), Placement(NAME)):
        names = placement.names(PREFIX)
        await set_up(database, names)
        for rows in batches(facts, other, anew=placement != Placement()):
            await database[names["facts"]].insert_many(rows, ordered=False)
        snapshot = {
            "_id": SCOPE,
            "scope_key": SCOPE,
            "scope": "user",
            "agent_id": "s.agent",
            "user_id": "s.ana",
            "revision": 1,
            "active_facts": facts,
            "changed_at": datetime.now(UTC),
        }
        await database[names["snapshots"]].insert_one(snapshot)
    made = Namespace(
        id=NAME,
        kind="rebuild",
        prefix=f"{PREFIX}ns_{NAME}_",
        group="nobody",
        source=PREFIX,
        state="verified",
        created_at=datetime.now(UTC),
    )
    await database[f"{PREFIX}namespaces"].insert_one(made.stored())


async def compared(settings: Settings) -> tuple[dict[str, Any], float, float]:
    """What the command says in JSON, its seconds, and the most memory that it took, in MB."""
    assert settings.mongodb.uri is not None
    given = {
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "EDEN_KAFKA_BOOTSTRAP": str(settings.kafka.bootstrap),
    }
    begun = time.monotonic()
    command = (sys.executable, "-m", "eden_memory.cli.main", "namespace", "diff", NAME, "--json")
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **given}, stdout=asyncio.subprocess.PIPE
    )
    watching = asyncio.create_task(most_memory(process.pid))
    said, _ = await process.communicate()
    seconds = time.monotonic() - begun
    assert process.returncode == 0
    return json.loads(said), seconds, await watching


async def read(database: AsyncDatabase[Stored]) -> float:
    """Seconds of reading all facts of both."""
    begun = time.monotonic()
    for placement in (Placement(), Placement(NAME)):
        async for _ in database[placement.names(PREFIX)["facts"]].find(batch_size=BATCH):
            pass
    return time.monotonic() - begun


def multiplied(other: int) -> float:
    """Seconds of the differing vectors' products, block by block, in one process."""
    starts = range(0, other, BATCH)
    left = np.concatenate([vectors(start, BATCH, 0) for start in starts] or [vectors(0, 1, 0)])
    begun = time.monotonic()
    for start in range(0, len(left), BLOCK):
        for begin in range(0, len(left), BLOCK):
            (left[start : start + BLOCK] @ left[begin : begin + BLOCK].T >= 0.65).any()
    return time.monotonic() - begun


async def main(mongodb: str, facts: int, share: float) -> Report:
    """The command and its bounds, in one run."""
    name, other = f"comparing{uuid4().hex[:8]}", int(facts * share)
    settings = settings_of(mongodb, "127.0.0.1:9", (name, f"{name}.", f"{name}."))
    async with connect(mongodb) as client:
        database = client[name]
        try:
            await filled(database, facts, other)
            said, seconds, memory = await compared(settings)
            reading, product = await read(database), await asyncio.to_thread(multiplied, other)
        finally:
            await client.drop_database(name)
    bound = reading + product
    report = Report("comparing", f"two memories of {facts:,} facts in one scope, {other:,} in other words")
    report.results = {**said["facts"], "seconds": seconds, "peak_mb": memory}
    report.bounds = {"reading": reading, "product": product, "peak_mb": MOST_MB}
    report.ratios = {"seconds": seconds / bound, "memory": memory / MOST_MB}
    report.rows = [
        Row(
            "compared by meaning, with the command's start",
            seconds,
            "s",
            bound,
            "reading + product, same run",
        ),
        Row("most memory of the command", memory, "MB", MOST_MB, "whatever the size"),
    ]
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--other", type=float, default=0.1)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
    ):
        asyncio.run(main(servers.mongodb_uri, given.facts, given.other)).show()
