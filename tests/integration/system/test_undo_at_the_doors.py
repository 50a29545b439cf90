"""Over HTTP and MCP: forget and undo an attack, get the signed receipt of it, and check the receipt."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.operations.operator_calls import PLANNING
from eden_memory.receipts.signing_key import ensured_key
from eden_memory.settings import ReceiptsSettings
from tests.integration.context.harness import Kit
from tests.integration.mcp.conftest import McpServer, served
from tests.integration.system.commands import eden
from tests.integration.system.running_system import AGENT, System, until
from tests.integration.system.test_undoing_an_attack import attacked

pytestmark = pytest.mark.servers
UNDO = f"/v1/agents/{AGENT}/undo"
Body = dict[str, Any]
Ask = Callable[..., Awaitable[Body]]


class Refusal(Exception):  # noqa: N818 - an answer
    """A door's refusal."""


@pytest.fixture(scope="module")
async def server(shared: System) -> AsyncGenerator[McpServer]:
    """The doors of the running system, and the key that signs its receipts."""
    key = shared.settings.local.folder / "receipts.key"
    ensured_key(key)
    settings = shared.settings.model_copy(update={"receipts": ReceiptsSettings(key=key)})
    async with served(Kit(settings, shared.database.client)) as server:
        yield server


@pytest.fixture(params=["http", "mcp"])
def ask(request: pytest.FixtureRequest, server: McpServer) -> Ask:
    """Asks an operator's door by the name of the MCP tool; raises Refusal."""
    door = _by_mcp if request.param == "mcp" else _by_http

    async def asked(tool: str, **given: Any) -> Body:
        return await door(server, tool, given)

    return asked


async def _by_mcp(server: McpServer, tool: str, given: Body) -> Body:
    async with server.client(agent=AGENT) as client:
        answer = await client.call_tool(tool, given)
    if answer.is_error:
        raise Refusal(str(answer.content))
    assert answer.structured_content is not None
    return answer.structured_content


async def _by_http(server: McpServer, tool: str, given: Body) -> Body:
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as http:
        answer = await _answer(http, tool, given)
    if not answer.is_success:
        raise Refusal(answer.text)
    return answer.json()


async def _answer(http: httpx2.AsyncClient, tool: str, given: Body) -> httpx2.Response:
    match tool:
        case "forget":
            return await http.post(f"/v1/agents/{AGENT}/forget", json=given)
        case "preview_undo":
            return await http.post(f"{UNDO}/preview", json=given)
        case "undo":
            return await http.post(UNDO, json=given)
        case "forget_receipt":
            return await http.get(f"/v1/receipts/{given['request_id'].replace('%', '%25')}")
        case _:
            return await http.post("/v1/receipts/verify", json=given["receipt"])


async def receipt_from(ask: Ask, request_id: str) -> Body:
    """The receipt, as soon as there is one."""
    found: list[Body] = []

    async def there() -> bool:
        try:
            found.append(await ask("forget_receipt", request_id=request_id))
        except Refusal:
            return False
        return True

    await until(there, "a receipt")
    return found[0]


async def test_what_is_forgotten_at_a_door_is_verified_there(
    shared: System, ask: Ask, tmp_path: Path
) -> None:
    session = await shared.session(user := f"nia-{uuid4().hex[:4]}")
    names = await shared.told(session, user, "fact user: Nia owns the barge Wigeon.")
    (fact,) = await shared.memory("facts").find({"message_ids": encode_id(names[0])}).to_list()
    asked = await ask("forget", what="session", target=session)
    receipt = await receipt_from(ask, asked["request_id"])
    assert (receipt["asked"]["kind"], receipt["asked"]["target"]) == ("session", encode_id(session))
    assert receipt["memories"][0]["facts"] == [f"{fact['_id']}@1"]
    found = await ask("verify_receipt", receipt=receipt)
    assert found["still_there"] == found["not_yet"] == []
    assert found["on_disk"] is not None
    assert {store["store"].rpartition(".")[2] for store in found["not_clean"]} >= {"facts", "messages"}
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps(receipt))
    said = await eden(shared.settings, "forget", "verify", str(file))
    assert "Nothing that it names is there" in said
    assert "its disk may hold remains until" in said
    await shared.memory("facts").insert_one({**fact, "active": False})
    found = await ask("verify_receipt", receipt=receipt)
    assert fact["_id"] in [there["name"] for there in found["still_there"]]
    await shared.memory("facts").delete_one({"_id": fact["_id"]})
    year = receipt["made_at"][:4]
    for byte, other in ((year, f"{int(year) + 1}"), ("T", " ")):
        changed = {**receipt, "made_at": receipt["made_at"].replace(byte, other, 1)}
        with pytest.raises(Refusal, match=r"not signed by this installation|was rewritten"):
            await ask("verify_receipt", receipt=changed)


