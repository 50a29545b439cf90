"""Messages that are read in late, from the application's writes to the context: dated by when they were said."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eden_memory.limits import CONSOLIDATION_SECONDS
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.system.commands import eden, kill, start
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.script import Asked, Fault, Said
from tests.model_server.serving import serving

pytestmark = [pytest.mark.servers, pytest.mark.slow]
NOW = datetime.now(UTC).replace(second=0, microsecond=0)
JANUARY, MAY, JUNE = (NOW - timedelta(days=days) for days in (200, 60, 30))
ANA = Scope.of_user(encode_id(AGENT), encode_id("ana")).key


class Merging:
    """Obeys, and remembers what it was asked to merge; `hangs`: a merge is never answered."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.hangs = False

    def __call__(self, asked: Asked) -> Said:
        if asked.kind != "consolidation":
            return obey(asked)
        self.requests.append(asked.user)
        return Fault("hang") if self.hangs else obey(asked)


def minute(of: datetime, number: int) -> str:
    return f"{of + timedelta(minutes=number):%Y-%m-%d %H:%M}"


async def test_what_is_read_in_late_adds_to_a_blob_by_its_own_date_though_killed_in_between(
    settings: Settings, tmp_path: Path
) -> None:
    model, log = Merging(), tmp_path / "eden.log"
    async with serving(model) as models:
        quick = fast(settings, models, tailer={"lease_seconds": 2.0})
        async with system(quick, models, run=False) as running:
            await running.write(
                await running.session("ana"), "ana", *(f"note user: May {n}." for n in range(4)), at=MAY
            )
            process = await start(quick, log, "run")
            try:
                await _blob(running, 1)
                assert (await running.snapshot(ANA))["blob_said_at"] == MAY + timedelta(minutes=3)
                june, january = await running.session("ana"), await running.session("ana")
                await running.told(june, "ana", "note user: June 0.", at=JUNE)
                await running.told(
                    january, "ana", *(f"note user: January {n}." for n in range(2)), at=JANUARY
                )
                context = await running.shows(june, "ana", "January 0", "January 1", "June 0")
                assert _order(context, "January 0", "January 1", "June 0")
                await _listed(quick)
                model.hangs = True
                await until(lambda: _paused(running), "the pause between two consolidations is over")
                late = JANUARY + timedelta(minutes=60)
                await running.told(january, "ana", "note user: January 60.", at=late)
                await until(lambda: _asked(model, 2), "the second merge is asked for")
            finally:
                await kill(process)
            model.hangs = False
            process = await start(quick, log, "run")
            try:
                await _blob(running, 2)
            finally:
                await kill(process)
            _named_the_dates(model.requests)
            snapshot = await running.snapshot(ANA)
            assert (snapshot["blob_said_at"], snapshot["buffer"]) == (JUNE, [])
            (blob,) = json.loads(await eden(quick, "blobs", "--agent", AGENT, "--user", "ana", "--json"))
            assert datetime.fromisoformat(blob["said_at"]) == JUNE
            assert "equal" in await eden(quick, "rebuild", "again", "--verify")
            assert await running.dead() == []


def _named_the_dates(requests: list[str]) -> None:
    first, second, *again = requests
    assert "text so far" not in first
    assert _order(first, *(f"- [{minute(MAY, n)}] May {n}." for n in range(4)))
    assert set(again) == {second}, "after the kill the same is asked"
    assert f"# text so far, newest {minute(MAY, 3)}" in second
    assert _order(
        second,
        f"- [{minute(JANUARY, 0)}] January 0.",
        f"- [{minute(JANUARY, 1)}] January 1.",
        f"- [{minute(JANUARY, 60)}] January 60.",
        f"- [{minute(JUNE, 0)}] June 0.",
    )


async def _listed(settings: Settings) -> None:
    """Both times of the reflections, as a person lists them."""
    shown = json.loads(await eden(settings, "reflections", "--agent", AGENT, "--user", "ana", "--json"))
    items: list[Any] = shown["items"]
    said = {one["content"]: datetime.fromisoformat(one["said_at"]) for one in items}
    formed = {one["content"]: datetime.fromisoformat(one["formed_at"]) for one in items}
    assert said["January 1."] == JANUARY + timedelta(minutes=1)
    assert said["June 0."] == JUNE
    assert formed["January 1."] >= formed["June 0."] >= formed["May 0."]


def _order(text: str, *parts: str) -> bool:
    places = [text.find(one) for one in parts]
    return -1 not in places and places == sorted(places)


async def _blob(running: System, version: int) -> None:
    async def there() -> bool:
        return (await running.snapshot(ANA)).get("blob_version") == version

    await until(there, f"version {version} of the blob")


async def _paused(running: System) -> bool:
    """By the windows' time, of which the next is now."""
    pause = timedelta(seconds=CONSOLIDATION_SECONDS + 1)
    return datetime.now(UTC) > (await running.snapshot(ANA))["consolidated_at"] + pause


async def _asked(model: Merging, times: int) -> bool:
    return len(model.requests) >= times
