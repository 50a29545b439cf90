"""A real Prometheus for a block: scrapes what it is told, with the deployment's rules."""

import asyncio
import json
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from eden_memory.local import server

RULES = Path(__file__).parents[2] / "dashboards/prometheus/rules.yml"
FOUND = shutil.which("prometheus")
START_SECONDS = 30.0
Vector = list[tuple[dict[str, str], float]]
free_port = server.choose
"""None that a connection to somewhere else may take before it is used."""


async def fetch(url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """A body, read in a thread."""

    def read() -> bytes:
        request = urllib.request.Request(url, body, dict(headers or {}))
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read()

    return await asyncio.to_thread(read)


class Prometheus:
    """Its HTTP API."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def query(self, expr: str) -> Vector:
        """(labels, value) of an expression now."""
        data = await self._get("query", query=expr)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    async def value(self, expr: str) -> float:
        """The single value of an expression; 0 where there is none."""
        found = await self.query(expr)
        assert len(found) <= 1, f"{expr}: {found}"
        return found[0][1] if found else 0.0

    async def series(self, expr: str, seconds: float, step: float) -> Vector:
        """(labels and `at`, value) over the last seconds."""
        now = time.time()
        data = await self._get("query_range", query=expr, start=now - seconds, end=now, step=step)
        return [
            ({**one["metric"], "at": str(at)}, float(value))
            for one in data["result"]
            for at, value in one["values"]
        ]

    async def names(self) -> set[str]:
        """Of all metrics that were scraped."""
        return set(await self._get("label/__name__/values"))

    async def _get(self, path: str, **fields: Any) -> Any:
        body = urllib.parse.urlencode(fields)
        text = await fetch(f"{self.url}/api/v1/{path}?{body}")
        answer = json.loads(text)
        assert answer["status"] == "success", answer
        return answer["data"]


@asynccontextmanager
async def prometheus(targets: Sequence[str], folder: Path, every: str = "1s") -> AsyncGenerator[Prometheus]:
    """Scrapes `host:port` targets as job `eden`; stopped by its pid at the end."""
    assert FOUND is not None
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - once, before anything runs
    config = {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "eden", "static_configs": [{"targets": list(targets)}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    where = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            FOUND,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={where}",
            stdout=output,
            stderr=output,
        )
    try:
        await _ready(f"http://{where}")
        yield Prometheus(f"http://{where}")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _ready(url: str) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            await fetch(f"{url}/-/ready")
        except OSError:
            assert time.monotonic() < until, "Prometheus does not start"
            await asyncio.sleep(0.1)
        else:
            return
