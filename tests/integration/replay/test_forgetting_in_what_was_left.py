"""What is forgotten leaves a stopped rebuild and a paused reform, by `eden run` alone; then both come to an end."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition

from eden_memory.assembly import handlers
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.replay.installation import Installation, installation
from eden_memory.replay.namespaces.dropping import drop, placement_named
from eden_memory.replay.namespaces.namespace_store import WRITER
from eden_memory.replay.rebuild.namespace_rebuild import filling, verify
from eden_memory.replay.reform.reform_store import MongoReforms, neglected
from eden_memory.settings import Settings
from tests.integration.replay.reform_kit import Priced, expected, memory, placed, quiet, reform
from tests.integration.replay.replay_kit import ignored
from tests.integration.stages.harness import running
from tests.integration.system.commands import kill, start
from tests.integration.system.conftest import shared_settings as shared_settings  # noqa: PLC0414
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, system, until
from tests.model_server.serving import serving

pytestmark = [pytest.mark.servers, pytest.mark.slow]
UNCOMMITTED, STOPPED, TRIAL = "may", "june", "trial"
LITTLE = Decimal("0.000001")
"""No window is formed for it."""
OTHER = ("models.fast=another-model",)
KEPT_FOR_A_TIME = ("outcomes", "answers")
"""As in live memory (docs/how-to/forget.md)."""


@dataclass(slots=True)
class Left:
    """One installation with `eden run` beside it, and namespaces in which somebody stopped."""

    found: System
    log: Path
    told: dict[str, list[str]]
    run: asyncio.subprocess.Process

    async def killed(self) -> None:
        """`eden run`, killed and started again."""
        await kill(self.run)
        self.run = await start(self.found.settings, self.log, "run")

    async def where(self, marker: str) -> list[str]:
        """The collections of any namespace in which a text still stands."""
        names = await self.found.database.list_collection_names(filter={"name": {"$regex": "^memory_"}})
        looked = [one for one in names if not one.endswith(KEPT_FOR_A_TIME)]
        return [one for one in sorted(looked) if await self._holds(one, marker)]

    async def gone(self, marker: str) -> None:
        async def so() -> bool:
            return await self.where(marker) == []

        with suppress(AssertionError):
            await until(so, "")
        assert await self.where(marker) == []

    async def _holds(self, name: str, marker: str) -> bool:
        return any([marker in str(row) async for row in self.found.database[name].find()])


@pytest.fixture(scope="module")
async def left(shared_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Left]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handlers, "Prices", Priced)
        async with (
            serving(obey) as models,
            system(fast(shared_settings, models), models, run=False) as found,
        ):
            log = tmp_path_factory.mktemp("run") / "log"
            one = Left(found, log, {}, await start(found.settings, log, "run"))
            try:
                await _lived(one)
                yield one
            finally:
                await kill(one.run)


async def _lived(left: Left) -> None:
    """Windows of two users, each with a blob; then what is stopped; then one window more."""
    found = left.found
    for number in range(3):
        for user in ("ana", "bob"):
            session = await found.session(user)
            texts = [f"note user: {user} wants answer {number}{one} mark{user} short." for one in range(3)]
            texts += [
                f"fact user: {user} grows mark{user} and tree {number}.",
                f"note user: mark{number} {user}.",
            ]
            left.told[f"{user}{number}"] = await found.told(session, user, *texts)
    await quiet(found)
    for name in (UNCOMMITTED, STOPPED):
        await _stopped_rebuild(found, name, facts=6, blobs=2)
    await _uncommitted(found, UNCOMMITTED)
    _, said = await reform(found.settings, TRIAL, overrides=OTHER, cap=LITTLE, at_once=1)
    ended, said = await reform(found.settings, TRIAL, cap=expected(said) * Decimal("0.35"))
    assert ended == "capped", said
    session = await found.session("ana")
    left.told["later"] = await found.told(session, "ana", "fact user: ana came marklater by train.")


async def _stopped_rebuild(found: System, name: str, *, facts: int, blobs: int) -> None:
    """`eden rebuild`, and Ctrl-C when so much is in."""
    async with (
        installation(found.settings) as at,
        filling(at, name, ignored) as work,
        running(work.worker),
    ):
        for kind, least in (("facts", facts), ("blobs", blobs)):
            rows = found.database[f"memory_ns_{name}_{kind}"]
            await until(lambda rows=rows, least=least: _least(rows, least), f"{kind} of {name}")


async def _least(collection: Any, count: int) -> bool:
    return await collection.count_documents({}) >= count


async def _uncommitted(found: System, name: str) -> None:
    """As if killed after it had written, and before it committed."""
    async with installation(found.settings) as at:
        namespace = await at.named(name)
        topics = at.topics(await placement_named(at, name)).read_by(WRITER)
        async with GroupProgress(at.kafka, {namespace.group: topics}) as progress:
            begun = dict(progress.begin)
        await until(lambda: _anew(at, namespace.group, begun), "the group is left", 20)


async def _anew(at: Installation, group: str, begun: dict[TopicPartition, int]) -> bool:
    async with at.groups as groups:
        return await groups.commit(group, begun, anew=True) > 0


async def test_what_is_forgotten_leaves_them_all_though_eden_run_is_killed_meanwhile(left: Left) -> None:
    found = left.found
    for name in (UNCOMMITTED, STOPPED, TRIAL):
        holding = {one for one in await left.where("markbob") if f"_{name}_" in one}
        kinds = ("facts", "reflections", "consolidated", "blobs", "snapshots")
        assert {f"memory_ns_{name}_{kind}" for kind in kinds} <= holding
    assert await neglected(found.database, "memory_") == []

    await found.forget("message", left.told["ana0"][-1])
    await left.gone("mark0 ana")
    await found.forget("user", "bob")
    await until(lambda: _marked(found, "s.bob"), "live has a mark")
    await left.killed()
    await left.gone("markbob")
    await found.forget("message", left.told["later"][0])
    await left.gone("marklater")
    assert await left.where("markana"), "nothing else was forgotten"
    states = {one["_id"]: one["state"] async for one in found.memory("namespaces").find()}
    assert states == dict.fromkeys((UNCOMMITTED, STOPPED, TRIAL), "filling"), "nobody went on with them"


async def _marked(found: System, user: str) -> bool:
    return await found.memory("forgotten").count_documents({"kind": "user", "target": user}) > 0


@pytest.mark.parametrize("name", [UNCOMMITTED, STOPPED])
async def test_the_rebuild_goes_on_to_what_live_is_and_what_swept_it_goes(left: Left, name: str) -> None:
    async with installation(left.found.settings) as at:
        async with filling(at, name, ignored) as work:

            async def equal() -> None:
                verdict = await verify(at, work)
                assert verdict.equal, "\n".join(map(str, verdict.differences))

            await work.run(equal, follow=False)
            group = f"{work.namespace.group}.forgetting"
        await until(lambda: _no_offsets(at, group), f"{group} is gone")
    assert await left.where("markbob") == []
    assert await left.where("marklater") == []


async def _no_offsets(at: Installation, group: str) -> bool:
    async with at.groups as groups:
        return await groups.committed(group) == {}


async def test_the_reform_goes_on_and_remembers_what_an_undisturbed_one_does(left: Left) -> None:
    found = left.found
    reforms = MongoReforms(found.database, "memory_")
    paused = await reforms.get(TRIAL)
    assert paused is not None
    assert (paused.state, 2 <= paused.formed < 6) == ("paused", True)
    ended, said = await reform(found.settings, TRIAL, cap=Decimal(1))
    assert ended == "formed", said
    ended, said = await reform(found.settings, "even", overrides=OTHER, at_once=1)
    assert ended == "formed", said
    assert await left.where("markbob") == []
    disturbed, even = [await memory(found.database, placed(found.settings, one)) for one in (TRIAL, "even")]
    for kind in ("facts", "reflections"):
        assert _texts(disturbed, kind) == _texts(even, kind)
    assert {row["user_id"] for row in disturbed["facts"].values()} == {"s.ana"}


def _texts(rows: dict[str, dict[str, Any]], kind: str) -> list[str]:
    return sorted(row["content"] for row in rows[kind].values() if row.get("active", True))


async def test_what_forgets_in_them_is_not_in_the_way_of_dropping_them(left: Left) -> None:
    found = left.found
    await _stopped_rebuild(found, "july", facts=1, blobs=1)
    ended, said = await reform(found.settings, "august", overrides=("models.fast=third",), cap=LITTLE)
    assert ended == "capped", said
    async with installation(found.settings) as at:
        groups = {name: (await at.named(name)).group for name in ("july", "august")}
        groups["july"] += ".forgetting"
        for name, group in groups.items():
            await until(lambda group=group: _in_use(at, group), f"somebody forgets in {name}")
            await drop(at, name)
            assert await _no_offsets(at, group)
    names = await found.database.list_collection_names()
    assert not [one for one in names if "ns_july_" in one or "ns_august_" in one]
    assert "cannot go on" not in left.log.read_text()


async def _in_use(at: Installation, group: str) -> bool:
    async with at.groups as groups:
        return (await groups.members([group]))[group] > 0
