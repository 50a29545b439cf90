"""What comes late is dated by when it was said: a dead letter that is retried, and what is added with a time."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integration.system.commands import eden
from tests.integration.system.every_door import HEADERS, EveryDoor, every_door
from tests.integration.system.obedient_model import WORD, obey
from tests.integration.system.running_system import AGENT, System, until
from tests.integration.system.test_models_that_fail import cured

pytestmark = pytest.mark.servers
NOW = datetime.now(UTC).replace(microsecond=0)
MAY, JANUARY = NOW - timedelta(days=2), NOW - timedelta(days=140)


@pytest.mark.slow
async def test_a_dead_letter_that_is_retried_late_keeps_its_time_and_overrules_nothing_newer(
    shared: System,
) -> None:
    old, new = await shared.session("rui"), await shared.session("rui")
    text = "fact user: The code of the boat shed is {} same-shed instead"
    late = await shared.write(old, "rui", text.format(f"6687 {WORD}"), at=JANUARY)
    await shared.form(old)

    async def died() -> bool:
        return [one["stage"] for one in await shared.dead()] == ["fact-extraction"]

    await until(died, "its window is a dead letter")
    await shared.told(new, "rui", text.format("7776"), at=MAY)
    shared.models.script = cured
    try:
        await eden(shared.settings, "dead", "retry", "--stage", "fact-extraction", "--yes")
        await shared.formed(late, 1)
    finally:
        shared.models.script = obey
    search = "the code of the boat shed"
    found = await shared.service.search_facts(search, session=new, user="rui", include_retired=False)
    assert [(one.content.split()[7], one.valid_from) for one in found] == [("7776", MAY)]
    (older,) = (await shared.service.list_facts(user="rui", active=False)).items
    assert (older.said_at, older.valid_from, older.retired_at) == (JANUARY, JANUARY, MAY)
    assert (older.retired_because, older.replaced_by) == ("contradicted", found[0].fact_id)
    before = MAY - timedelta(hours=1)
    then = await shared.service.search_facts(search, session=new, user="rui", as_of=before)
    assert [one.content.split()[7] for one in then] == ["6687"]


async def test_what_is_added_with_a_time_at_any_door_holds_since_then(shared: System) -> None:
    async with every_door(shared) as doors:
        for number, add in enumerate((over_http, over_mcp, by_command)):
            user, text = f"door-{number}", f"Door {number} was painted blue."
            said = JANUARY + timedelta(days=number)
            await add(doors, user, f"fact user: {text}", said.isoformat())

            async def stored(user: str = user, text: str = text) -> bool:
                return await shared.facts(user) == [text]

            await until(stored, f"{add.__name__}: the added fact is stored")
            (fact,) = (await shared.service.list_facts(user=user)).items
            history = await shared.service.history(fact.fact_id, user=user)
            assert (history.fact.said_at, [one.valid_from for one in history.versions]) == (said, [said])
            printed = await eden(
                shared.settings, "history", fact.fact_id, "--user", user, "--agent", AGENT, "--json"
            )
            (version,) = json.loads(printed)["versions"]
            assert datetime.fromisoformat(version["valid_from"]) == said


async def over_http(doors: EveryDoor, user: str, text: str, at: str) -> None:
    body = {"text": text, "at": at}
    answer = await doors.http.post(f"/v1/agents/{AGENT}/memories", json=body, params={"user": user})
    assert answer.status_code == 202, answer.text


async def over_mcp(doors: EveryDoor, user: str, text: str, at: str) -> None:
    params: dict[str, Any] = {"name": "add_memory", "arguments": {"text": text, "at": at, "user": user}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await doors.http.post("/mcp", content=json.dumps(body), headers=HEADERS)
    assert "request_ids" in answer.text, answer.text


async def by_command(doors: EveryDoor, user: str, text: str, at: str) -> None:
    await eden(doors.running.settings, "add", text, "--user", user, "--agent", AGENT, "--at", at)
