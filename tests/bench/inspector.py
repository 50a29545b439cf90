"""Pages of the inspector over a user with 1,000 and one with 100,000 facts: milliseconds, asked for by turns.

`python -m tests.bench.inspector [--small N] [--large N] [--rounds N]`: two databases, each with its own server in
this process; every round asks both for each page, as HTTP. MongoDB of its own, or EDEN_MONGODB_URI.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.schemas.scopes import Scope
from tests.bench.report import Report, Row, median
from tests.bench.search_facts import NOW, facts, store
from tests.integration.context.harness import kit_for
from tests.integration.doors.conftest import doors_of, namespaced
from tests.integration.ui.world import FORMATION, fill
from tests.servers import TestServers, running_servers

EVE = Scope.of_user("s.a", "s.eve")
OF_EVE = f"agent=a&user=eve&key={quote(EVE.key)}"
MOST = 1.5
DIMENSIONS, SEED = 16, 7
PAGES = {
    "overview": "/ui",
    "agent": "/ui/agent?agent=a",
    "person": f"/ui/person?{OF_EVE}",
    "scope": f"/ui/scope?{OF_EVE}",
    "facts": f"/ui/facts?{OF_EVE}",
    "facts of a week in April": f"/ui/facts?{OF_EVE}&since=2026-04-01&until=2026-04-08",
    "retired facts": f"/ui/facts?{OF_EVE}&state=retired",
    "fact": f"/ui/fact?agent=a&user=eve&id={SEED}-500",
    "context": "/ui/context?agent=a&user=eve",
    "windows": "/ui/windows",
    "window": f"/ui/window?id={quote(FORMATION)}",
    "costs": "/ui/costs",
}


@asynccontextmanager
async def inspector_over(servers: TestServers, count: int) -> AsyncGenerator[httpx2.AsyncClient]:
    """A server over so many facts of one user."""
    settings = namespaced(servers)
    async with kit_for(settings) as kit:
        try:
            await fill(kit)
            await store(kit.database, facts(count, [EVE], DIMENSIONS, SEED))
            await _formed_lately(kit.database)
            async with doors_of(kit) as doors:
                yield doors.http
        finally:
            await kit.client.drop_database(settings.mongodb.database)


async def _formed_lately(database: AsyncDatabase[Any]) -> None:
    """Move the formation of all of EVE's facts, one a minute, up to now: growth counts the last days."""
    later = {
        "startDate": "$formed_at",
        "unit": "second",
        "amount": int((datetime.now(UTC) - NOW).total_seconds()),
    }
    query = {"scope_key": EVE.key}
    await database["memory_facts"].update_many(query, [{"$set": {"formed_at": {"$dateAdd": later}}}])
    await database["memory_snapshots"].update_one(
        {"_id": EVE.key}, {"$set": {"changed_at": datetime.now(UTC)}}
    )


async def milliseconds(http: httpx2.AsyncClient, path: str) -> float:
    """Of one page."""
    begun = time.perf_counter()
    answer = await http.get(path)
    assert answer.status_code == 200, path
    return (time.perf_counter() - begun) * 1_000


async def main(servers: TestServers, small: int, large: int, rounds: int) -> Report:
    """Both sizes, page by page."""
    async with AsyncExitStack() as stack:
        https = [await stack.enter_async_context(inspector_over(servers, count)) for count in (small, large)]
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in PAGES}
        for turn in range(rounds + 2):
            for name, path in PAGES.items():
                first, second = [await milliseconds(http, path) for http in https]
                if turn >= 2:
                    taken[name].append((first, second))
    report = Report("inspector", f"pages over {large:,} facts beside {small:,}, {rounds} pairs")
    for name, pairs in taken.items():
        before, after = (median([pair[of] for pair in pairs]) for of in (0, 1))
        report.results[name], report.bounds[name] = after, before
        report.ratios[name] = median([second / first for first, second in pairs])
        report.rows.append(Row(name, after, "ms", before, f"over {small:,} facts"))
    return report


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=1_000)
    parser.add_argument("--large", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=25)
    return parser.parse_args()


if __name__ == "__main__":
    os.environ["EDEN_MEMORY_SHARING"] = "team"
    asked = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        given = {"EDEN_KAFKA_BOOTSTRAP": "127.0.0.1:9", **os.environ}
        with running_servers(given, Path(folder), Path(".eden/jars")) as running:
            asyncio.run(main(running, asked.small, asked.large, asked.rounds)).show()
