"""Webhooks over HTTP and on the command line: for operators, and private addresses with their permission alone."""

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from eden_memory.cli.main import app
from eden_memory.errors import Invalid, NotFound
from eden_memory.schemas.documents import Webhook
from tests.integration.doors.conftest import Doors
from tests.integration.doors.world import Key
from tests.integration.http.conftest import key_of

pytestmark = pytest.mark.servers
PUBLIC = "https://93.184.215.14/eden"


def asked(url: str = PUBLIC, **fields: Any) -> dict[str, Any]:
    return {"url": url, "on": ["facts", "forgotten"], **fields}


async def test_a_webhook_is_added_listed_without_its_secret_and_removed(api: Doors) -> None:
    operator = await key_of(api, Key("wh-office", agents=None, users=None, rights=("admin",)))
    added = await api.http.post("/v1/webhooks", json=asked(agents=["a"]), headers=operator)
    assert added.status_code == 200, added.text
    secret, webhook = added.json()["secret"], added.json()["webhook"]
    assert secret.startswith("whsec_")
    listed = (await api.http.get("/v1/webhooks", headers=operator)).text
    assert webhook["id"] in listed
    assert secret not in listed
    row = await api.memory.database[api.kit.settings.names[Webhook.COLLECTION]].find_one(
        {"_id": webhook["id"]}
    )
    assert row is not None
    assert secret not in str(row)
    assert row["agents"] == ["s.a"]
    assert row["created_by"] == "http:wh-office"
    path = f"/v1/webhooks/{webhook['id']}"
    assert (await api.http.delete(path, headers=operator)).json() == {"id": webhook["id"]}
    assert (await api.http.delete(path, headers=operator)).status_code == 404


@pytest.mark.parametrize(
    "bound",
    [
        {"agents": ("s.a",), "rights": ("admin",)},
        {"users": ("s.ada",), "rights": ("admin",)},
        {"rights": ("write",)},
    ],
    ids=["an agent", "a user", "no right"],
)
async def test_a_key_that_is_bound_has_no_webhooks(api: Doors, bound: dict[str, Any]) -> None:
    named: dict[str, Any] = {"name": f"wh-{'-'.join(bound)}", "agents": None, "users": None}
    header = await key_of(api, Key(**named | bound))
    for answer in (
        await api.http.post("/v1/webhooks", json=asked(), headers=header),
        await api.http.get("/v1/webhooks", headers=header),
        await api.http.delete("/v1/webhooks/x", headers=header),
    ):
        assert answer.status_code == 403


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1/", "https://localhost/", "https://169.254.169.254/", "http://93.184.215.14/"]
)
async def test_private_addresses_are_refused_and_nobody_may_allow_them_over_http(
    api: Doors, url: str
) -> None:
    operator = await key_of(api, Key(f"wh-{hash(url)}", agents=None, users=None, rights=("admin",)))
    assert (await api.http.post("/v1/webhooks", json=asked(url), headers=operator)).status_code == 422
    sent = await api.http.post("/v1/webhooks", json=asked(url, allow_private=True), headers=operator)
    assert sent.status_code == 422
    with pytest.raises(Invalid):
        await api.memory.add_webhook(url, ["facts"])
    assert await api.memory.list_webhooks() == []


async def test_on_the_command_line_an_operator_allows_a_private_address(
    api: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = api.kit.settings
    assert settings.mongodb.uri is not None
    monkeypatch.setenv("EDEN_MONGODB_URI", settings.mongodb.uri.get_secret_value())
    monkeypatch.setenv("EDEN_MONGODB_DATABASE", settings.mongodb.database)

    async def eden(*arguments: str) -> Any:
        return await asyncio.to_thread(CliRunner().invoke, app, ["webhooks", *arguments])

    url = "http://127.0.0.1:9/eden"
    assert isinstance((await eden("add", url)).exception, Invalid)
    assert isinstance((await eden("add", PUBLIC, "--on", "blobs")).exception, Invalid)
    added = await eden("add", url, "--on", "facts,forgotten", "--agent", "a", "--allow-private")
    secret = added.stdout.strip()
    assert secret.startswith("whsec_")
    listed = await eden("list", "--json")
    (shown,) = json.loads(listed.stdout)
    assert (shown["url"], shown["on"], shown["agents"]) == (url, ["facts", "forgotten"], ["s.a"])
    assert secret not in listed.stdout
    assert shown["id"] in (await eden("list")).stdout
    assert (await eden("remove", shown["id"])).exit_code == 0
    assert isinstance((await eden("remove", shown["id"])).exception, NotFound)
