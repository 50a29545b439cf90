"""Whatever is asked through MCP, nobody's memory comes to another; the attacks are those of the HTTP API."""

import pytest

from tests.integration.doors.attacks import WRITES, attacks
from tests.integration.doors.conftest import Doors
from tests.integration.doors.http_door import out_of_reach
from tests.integration.doors.mcp_door import allowed, through_mcp
from tests.integration.doors.world import KEYS, Verdict

pytestmark = pytest.mark.servers
SEED = 20261123
BY_NAME = {f"mcp:{key.name}": key for key in KEYS}


async def test_no_secret_of_another_comes_through_mcp(doors: Doors) -> None:
    verdict, broken = Verdict(), list[str]()
    for attack in attacks(350, SEED):
        status, text = await through_mcp(doors.http, doors.secrets[attack.key.name], attack)
        verdict.judge(f"{attack} → {status}", text, allowed(attack))
        if status >= 500 or "Traceback" in text or '"code":-32603,"message":"Error reading' in text:
            broken.append(f"{attack} → {status} {text}")
    assert verdict.crossings == []
    assert broken == []
    assert verdict.let_through > 30


async def test_nothing_of_another_was_asked_to_change_through_mcp(doors: Doors) -> None:
    for attack in attacks(500, SEED + 1):
        if attack.call in WRITES:
            await through_mcp(doors.http, doors.secrets[attack.key.name], attack)
    asked = await doors.kit.database["memory_inbox"].find({"asked_by": {"$regex": "^mcp:"}}).to_list()
    assert [one for one in asked if out_of_reach(BY_NAME[one["asked_by"]], one)] == []
    assert len([one for one in asked if BY_NAME[one["asked_by"]].bound]) >= 3
