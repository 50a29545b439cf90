"""Whatever is asked through MCP, nobody's memory comes to another; the attacks are those of the HTTP API."""

from typing import Any

import pytest

from tests.integration.doors.attacks import WRITES, attacks
from tests.integration.doors.conftest import Doors
from tests.integration.doors.directed import directed
from tests.integration.doors.http_door import out_of_reach
from tests.integration.doors.mcp_door import allowed, through_mcp
from tests.integration.doors.world import KEYS, Verdict

pytestmark = pytest.mark.servers
SEED = 20261123
BY_NAME = {f"mcp:{key.name}": key for key in KEYS}


async def test_no_secret_of_another_comes_through_mcp(doors: Doors) -> None:
    verdict, broken = Verdict(), list[str]()
    for attack in attacks(200, SEED):
        status, text = await through_mcp(doors.http, doors.secrets[attack.key.name], attack)
        verdict.judge(f"{attack} → {status}", text, allowed(attack))
        if status >= 500 or "Traceback" in text or '"code":-32603,"message":"Error reading' in text:
            broken.append(f"{attack} → {status} {text}")
    assert verdict.crossings == []
    assert broken == []
    assert verdict.let_through > 15


async def test_nothing_of_another_was_asked_to_change_through_mcp(doors: Doors) -> None:
    for attack in attacks(250, SEED + 1):
        if attack.call in WRITES:
            await through_mcp(doors.http, doors.secrets[attack.key.name], attack)
    assert await crossings(doors) == []


async def test_everybody_forgets_what_is_their_own_through_mcp_and_nothing_of_others(doors: Doors) -> None:
    inbox = doors.kit.database["memory_inbox"]
    await inbox.delete_many({})
    own = others = 0
    for attack, is_own in directed(12, SEED + 2):
        own, others = own + is_own, others + (not is_own)
        await through_mcp(doors.http, doors.secrets[attack.key.name], attack)
    assert await crossings(doors) == []
    asked = await inbox.find({"kind": "forget"}).to_list()
    assert {one["what"] for one in asked} == {"fact", "reflection", "message", "session"}
    assert {one["asked_by"] for one in asked} == {f"mcp:{key.name}" for key in KEYS if key.bound}
    assert len(asked) >= own * 0.7
    assert others >= own


async def crossings(doors: Doors) -> list[Any]:
    """What MCP asked for and its key does not reach."""
    asked = await doors.kit.database["memory_inbox"].find({"asked_by": {"$regex": "^mcp:"}}).to_list()
    return [one for one in asked if out_of_reach(BY_NAME[one["asked_by"]], one)]
