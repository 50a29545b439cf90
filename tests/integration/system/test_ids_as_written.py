"""Commands for people print ids as the application writes them, and take them back so; status fits 80 columns."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from eden_memory.mongo.ids import encode_id
from tests.integration.system.commands import eden
from tests.integration.system.running_system import AGENT, System, until

pytestmark = pytest.mark.servers
SESSION, USER, MESSAGE = "boat club/7", "rui ü", "note 1: ä"


async def test_trace_and_history_print_ids_as_they_were_written(shared: System) -> None:
    session = await shared.session(USER, id=SESSION)
    await shared.memory("streams").insert_one(
        {"_id": "one/user", "agent_id": encode_id(AGENT), "scope": "user", "threshold": 1}
    )
    said = {"session_id": session, "role": "user", "user_id": USER, "created_at": datetime.now(UTC)}
    await shared.source["messages"].insert_one(
        {"_id": MESSAGE, "content": "fact user: Rui rows on Mondays.", **said}
    )
    await shared.write(session, USER, "note user: Rui likes rowing.")
    await shared.form(session)
    await shared.formed([MESSAGE], 1)
    scope = f"user:{AGENT}:{USER}"

    async def consolidated() -> bool:
        return await shared.memory("consolidated").count_documents({"user_id": encode_id(USER)}) == 1

    await until(consolidated, "the reflection is consolidated")
    (fact,) = (await shared.service.list_facts(user=USER)).items
    row = await shared.memory("windows").find_one({"session_id": encode_id(SESSION)})
    window = f"{SESSION}/{row['_id'].rpartition('/')[2]}"
    tree = await eden(shared.settings, "trace", MESSAGE)
    for name in (SESSION, USER, MESSAGE, window, scope):
        assert name in tree
    assert "s." not in tree
    assert "%" not in tree
    assert "Rui" not in tree
    assert f"window {window} " in await eden(shared.settings, "trace", window)
    assert f"blob {scope}@1 " in await eden(shared.settings, "trace", scope)
    shown = await eden(shared.settings, "history", fact.fact_id, "--user", USER, "--agent", AGENT)
    assert f"rests on: {MESSAGE}" in shown
    back = await eden(shared.settings, "trace", fact.fact_id)
    assert MESSAGE in back


async def test_lines_of_status_fit_80_columns_when_they_are_piped(shared: System) -> None:
    session = await shared.session("ida", id=UUID("6f1c8a3e-5f0a-4b6e-9d0f-0d8f5f0f8a11"))
    await shared.write(session, "ida", "One message that waits.")
    for line in (await eden(shared.settings, "status")).splitlines():
        assert len(line) <= 80 or " " not in line.strip(), line
