"""The HTTP API on a real server and a real MongoDB, one for all tests of a file."""

from collections.abc import AsyncGenerator

import pytest

from eden_memory.schemas.scopes import Scope
from eden_memory.settings import ServeSettings
from tests.integration.context.harness import kit_for
from tests.integration.doors.conftest import Doors, doors_of, namespaced
from tests.integration.doors.world import Key
from tests.integration.mcp.stored import remember
from tests.servers import TestServers

ADA, BOB = Scope.of_user("s.a", "s.ada"), Scope.of_user("s.a", "s.bob")


@pytest.fixture(scope="module")
async def api(servers: TestServers) -> AsyncGenerator[Doors]:
    """Ada and Bob, alone and together, and a fact of each."""
    serve = ServeSettings(  # pyright: ignore[reportCallIssue]
        cors_origins=("https://app.example",),
        heartbeat_seconds=0.2,
        subscriptions=2,
    )
    settings = namespaced(servers, serve=serve)
    async with kit_for(settings) as kit:
        try:
            await kit.session("ada-alone", ["ada"])
            await kit.session("bob-alone", ["bob"])
            await kit.session("both", ["ada", "bob"])
            await remember(kit, ADA, "Ada works in Lisbon.")
            await remember(kit, BOB, "Bob works in Turin.")
            async with doors_of(kit) as doors:
                yield doors
        finally:
            await kit.client.drop_database(settings.mongodb.database)


def bearer(secret: str) -> dict[str, str]:
    """The header that shows a key."""
    return {"Authorization": f"Bearer {secret}"}


async def key_of(doors: Doors, key: Key, **options: int) -> dict[str, str]:
    """The header of a new key."""
    secret, _ = await doors.keys.create(
        key.name,
        agents=key.agents,
        users=key.users,
        rights=key.rights,  # pyright: ignore[reportArgumentType]
        **options,
    )
    return bearer(secret)
