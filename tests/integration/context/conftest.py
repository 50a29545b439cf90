"""A namespace of its own for each test."""

from collections.abc import AsyncGenerator

import pytest

from eden_memory.settings import Settings
from tests.integration.context.harness import Kit, kit_for, mapped


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[Kit]:
    """Sessions, agents, users and groups mapped."""
    async with kit_for(mapped(settings)) as kit:
        yield kit


@pytest.fixture
async def plain(settings: Settings) -> AsyncGenerator[Kit]:
    """Nothing but messages is mapped."""
    async with kit_for(settings) as kit:
        yield kit
