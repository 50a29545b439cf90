"""`MemoryService` given whatever an application may pass on unchecked: ids of others, and what is no id at all."""

import re
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from bson import ObjectId, Regex

from eden_memory.api.service import MemoryService
from eden_memory.errors import EdenError
from tests.integration.doors.attacks import TRICKS
from tests.integration.doors.conftest import Doors
from tests.integration.doors.http_door import QUESTION
from tests.integration.doors.world import AGENTS, SESSIONS, USERS, Verdict, asked_marks, fact_id, scopes

pytestmark = pytest.mark.servers
CASES = 250
NO_IDS: tuple[Any, ...] = (
    {"$ne": None}, {"$gt": ""}, {"$regex": ".*"}, {"$in": ["ada", "bob"]}, ["bob"], ("bob",), {"bob"}, b"bob", 1.5,
    True, 2**70, re.compile("bob"), Regex("bob"), object(), ObjectId,
)  # fmt: skip
ALL_TIME: dict[str, Any] = {"active": None, "limit": 200}
CALLS: tuple[Callable[[MemoryService, dict[str, Any], str], Awaitable[Any]], ...] = (
    lambda service, who, _: service.get_memory_context(who["session"], who["user"]),
    lambda service, who, _: service.get_memory_context(who["session"], who["user"], QUESTION),
    lambda service, who, _: service.search_facts(
        QUESTION, **who, top_k=100, include_retired=True, kinds=["facts", "reflections"]
    ),
    lambda service, who, _: service.list_facts(**who, **ALL_TIME),
    lambda service, who, _: service.list_reflections(**who),
    lambda service, who, _: service.list_blobs(**who),
    lambda service, who, _: service.get_memory_stats(**who),
    lambda service, who, fact: service.history(fact, **who),
    lambda service, who, _: service.history({"$ne": None}, **who),  # pyright: ignore[reportArgumentType]
    lambda service, who, _: service.list_facts(**who, cursor={"$ne": None}),  # pyright: ignore[reportArgumentType]
)


async def test_no_secret_of_another_comes_through_python(doors: Doors) -> None:
    random, verdict, refused = Random(1), Verdict(), 0
    stored = [fact_id(one, number) for one in scopes() if one.kind != "session" for number in (0, 1)]
    for number in range(CASES):
        agent = random.choice(AGENTS)
        session = random.choice((None, None, *(one.id for one in SESSIONS), *TRICKS, *NO_IDS))
        user = random.choice((None, *USERS, *USERS, *TRICKS, *NO_IDS))
        what = f"{number} {number % len(CALLS)}: {agent!r} {session!r} {user!r}"
        who = {"session": session, "user": user}
        try:
            answer = await CALLS[number % len(CALLS)](doors.memory.agent(agent), who, random.choice(stored))
        except EdenError as error:
            refused, answer = refused + 1, str(error)
            verdict.judge(what, answer, ())
            continue
        assert not any(one is not None and _is_no_id(one) for one in (session, user)), what
        verdict.judge(what, repr(answer), asked_marks(agent, session, user))
    assert verdict.crossings == []
    assert verdict.let_through >= 50
    assert refused >= 25


def _is_no_id(value: Any) -> bool:
    return any(value is one for one in NO_IDS)