async def test_an_attack_is_undone_as_its_preview_has_shown_it(shared: System, ask: Ask) -> None:
    session = await attacked(shared, user := f"pia-{uuid4().hex[:4]}")
    cause: Any = {"cause": "session", "target": session}
    preview = await ask("preview_undo", **cause)
    assert {change["change"]: change["count"] for change in preview["changes"]} == {
        "fact_removed": 2,
        "text_restored": 1,
        "fact_reactivated": 1,
        "reflection_removed": 1,
    }
    assert "Quarrel" not in str(preview)
    await shared.told(session, user, f"fact user: {user} salutes the flag of Quarrel")
    with pytest.raises(Refusal, match="something else would change"):
        await ask("undo", **cause, preview=preview["preview"])
    preview = await ask("preview_undo", **cause)
    asked = await ask("undo", **cause, preview=preview["preview"])
    receipt = await receipt_from(ask, asked["request_id"])
    assert (receipt["asked"]["kind"], receipt["asked"]["target"]) == (
        "caused-by session",
        encode_id(session),
    )
    assert len(receipt["memories"][0]["messages"]) == 5
    assert len(receipt["memories"][0]["facts"]) >= 3
    assert (await ask("verify_receipt", receipt=receipt))["still_there"] == []
    later = await shared.session(user)
    await shared.shows(later, user, "Kestrel", "Lund", without=["pirates", "Tortuga", "Quarrel"])
    assert (await ask("preview_undo", **cause))["changes"] == []


async def test_a_key_undoes_what_is_its_users_alone(shared: System, server: McpServer) -> None:
    own, others = await shared.session("quy"), await shared.session("quy", "ren")
    await shared.told(own, "quy", "fact user: Quy keeps a parrot.")
    key = await server.key("quy", agents=[encode_id(AGENT)], users=[encode_id("quy")])
    reader = await server.key("reader", rights=["read"])
    where = {"user": "quy"}

    async def status(
        session: str, cause: str = "session", secret: str = key, path: str = f"{UNDO}/preview"
    ) -> int:
        async with httpx2.AsyncClient(base_url=server.url, headers={"X-Eden-Key": secret}) as http:
            body = {"cause": cause, "target": session}
            return (await http.post(path, json=body, params=where)).status_code

    assert await status(own) == 200
    assert await status(others) in (403, 404)
    assert await status("quy", "user") == 403
    assert await status("mem0", "import") == 403
    assert await status(own, secret=reader) == 403
    for secret in (key, reader):  # before the body, which is no receipt
        assert await status("x", secret=secret, path="/v1/receipts/verify") == 403


async def test_one_at_a_time_reads_kafka_for_an_undo(shared: System, ask: Ask) -> None:
    session = await shared.session(user := f"sol-{uuid4().hex[:4]}")
    await shared.told(session, user, f"fact user: {user} mends nets.")
    cause: Any = {"cause": "session", "target": session}
    async with PLANNING.turn():
        with pytest.raises(Refusal, match="another preview or undo of an attack is running"):
            await ask("preview_undo", **cause)
    assert (await ask("preview_undo", **cause))["changes"]
