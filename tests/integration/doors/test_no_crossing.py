"""Whatever is asked through whatever door, nobody's memory comes to another."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pytest

from eden_memory.errors import EdenError
from eden_memory.mongo.ids import id_of
from tests.integration.doors.attacks import WRITES, Attack, attacks
from tests.integration.doors.conftest import Doors
from tests.integration.doors.http_door import out_of_reach, through_http
from tests.integration.doors.world import AGENTS, KEYS, Verdict, asked_marks

pytestmark = pytest.mark.servers
SEED, CASES, AT_ONCE = 20_261_122, 420, 16
BY_NAME = {f"http:{key.name}": key for key in KEYS}


def batched(all_of_them: Iterable[Attack]) -> Iterator[list[Attack]]:
    """Some at the same time."""
    waiting = iter(all_of_them)
    while some := list(islice(waiting, AT_ONCE)):
        yield some


def meant(text: str | None) -> Any:
    """What an id in a request stands for; None for what stands for nothing."""
    try:
        return None if text is None else id_of(text, "test")
    except EdenError:
        return None


def allowed(attack: Attack) -> set[str]:
    """What both the key and the request allow."""
    agent = meant(attack.agent)
    if agent is None:
        return set()
    return attack.key.seen() & asked_marks(agent, meant(attack.session), meant(attack.user))


async def test_no_secret_of_another_comes_through_http(doors: Doors) -> None:
    verdict, answers = Verdict(), dict[int, int]()

    async def one(attack: Attack) -> None:
        response = await through_http(doors.http, doors.secrets[attack.key.name], attack)
        answers[response.status_code] = answers.get(response.status_code, 0) + 1
        verdict.judge(f"{attack} → {response.status_code}", response.text, allowed(attack))

    for some in batched(attacks(CASES, SEED)):
        await asyncio.gather(*map(one, some))
    assert verdict.crossings == []
    assert verdict.cases >= 250
    assert verdict.let_through >= 15, answers
    assert not any(status >= 500 for status in answers), answers


async def test_nothing_of_another_was_asked_to_change(doors: Doors) -> None:
    for agent in AGENTS:
        await doors.kit.database["agents"].update_one({"_id": agent}, {"$set": {"name": agent}}, upsert=True)
    writes = (one for one in attacks(CASES, SEED + 1) if one.call in WRITES)
    for some in batched(writes):
        await asyncio.gather(*(through_http(doors.http, doors.secrets[one.key.name], one) for one in some))
    asked = await doors.kit.database["memory_inbox"].find({"asked_by": {"$regex": "^http:"}}).to_list()
    crossings = [one for one in asked if out_of_reach(BY_NAME[one["asked_by"]], one)]
    assert crossings == []
    assert len([one for one in asked if BY_NAME[one["asked_by"]].bound]) >= 10
