"""Attacks through MCP: tools and resources, with session and user as arguments, as fixed headers, or both."""

import json
from typing import Any
from urllib.parse import quote

import httpx2

from eden_memory.errors import EdenError
from eden_memory.mongo.ids import encode_id, id_of
from tests.integration.doors.attacks import Attack
from tests.integration.doors.world import asked_marks

QUESTION = "What did I say the secret word is?"
SENT = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2025-06-18",
}
OTHERS = ("alone-b-0", "bob")
UNSENT = "(not sent: HTTP has no such header)"


async def through_mcp(client: httpx2.AsyncClient, secret: str, attack: Attack) -> tuple[int, str]:
    """Send it as JSON-RPC in one request; status and text of the answer."""
    sent = {"authorization": f"Bearer {secret}", "x-eden-agent": attack.agent, **SENT}
    where = {name: value for name, value in (("session", attack.session), ("user", attack.user)) if value}
    if attack.number % 3 == 1:  # the host fixes them
        sent |= {f"x-eden-{name}": value for name, value in where.items()}
    if attack.number % 6 == 4:  # and the model names others
        where = {"session": encode_id(OTHERS[0]), "user": encode_id(OTHERS[1])}
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, **_request(attack, where)}
    headers = [(name.encode(), value.encode()) for name, value in sent.items()]
    try:
        response = await client.post("/mcp", content=json.dumps(body), headers=headers)
    except httpx2.LocalProtocolError:
        return 0, UNSENT
    return response.status_code, response.text


def allowed(attack: Attack) -> set[str]:
    """The marks that both the key and the request allow."""
    agent, session, user = _meant(attack.agent), _meant(attack.session), _meant(attack.user)
    if agent is None:
        return set()
    if attack.user is None and attack.key.users is not None and len(attack.key.users) == 1:
        user = attack.key.users[0]
    if attack.number % 6 == 4:
        session = OTHERS[0] if attack.session is None else session
        user = OTHERS[1] if user is None and attack.user is None else user
    return attack.key.seen() & asked_marks(agent, session, user)


def _meant(text: str | None) -> Any:
    try:
        return None if text is None else id_of(text, "test")
    except EdenError:
        return None


def _request(attack: Attack, where: dict[str, str]) -> dict[str, Any]:
    if attack.call in ("context", "recall", "start") and attack.number % 2:
        parts = [where[name] for name in ("session", "user") if name in where]
        uri = "/".join(("memory://context", *(quote(one, safe="") for one in parts)))
        return {"method": "resources/read", "params": {"uri": uri}}
    name, arguments = _tool(attack)
    return {"method": "tools/call", "params": {"name": name, "arguments": {**arguments, **where}}}


def _tool(attack: Attack) -> tuple[str, dict[str, Any]]:
    active = ("true", "all")[attack.number % 2]
    scope = attack.target.rpartition("@")[0] or attack.target
    tools: dict[str, tuple[str, dict[str, Any]]] = {
        "recall": ("get_memory_context", {"message": QUESTION}),
        "search": ("search_facts", {"queries": [QUESTION], "top_k": 50, "include_retired": True}),
        "explain": ("search_facts", {"queries": [QUESTION], "top_k": 50, "kinds": ["reflections", "facts"]}),
        "facts": ("list_facts", {"limit": 200, "active": active}),
        "reflections": ("list_reflections", {"limit": 200}),
        "blobs": ("list_blobs", {}),
        "add": ("add_memory", {"text": "added by an attack"}),
        "forget": ("forget", {"what": attack.what, "target": attack.target}),
        "edit": ("edit_memory", {"memory_id": attack.target, "text": "changed by an attack"}),
        "rewrite": (
            "edit_memory",
            {"memory_id": scope, "text": "changed by an attack", "expected_version": 1},
        ),
        "retire": ("retire_memory", {"memory_id": attack.target}),
        "private": ("mark_private", {"memory_id": attack.target}),
        "pin": ("pin_sentence", {"scope": scope, "sentence": "changed by an attack"}),
        "delete_user": ("forget", {"what": "user", "target": attack.user or "s.bob"}),
    }
    return tools.get(attack.call, ("get_memory_context", {}))
