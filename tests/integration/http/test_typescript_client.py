"""clients/typescript: built from docs/openapi.yaml, its own tests run against a real `eden serve`."""

import os

import pytest

from eden_memory.local import server
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.context.harness import fact, kit_for
from tests.integration.mcp.stored import remember
from tests.integration.mcp.written import ROOT, eden_serve
from tests.node_programs import install, npm

pytestmark = [pytest.mark.servers, pytest.mark.slow]
CLIENT = ROOT / "clients" / "typescript"
BOAT = "The boat Gaivota is due on 9 March."


async def test_the_typescript_client_is_built_and_its_tests_pass(settings: Settings) -> None:
    await install(CLIENT)
    code, said = await npm("run", "build", cwd=CLIENT)
    assert code == 0, said
    assert settings.mongodb.uri is not None
    port = str(server.choose())
    environment = {
        **os.environ,
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "EDEN_SERVE_PORT": port,
    }
    async with kit_for(settings) as kit:
        rui = Scope.of_user("s.default", "s.rui")
        await kit.authors("c1", "rui")
        await remember(kit, rui, BOAT)
        await kit.put(rui, active_facts=1, recent_facts=(fact(BOAT),), revision=2)
        async with eden_serve(environment, port):
            code, said = await npm("test", cwd=CLIENT, EDEN_URL=f"http://127.0.0.1:{port}")
    assert code == 0, said
    assert "# pass 5" in said or "pass 5" in said, said
