"""Whatever is asked through the inspector's pages and forms, nobody's memory comes to another."""

import asyncio
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from eden_memory.mongo.ids import encode_id
from tests.integration.doors.attacks import WRITES, Attack, attacks
from tests.integration.doors.conftest import Doors
from tests.integration.doors.http_door import QUESTION, out_of_reach
from tests.integration.doors.test_no_crossing import BY_NAME, allowed, batched
from tests.integration.doors.world import Verdict, scopes

pytestmark = pytest.mark.servers
SEED, CASES = 20_261_123, 280
KEYS = [scope.key for scope in scopes()]


def page_of(attack: Attack) -> tuple[str, dict[str, Any]]:
    """The page that comes nearest to a call of the HTTP API, and its parameters."""
    own = f"user:{attack.agent}:{attack.user}" if attack.user else f"agent:{attack.agent}"
    key = {"key": own if attack.number % 3 else KEYS[attack.number % len(KEYS)]}
    pages: dict[str, tuple[str, dict[str, Any]]] = {
        "recall": ("context", {"message": QUESTION}),
        "facts": ("facts", {**key, "state": ("active", "retired", "all")[attack.number % 3]}),
        "search": ("facts", {**key, "q": QUESTION, "state": "all"}),
        "explain": ("facts", {**key, "q": QUESTION}),
        "reflections": ("reflections", key),
        "blobs": (("scope", "person")[attack.number % 2], key),
        "stats": ("agent", {"kind": ("user", "session", "group", "shard")[attack.number % 4]}),
        "consolidation": ("windows", {}),
        "export": ("costs", {"by": "user"}),
        "fact": ("fact", {"id": attack.target}),
        "history": ("fact", {"id": attack.target}),
        "reflection": ("reflection", {"id": attack.target}),
    }
    return pages.get(attack.call, ("context", {}))


def form_of(attack: Attack) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The form in place of a call that writes: its page, parameters and fields."""
    if attack.call in ("add", "end", "form"):
        return "add", {}, {"text": "added by an attack", "how": ("formed", "fact")[attack.number % 2]}
    act = {"edit": "edit", "rewrite": "edit", "pin": "edit", "retire": "retire"}.get(attack.call, "forget")
    what = attack.what if act == "forget" else "blob" if attack.call in ("rewrite", "pin") else "fact"
    name = attack.target.rpartition("@")[0] if what == "blob" else attack.target
    fields = {"version": "1"} | ({"text": "changed by an attack"} if act == "edit" else {})
    return "change", {"what": what, "act": act, "id": name or "x"}, fields


async def through_the_inspector(doors: Doors, attack: Attack) -> httpx2.Response:
    """Ask as a browser that has signed in does."""
    headers = {"Cookie": f"eden_key={doors.secrets[attack.key.name]}", "Origin": doors.url}
    where = {"agent": attack.agent, "session": attack.session, "user": attack.user}
    page, more, fields = (*page_of(attack), None) if attack.call not in WRITES else form_of(attack)
    if page == "costs":
        where.pop("session")
    query = urlencode({name: value for name, value in (where | more).items() if value is not None})
    if fields is None:
        return await doors.http.get(f"/ui/{page}?{query}", headers=headers)
    return await doors.http.post(f"/ui/{page}?{query}", data=fields, headers=headers)


def may_see(attack: Attack) -> set[str]:
    """The marks that key and request allow; a page fills in the only user of a key."""
    users = attack.key.users
    if attack.user is None and users is not None and len(users) == 1:
        return allowed(replace(attack, user=encode_id(users[0])))
    return allowed(attack)


async def test_no_secret_of_another_comes_through_the_inspector(doors: Doors) -> None:
    verdict, answers = Verdict(), dict[int, int]()

    async def judged(attack: Attack) -> None:
        response = await through_the_inspector(doors, attack)
        answers[response.status_code] = answers.get(response.status_code, 0) + 1
        verdict.judge(f"{attack} → {response.status_code}", response.text, may_see(attack))

    for some in batched(attacks(CASES, SEED)):
        await asyncio.gather(*map(judged, some))
    assert verdict.crossings == []
    assert verdict.let_through >= 15, answers
    assert not any(status >= 500 for status in answers), answers
    asked = await doors.kit.database["memory_inbox"].find({"asked_by": {"$regex": "^ui:"}}).to_list()
    keys = {name.replace("http:", "ui:"): key for name, key in BY_NAME.items()}
    assert [one for one in asked if out_of_reach(keys[one["asked_by"]], one)] == []
    assert len([one for one in asked if keys[one["asked_by"]].bound]) >= 5
