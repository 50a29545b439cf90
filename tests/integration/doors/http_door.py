"""Attacks through the HTTP API, and what they asked for in `memory_inbox`."""

from typing import Any
from urllib.parse import quote

import httpx2

from eden_memory.mongo.ids import encode_id
from tests.integration.doors.attacks import Attack
from tests.integration.doors.world import SESSIONS, Key, mark_of, name_of, scopes

READS = {
    "context": "context",
    "recall": "context",
    "facts": "facts",
    "reflections": "reflections",
    "blobs": "blobs",
    "stats": "stats",
    "consolidation": "consolidation",
}
QUESTION = "What did I say the secret word is?"


async def through_http(client: httpx2.AsyncClient, secret: str, attack: Attack) -> httpx2.Response:
    """Send it in a way that its number chooses: ids encoded or not, parameters repeated or with operators."""
    method, path, body = _request(attack)
    where = [(name, value) for name, value in (("session", attack.session), ("user", attack.user)) if value]
    if attack.call in ("end", "form", "start", "export", "delete_user"):
        where = [one for one in where if one[0] == "user" and attack.call not in ("export", "delete_user")]
    if attack.call == "recall":
        where.append(("message", QUESTION))
    if attack.call == "facts":
        where.append(("active", ("true", "false", "all")[attack.number % 3]))
    where += _pollution(attack)
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in where)
    headers = {"Authorization": f"Bearer {secret}"}
    return await client.request(method, f"{path}?{query}", json=body, headers=headers)


def _pollution(attack: Attack) -> list[tuple[str, str]]:
    """Now and then what only a careless reader would take."""
    return {
        3: [("user", "s.bob")] if attack.user else [],
        5: [("user[$ne]", "x")],
        7: [("$where", "1")],
        11: [("agent", "b")],
    }.get(attack.number % 29, [])


def _request(attack: Attack) -> tuple[str, str, Any]:
    def part(text: str) -> str:
        return text if attack.number % 17 == 1 and text.isprintable() else quote(text, safe="")

    root = f"/v1/agents/{part(attack.agent)}"
    fact = f"{root}/facts/{part(attack.target)}"
    blob = part(attack.target.rpartition("@")[0] or attack.target)
    session = f"{root}/sessions/{part(attack.session or 's.none')}"
    reason: dict[str, Any] = {"reason": "an attack"}
    search: dict[str, Any] = {"queries": [QUESTION], "top_k": 100, "include_retired": True}
    search["kinds"] = (["facts", "reflections"], ["facts"], ["reflections"])[attack.number % 3]
    others: dict[str, tuple[str, str, Any]] = {
        "search": ("POST", f"{root}/search", search),
        "explain": ("POST", f"{root}/search", search | {"debug": True, "search_type": "text"}),
        "fact": ("GET", fact, None),
        "history": ("GET", f"{fact}/history", None),
        "start": ("POST", f"{session}/start", None),
        "end": ("POST", f"{session}/end", None),
        "form": ("POST", f"{session}/form", None),
        "edit": ("PATCH", fact, {"text": "changed by an attack"}),
        "retire": ("POST", f"{fact}/retire", reason),
        "reflection": ("GET", f"{root}/reflections/{part(attack.target)}", None),
        "private": ("POST", f"{root}/reflections/{part(attack.target)}/private", reason),
        "rewrite": ("PATCH", f"{root}/blobs/{blob}", {"text": "changed by an attack", "expected_version": 1}),
        "pin": ("POST", f"{root}/blobs/{blob}/pin", {"sentence": "changed by an attack"}),
        "forget": ("POST", f"{root}/forget", {"what": attack.what, "target": attack.target}),
        "add": ("POST", f"{root}/memories", {"text": "added by an attack"}),
        "export": ("GET", f"/v1/users/{part(attack.user or 's.bob')}/export", None),
        "delete_user": ("DELETE", f"/v1/users/{part(attack.user or 's.bob')}", None),
    }
    return ("GET", f"{root}/{READS[attack.call]}", None) if attack.call in READS else others[attack.call]


SPACES = {name_of(one.key): one.key for one in scopes()}


def out_of_reach(key: Key, asked: dict[str, Any]) -> bool:
    """Whether a document of the inbox asks for something that is not the key's."""
    if not key.bound:
        return False
    match asked["kind"]:
        case "added_text" | "session_ended" | "form_now":
            return not _own_session(key, asked["session_id"])
        case "fact_command" | "memory_command":
            return not _changeable(key, asked["scope"]["key"])
        case _:
            return not _own_target(key, asked["what"], asked["target"])


def _own_session(key: Key, session: Any) -> bool:
    if any(encode_id(one.id) == encode_id(session) and key.reaches(one) for one in SESSIONS):
        return True
    agents, users = key.agents or ("a", "b"), key.users
    prefixes = [f"eden:added:{encode_id(one)}" for one in agents]
    if users is None:
        return any(session == one or str(session).startswith(f"{one}:") for one in prefixes)
    return session in {f"{one}:{encode_id(user)}" for one in prefixes for user in users}


def _own_target(key: Key, what: str, target: Any) -> bool:
    if what == "session":
        return _own_session(key, target)
    if what == "message":
        return any(
            key.reaches(one) and target == f"m-{one.id!r}-{user!r}" for one in SESSIONS for user in one.users
        )
    if what == "user":
        return False
    space = target.rpartition("@")[0] if what == "blob" else SPACES[target.partition("-")[2]]
    return _changeable(key, space)


def _changeable(key: Key, space: str) -> bool:
    """What others see, too, is an administrator's; so a key of one user cannot speak to the others."""
    own = key.users is None or "admin" in key.rights or space.startswith(("user:", "session:"))
    return own and mark_of(space) in key.seen()
