"""Memory formed anew beside live memory: what is paid, what differs, what goes on."""

import json
from collections.abc import AsyncGenerator
from decimal import Decimal
from pathlib import Path

import pytest

from eden_memory import handlers
from eden_memory.domain.errors import EdenError
from eden_memory.mongo.reform.reforms import MongoReforms
from eden_memory.settings import Settings
from tests.integration.formation.conftest import shared_settings as shared_settings  # noqa: PLC0414
from tests.integration.formation.running_system import System, fast, system
from tests.integration.replay.reform_kit import (
    LOUDLY,
    Priced,
    calls,
    expected,
    live_through,
    loud,
    memory,
    placed,
    reform,
)
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
USERS, WINDOWS = ("ana", "bob"), 5


@pytest.fixture(scope="module")
async def lived(shared_settings: Settings) -> AsyncGenerator[System]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handlers, "Prices", Priced)
        async with serving(loud) as models, system(fast(shared_settings, models), models) as running:
            await live_through(running, USERS, WINDOWS)
            yield running


async def test_unchanged_settings_one_window_at_a_time_cost_nothing_and_change_nothing(lived: System) -> None:
    ended, said = await reform(lived.settings, "same", at_once=1)
    assert ended == "formed", said
    assert await calls(lived.database, lived.settings, "same") == []
    before = await memory(lived.database, lived.settings)
    assert await memory(lived.database, placed(lived.settings, "same")) == before
    assert len(before["facts"]) >= len(USERS) * WINDOWS
    assert before["blobs"]
    found = await MongoReforms(lived.database, "memory_").get("same")
    assert found is not None
    assert (found.state, found.formed, found.paid) == ("caught_up", len(USERS) * WINDOWS, 0)
    assert found.reused > 2 * found.formed
    assert expected(said) == 0


async def test_a_changed_prompt_differs_and_costs_about_what_was_expected(
    lived: System, tmp_path: Path
) -> None:
    streams = tmp_path / "streams.json"
    row = {"_id": "s.helper/user", "agent_id": "s.helper", "scope": "user", "extraction_guidance": LOUDLY}
    streams.write_text(json.dumps([row]))
    ended, said = await reform(lived.settings, "loud", streams=streams)
    assert ended == "formed", said
    rows = await memory(lived.database, placed(lived.settings, "loud"))
    texts = {row["content"] for row in rows["facts"].values()}
    assert {f"ANA HAS PLANTED TREE NUMBER {one}." for one in range(WINDOWS)} <= texts
    paid = await calls(lived.database, lived.settings, "loud")
    spent = sum((one["cost_usd"].to_decimal() for one in paid), Decimal(0))
    assert abs(expected(said) - spent) <= spent / 5, (said, spent)
    assert (
        not {row["content"] for row in (await memory(lived.database, lived.settings))["facts"].values()}
        & texts
    )


async def test_a_users_windows_alone_are_formed_and_other_options_are_refused(lived: System) -> None:
    await reform(lived.settings, "one", user="ana")
    rows = await memory(lived.database, placed(lived.settings, "one"))
    assert {row["user_id"] for row in rows["facts"].values()} == {"s.ana"}
    assert len(rows["facts"]) >= WINDOWS
    with pytest.raises(EdenError, match="began with other options"):
        await reform(lived.settings, "one", user="bob")
    with pytest.raises(EdenError, match="nothing but what was formed"):
        await reform(lived.settings, "one", switch=True)
