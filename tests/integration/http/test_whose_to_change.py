"""Shared memory that rests on one user's words is not another user's to change, whoever may see it."""

from typing import Any

import pytest

from eden_memory.access.admission_store import Refused
from eden_memory.mongo.documents import row_of
from eden_memory.schemas.documents import Fact
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope
from tests.integration.context.harness import now
from tests.integration.doors.conftest import Doors
from tests.integration.doors.world import Key
from tests.integration.http.conftest import key_of

pytestmark = pytest.mark.servers

AGENT = Scope.of_agent("s.a")
CHANGES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("PATCH", "/v1/agents/a/facts/{}", {"text": "Mallory was here."}),
    ("POST", "/v1/agents/a/facts/{}/retire", {}),
    ("POST", "/v1/agents/a/forget", {"what": "fact", "target": "{}"}),
)


async def shared_fact(api: Doors, name: str, *authors: str) -> str:
    """A fact of the agent that rests on messages of these users."""
    sources = [
        SourceMessage(message_id=f"s.m{n}", version="1" * 16, session_id="s.x", user_id=one, time=now())
        for n, one in enumerate(authors)
    ]
    fact = Fact(
        _id=name,
        scope="agent",
        scope_key=AGENT.key,
        agent_id="s.a",
        content=f"Something about {name}.",
        hash=f"{abs(hash(name)):064x}"[:64],
        active=True,
        version=1,
        decision="ADD",
        sources=tuple(sources),
        formed_at=now(),
        said_at=now(),
        valid_from=now(),
    )
    await api.kit.database["memory_facts"].replace_one({"_id": name}, row_of(fact), upsert=True)
    await api.kit.put(AGENT, active_facts=1, revision=1)
    return name


async def asked(api: Doors, change: int, fact: str, user: str | None, headers: dict[str, str]) -> int:
    method, path, body = CHANGES[change]
    filled = {name: value.format(fact) for name, value in body.items()}
    params = {} if user is None else {"user": user}
    answer = await api.http.request(method, path.format(fact), json=filled, params=params, headers=headers)
    return answer.status_code


@pytest.mark.parametrize("change", range(len(CHANGES)))
async def test_a_named_user_changes_what_rests_on_that_user_alone(api: Doors, change: int) -> None:
    anas = await shared_fact(api, f"anas-{change}", "s.ada")
    both = await shared_fact(api, f"both-{change}", "s.ada", "s.bob")
    nobodys = await shared_fact(api, f"nobodys-{change}")
    key = await key_of(api, Key(f"writer-{change}", None, None, ("write",)))
    for headers in ({}, key) if change == 0 else ({},):
        for fact in (anas, both, nobodys):
            assert await asked(api, change, fact, "bob", headers) == 403
        assert await asked(api, change, both, "ada", headers) == 403
        assert await asked(api, change, anas, "ada", headers) == 202
        for fact in (anas, both, nobodys):
            assert await asked(api, change, fact, None, headers) == 202, "the operator"


async def test_the_same_holds_in_python(api: Doors) -> None:
    fact = await shared_fact(api, "python", "s.ada")
    service = api.memory.agent("a")
    with pytest.raises(Refused):
        await service.edit(fact, "Mallory was here.", user="bob")
    with pytest.raises(Refused):
        await service.forget("fact", fact, user="bob")
    await service.edit(fact, "Ada moved.", user="ada")
    await service.edit(fact, "Ada moved.")
