"""`add` with a user and a scope, at every door: whose memory it becomes, and what is refused in a sentence."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from eden_memory.access.admission_store import Refused
from eden_memory.api.service import Memory
from eden_memory.errors import Invalid, NotFound
from eden_memory.mongo.client import connect
from eden_memory.settings import Settings
from tests.integration.context.harness import Kit
from tests.integration.doors.conftest import Doors, doors_of
from tests.integration.system.commands import EDEN, eden, environment
from tests.integration.system.every_door import HEADERS
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.integration.system.test_private_by_default import greedy
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers


@pytest.fixture(params=["offline", pytest.param("scripted", marks=pytest.mark.slow)])
async def doors(request: pytest.FixtureRequest, settings: Settings) -> AsyncGenerator[tuple[System, Doors]]:
    """A private store that runs, and its doors."""
    async with serving(greedy) as models:
        placed = fast(settings, models, memory={"sharing": "private"})
        if request.param == "offline":
            placed = placed.model_copy(update={"llm": "offline"})
        assert placed.mongodb.uri is not None
        async with (
            system(placed, models) as running,
            connect(placed.mongodb.uri.get_secret_value()) as client,
            doors_of(Kit(placed, client)) as found,
        ):
            yield running, found


async def scopes(running: System, word: str) -> set[str]:
    rows = await running.memory("facts").find({"content": {"$regex": word}}).to_list()
    return {row["scope"] for row in rows}


async def mcp_add(http: httpx2.AsyncClient, **arguments: Any) -> str:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    asked = {**body, "params": {"name": "add_memory", "arguments": arguments}}
    return (await http.post("/mcp", content=json.dumps(asked), headers=HEADERS)).text


async def test_a_users_text_is_theirs_unless_a_scope_says_otherwise(doors: tuple[System, Doors]) -> None:
    running, at = doors
    url = f"/v1/agents/{AGENT}/memories"
    said = {
        town: f"The depot {town} opens at six every Monday."
        for town in ("Porto", "Braga", "Faro", "Évora", "Lagos", "Sines", "Tomar", "Beja")
    }
    await running.service.set_stream("shard:opening hours", extraction_guidance="When depots open.")
    await running.service.add(said["Porto"], user="rui", scope="agent")
    await at.http.post(url, params={"user": "rui"}, json={"text": said["Braga"], "scope": "agent"})
    await mcp_add(at.http, text=said["Faro"], user="rui", scope="agent")
    await eden(running.settings, "add", said["Évora"], "--agent", AGENT, "--user", "rui", "--scope", "agent")
    await running.service.add(said["Lagos"], user="rui", scope="user")
    hours = "shard:opening hours"
    await eden(running.settings, "add", said["Sines"], "--agent", AGENT, "--user", "rui", "--scope", hours)
    await at.http.post(url, json={"text": said["Tomar"], "scope": hours})
    await running.service.add(said["Beja"], scope=hours, verbatim=True)

    async def stored() -> bool:
        return all([await scopes(running, town) for town in said])

    await until(stored, "all are remembered")
    assert {town: await scopes(running, town) for town in said} == {
        "Porto": {"agent"},
        "Braga": {"agent"},
        "Faro": {"agent"},
        "Évora": {"agent"},
        "Lagos": {"user"},
        "Sines": {"shard"},
        "Tomar": {"shard"},
        "Beja": {"shard"},
    }
    found = str(await running.service.search_facts("When does the depot open?", user="bob"))
    assert all(town in found for town in ("Porto", "Braga", "Faro", "Évora", "Sines", "Tomar", "Beja"))
    assert "Lagos" not in found
    await running.forget("user", "rui")

    async def forgotten() -> bool:
        return not any([await scopes(running, town) for town in said if town not in ("Tomar", "Beja")])

    await until(forgotten, "forgetting the author reaches what was given to all")


@pytest.mark.parametrize("doors", ["offline"], indirect=True)
async def test_what_cannot_be_is_refused_in_a_sentence(doors: tuple[System, Doors]) -> None:
    running, at = doors
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"user": "rui", "scope": "group"}, "texts cannot be added to the scope 'group'"),
        ({"scope": "user"}, "needs a user"),
        ({"scope": "shard:"}, "names no shard"),
        ({"session": "s1", "scope": "agent"}, "a scope is only for texts outside of sessions"),
    ]
    for asked, sentence in wrong:
        with pytest.raises(Invalid, match=sentence):
            await running.service.add("A text.", **asked)
        where = {name: one for name, one in asked.items() if name != "scope"}
        body = {"text": "A text.", "scope": asked["scope"]}
        answer = await at.http.post(f"/v1/agents/{AGENT}/memories", params=where, json=body)
        assert (answer.status_code, sentence in answer.text) == (422, True), answer.text
        assert sentence in await mcp_add(at.http, text="A text.", **asked)
        options = [part for name, one in asked.items() for part in (f"--{name}", one)]
        process = await asyncio.create_subprocess_exec(
            *EDEN, "add", "A text.", "--agent", AGENT, *options,
            env=environment(running.settings),
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, error = await process.communicate()
        assert (process.returncode, sentence in error.decode()) == (2, True), error.decode()
    with pytest.raises(NotFound, match="there is no stream"):
        await running.service.add("A text.", scope="shard:none")
    await running.service.set_stream("shard:off", active=False)
    with pytest.raises(Invalid, match="switched off"):
        await running.service.add("A text.", scope="shard:off")
    secret, _ = await at.keys.create("ruis", users=["s.rui"])
    headers = {"Authorization": f"Bearer {secret}"}
    body = {"text": "A text.", "scope": "agent"}
    url = f"/v1/agents/{AGENT}/memories"
    answer = await at.http.post(url, params={"user": "rui"}, json=body, headers=headers)
    assert (answer.status_code, "visible to others" in answer.text) == (403, True)
    async with Memory(running.settings) as memory:
        with pytest.raises(Refused, match="visible to others"):
            await memory.agent(AGENT, changes_shared=False).add("A text.", user="rui", scope="agent")
    assert await running.memory("inbox").count_documents({}) == 0
