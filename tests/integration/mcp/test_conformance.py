"""The protocol's public conformance suite against the server of `eden serve`, and its fixture tools."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from eden_memory.api.mcp import mcp_app
from tests.integration.context.harness import Kit
from tests.integration.mcp.conformance_fixtures import with_fixtures
from tests.integration.mcp.conftest import served
from tests.integration.mcp.written import ROOT
from tests.node_programs import install, node

pytestmark = pytest.mark.servers
PAGE = ROOT / "docs" / "mcp.md"
SCENARIO = re.compile(r"^server-(.*)-\d{4}-\d\d-\d\dT.*$")
SUITE = ROOT / "tests" / "conformance"
PROGRAM = "node_modules/@modelcontextprotocol/conformance/dist/index.js"


@pytest.mark.slow
async def test_the_table_of_the_page_is_what_the_suite_says(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install(SUITE)
    monkeypatch.setattr(mcp_app, "mcp_server", with_fixtures)
    async with served(kit) as server:
        options = ("--url", f"{server.url}/mcp", "--suite", "all", "-o", str(tmp_path))
        _, said = await node(PROGRAM, "server", *options, cwd=SUITE)
    assert results(tmp_path) == written(), said[-3000:]


def results(folder: Path) -> dict[str, str]:
    """Scenario → how it ended."""
    return {
        SCENARIO.sub(r"\1", file.parent.name): ended(json.loads(file.read_text()))
        for file in folder.rglob("checks.json")
    }


def ended(checks: list[dict[str, Any]]) -> str:
    found = {check["status"] for check in checks}
    return "fails" if "FAILURE" in found else "warns" if "WARNING" in found else "passes"


def written() -> dict[str, str]:
    """The page's table."""
    rows = re.findall(r"^\| (`.*?) \| (passes|warns|fails) \|", PAGE.read_text(), re.MULTILINE)
    return {name: result for names, result in rows for name in re.findall(r"`([\w-]+)`", names)}
