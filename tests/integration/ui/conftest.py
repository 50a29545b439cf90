"""The inspector on a real server, a real MongoDB and in a real browser, one of each for all tests of a file."""

from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser

from eden_memory.settings import ServeSettings
from tests.browser import Watched, running_browser, window
from tests.integration.context.harness import kit_for
from tests.integration.doors.conftest import Doors, doors_of, namespaced
from tests.integration.ui.world import fill
from tests.servers import TestServers


@pytest.fixture(scope="module")
async def browser() -> AsyncGenerator[Browser]:
    """Chromium."""
    async with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
async def inspector(servers: TestServers, browser: Browser) -> AsyncGenerator[Doors]:
    """A filled world, and its server; without a browser nothing is started."""
    serve = ServeSettings(heartbeat_seconds=0.5, cors_origins=("https://app.example",))  # pyright: ignore[reportCallIssue]
    settings = namespaced(servers, serve=serve)
    async with kit_for(settings) as kit:
        try:
            await fill(kit)
            async with doors_of(kit) as doors:
                yield doors
        finally:
            await kit.client.drop_database(settings.mongodb.database)


@pytest.fixture
async def page(browser: Browser, inspector: Doors) -> AsyncGenerator[Watched]:
    """A window in which nothing may go wrong."""
    async with window(browser, inspector.url) as watched:
        yield watched
        assert watched.wrong == []
