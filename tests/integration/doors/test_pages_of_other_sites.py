"""A page of another site, open in a browser on this machine, asks a server that demands no key."""

import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Any

import httpx2
import pytest

from eden_memory.settings import AgentsSettings, GatewaySettings, ServeSettings
from tests.integration.context.harness import kit_for
from tests.integration.doors.conftest import Doors, doors_of, namespaced
from tests.model_server.chat_upstream import ChatUpstream
from tests.servers import TestServers

pytestmark = pytest.mark.servers
ALLOWED = "https://app.example"
PICTURE = {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
FRAME = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Sec-Fetch-User": "?1"}
FOREIGN = [
    {"Sec-Fetch-Site": site, **headers}
    for site in ("cross-site", "same-site")
    for headers in (PICTURE, FRAME, LINK)
]
"""As Chromium, Firefox and Safari send them: no Origin with a GET that does not read the answer."""
TYPED = {"Sec-Fetch-Site": "none", **LINK}
OWN = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
OPEN_TO_ALL = {
    "/",
    "/livez",
    "/readyz",
    "/health",
    "/openapi.json",
    "/ui/assets/{name}",
    "/ui/sign-in",
    "/ui/{path:path}",
}
"""Says nothing of memory, and costs nothing."""


@pytest.fixture(scope="module")
async def keyless(servers: TestServers, upstream: ChatUpstream) -> AsyncGenerator[Doors]:
    gateway = GatewaySettings(upstream=upstream.openai_url)  # pyright: ignore[reportCallIssue]
    serve = ServeSettings(cors_origins=(ALLOWED,))  # pyright: ignore[reportCallIssue]
    settings = namespaced(servers, gateway=gateway, serve=serve, agents=AgentsSettings(default="s.a"))
    async with kit_for(settings) as kit:
        try:
            await kit.session("one", ["ada"])
            async with doors_of(kit, operator=True) as doors:
                yield doors
        finally:
            await kit.client.drop_database(settings.mongodb.database)


def _doors(routes: Iterable[Any]) -> Iterator[str]:
    """Yield a path of every GET route, of all doors that are mounted."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from _doors(inner.routes)
        elif "GET" in (getattr(route, "methods", None) or {"GET"}) and route.path not in OPEN_TO_ALL:
            yield re.sub(r"\{[^}]*\}", "a", route.path)


async def _status(client: httpx2.AsyncClient, path: str, headers: dict[str, str]) -> int:
    """Return the answer's status, and leave a stream as soon as it begins."""
    async with client.stream("GET", path, headers=headers) as answer:
        return answer.status_code


async def test_no_door_answers_a_page_of_another_site(keyless: Doors) -> None:
    paths = list(_doors(keyless.app.routes))
    assert {"/v1/agents/a/events", "/v1/models", "/mcp", "/metrics", "/ui"} <= set(paths)
    for headers in FOREIGN:
        answered = {path: await _status(keyless.http, path, headers) for path in paths}
        assert answered == dict.fromkeys(paths, 403), headers


@pytest.mark.parametrize("path", ["/v1/agents/a/search", "/v1/chat/completions", "/mcp"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_nothing_is_sent_from_a_page_of_another_site(keyless: Doors, path: str, site: str) -> None:
    """A form without a script: browsers send such a type of content without asking first."""
    headers = {"Sec-Fetch-Site": site, "Content-Type": "text/plain", **LINK}
    answer = await keyless.http.post(path, content=b'{"queries": ["boats"]}', headers=headers)
    assert answer.status_code == 403


async def test_who_types_an_address_and_our_own_pages_are_answered(keyless: Doors) -> None:
    allowed = {"Origin": ALLOWED, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    context = "/v1/agents/a/context?session=one&user=ada"
    for headers in ({}, TYPED, OWN, allowed):
        assert await _status(keyless.http, context, headers) in (200, 204), headers
        assert await _status(keyless.http, "/v1/agents/a/events", headers) == 200, headers
    for headers in ({}, TYPED, OWN):
        assert await _status(keyless.http, "/ui", headers) == 200, headers


async def test_a_link_leads_to_the_inspector_with_a_key_but_no_page_loads_it_into_itself(
    keyless: Doors,
) -> None:
    """The browser sends the key's cookie to every port of this machine."""
    secret, _ = await keyless.keys.create("boss", rights=["read"])
    for place, expected in ((LINK, 200), (PICTURE, 403), (FRAME, 403)):
        headers = {"Cookie": f"eden_key={secret}", "Sec-Fetch-Site": "same-site", **place}
        assert await _status(keyless.http, "/ui", headers) == expected, place
