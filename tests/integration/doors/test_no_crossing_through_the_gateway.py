"""Chats through the gateway with every key, in every session and for every user: what the provider is given."""

import json
from random import Random
from typing import Any

import pytest
from bson import ObjectId

from eden_memory.mongo.ids import encode_id
from tests.integration.doors.attacks import TRICKS
from tests.integration.doors.conftest import Doors
from tests.integration.doors.world import AGENTS, KEYS, SESSIONS, USERS, Key, Verdict, asked_marks
from tests.model_server.chat_upstream import ChatUpstream

pytestmark = pytest.mark.servers
CASES = 125
NO_IDS: tuple[Any, ...] = ({"$ne": None}, ["s.bob"], {"$regex": "."}, True, 1.5)


async def test_no_secret_of_another_reaches_the_provider_or_the_answer(
    doors: Doors, upstream: ChatUpstream
) -> None:
    random, verdict, statuses = Random(3), Verdict(), set[int]()
    for number in range(CASES):
        key = KEYS[number % len(KEYS)]
        session = _one(random, [one.id for one in SESSIONS if key.reaches(one)], [one.id for one in SESSIONS])
        user = _one(random, list(key.users or USERS), list(USERS))
        upstream.came.clear()
        text = f"attack {number}: what did I say the secret word is?"
        fields = {"memory_id": session, "user": user, "memory_top_k": 100}
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        body |= {name: value for name, value in fields.items() if value is not None}
        headers = {"X-Eden-Key": doors.secrets[key.name], "Authorization": "Bearer sk-upstream"}
        answer = await doors.http.post("/v1/chat/completions", json=body, headers=headers)
        statuses.add(answer.status_code)
        seen = answer.text + "".join(one.raw.decode() for one in upstream.came)
        what = f"{number}: {key.name} {session!r} {user!r} → {answer.status_code}"
        verdict.judge(what, seen, key.seen() & _allowed(key, session, user))
        assert all(b"x-eden-key" not in dict(one.headers) for one in upstream.came)
        assert doors.secrets[key.name] not in seen
    assert verdict.crossings == []
    assert verdict.let_through >= 40
    assert not any(one >= 500 for one in statuses), statuses


async def test_no_turn_was_kept_in_a_session_of_others(doors: Doors) -> None:
    kept = await doors.kit.database["memory_inbox"].find({"text": {"$regex": "^attack [0-9]+:"}}).to_list()
    for one in kept:
        key = KEYS[int(one["text"].split(":")[0].split()[1]) % len(KEYS)]
        named = [two for two in SESSIONS if encode_id(two.id) == encode_id(one["session_id"])]
        assert all(key.reaches(two) for two in named), (key.name, json.dumps(one, default=str))
        mine = None if key.users is None else set(map(encode_id, key.users))
        assert mine is None or encode_id(one["user_id"]) in mine
    assert len(kept) >= 20


def _one(random: Random, own: list[Any], others: list[Any]) -> Any:
    """None, the caller's own, another's, a trick, or no id at all."""
    kind = random.random()
    if kind < 0.15:
        return None
    found: Any = random.choice(own if kind < 0.55 and own else others if kind < 0.8 else [*TRICKS, *NO_IDS])
    return str(found) if isinstance(found, ObjectId) else found


def _allowed(key: Key, session: Any, user: Any) -> set[str]:
    agent = key.agents[0] if key.agents is not None else AGENTS[0]
    who = user if isinstance(user, str | int) and not isinstance(user, bool) else None
    who = next((one for one in USERS if isinstance(one, ObjectId) and str(one) == who), who)  # as it is read
    if who is None and key.users is not None and len(key.users) == 1:
        who = key.users[0]
    where = session if isinstance(session, str | int) and not isinstance(session, bool) else None
    return asked_marks(agent, where, who)
