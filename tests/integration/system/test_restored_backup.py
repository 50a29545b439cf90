"""A backup of MongoDB is restored: nothing that was forgotten since comes back, nor does a revoked key open."""

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from eden_memory.api.service import MemoryService
from eden_memory.errors import MemoryRestored
from eden_memory.kafka.topics import load_topics
from eden_memory.local.mongo import LocalMongo
from eden_memory.mongo.ids import encode_id
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.settings import MongoSettings, Settings
from tests.awaiting import gives
from tests.integration.system.commands import eden, kill, start
from tests.integration.system.every_door import Asker, Said, every_door
from tests.integration.system.running_system import System, fast, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
ANN = Asker("first", "ann")
GONE = ("bicycle", "cilantro", "Kestrel", "chess", "Osprey")
KEPT = ("bees",)
LOST = "82" + "f" * 30
QUESTIONS = ("Which bicycle has Ann?", "Does Ann like cilantro?", "Who keeps bees or sails the Kestrel?")


@dataclass
class Backup:
    """A mongod of its own, whose files are copied while it stands still, and put back."""

    server: LocalMongo
    copied: Path

    async def take(self) -> None:
        await self._swap(self.server.folder / "data", self.copied)

    async def restore(self) -> None:
        await self._swap(self.copied, self.server.folder / "data")

    async def _swap(self, source: Path, target: Path) -> None:
        await asyncio.to_thread(self.server.stop)
        shutil.rmtree(target, ignore_errors=True)
        await asyncio.to_thread(shutil.copytree, source, target)
        await asyncio.to_thread(self.server.start)


@pytest.fixture
def backup(tmp_path: Path) -> Generator[Backup]:
    server = LocalMongo(tmp_path / "mongodb", cache_gb=0.25)
    server.start()
    try:
        yield Backup(server, tmp_path / "copy")
    finally:
        server.kill()


@pytest.fixture
def own(settings: Settings, backup: Backup, shared_models: Serving) -> Settings:
    mongodb = MongoSettings(uri=SecretStr(backup.server.endpoint), database=settings.mongodb.database)  # pyright: ignore[reportCallIssue]
    return fast(settings.model_copy(update={"mongodb": mongodb}), shared_models)


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False], ids=["as the page says", "nobody says it"])
async def test_what_was_forgotten_since_the_backup_is_nowhere(
    own: Settings, backup: Backup, shared_models: Serving, tmp_path: Path, named: bool
) -> None:
    async with living(own, shared_models) as lived:
        await lived.session("ann", id="first")
        told = ("fact user: Ann has a red bicycle.", "note user: Ann hates cilantro.")
        bicycle, cilantro = await lived.told("first", "ann", *told)
        (deleted,) = await lived.told("first", "ann", "fact user: Ann plays chess.")
        await lived.told("first", "ann", "fact user: Ann keeps nine bees in Tarn.")
        (erasing,) = await lived.told("first", "ann", "fact user: Ann owns the Osprey.")
        secret = json.loads(await eden(own, "keys", "create", "adas", "--json"))["secret"]
        await read_whole(lived)
        await eden(own, "pause", "atlas-writer")  # the backup is taken in the middle of an erasure
        await lived.forget("message", erasing)
        await until(lambda: is_marked(lived, erasing), "it is marked")
        await read_whole(lived, "forgetting")
    await backup.take()
    async with living(own, shared_models) as lived:
        await eden(own, "resume", "atlas-writer")
        (sloop,) = await lived.told("first", "ann", "fact user: Ann sails the Kestrel.")
        await lived.told("first", "ann", "fact user: Ann moved to Albi.")
        for message in (bicycle, cilantro, sloop):
            await eden(own, "forget", "message", message, "--yes")
        await lived.source["messages"].delete_one({"_id": deleted})
        await eden(own, "keys", "revoke", "adas")
        await lived.shows("first", "ann", "bees", without=GONE)
        await until(lambda: is_revoked(lived), "the key's record")
        await read_whole(lived)
    await backup.restore()
    async with system(own, shared_models, run=False) as restored, every_door(restored) as doors:
        held = str(await restored.facts("ann"))
        assert "bicycle" in held, "the backup holds it"
        assert "Osprey" in held, "the backup holds it"
        if named:
            await eden(own, "restored")
        else:  # as on a server with another oplog
            await restored.memory("positions").update_many({}, {"$set": {"token": LOST}})
        await eden(own, "pause", "forgetting")
        process = await start(own, tmp_path / "run.log", "run")
        try:
            await until(lambda: is_shut(restored), "it was seen that MongoDB is older")
            await until(lambda: says_nothing(restored), "the service has heard of it")
            shut = await doors.open_to_requests(ANN, QUESTIONS)
            assert shown(shut, *GONE, *KEPT) == {}
            assert all("restored from a backup" in shut[name] for name in shut if name != "gateway")
            for command in (["facts", "--user", "ann"], ["export", str(tmp_path / "memory.jsonl")]):
                with pytest.raises(AssertionError, match="restored from a backup"):
                    await eden(own, *command)
            assert await restored.memory("contexts").count_documents({}) == 0
            await kill(process)
            process = await start(own, tmp_path / "run.log", "run")
            async with MemoryService("late", settings=own) as late:
                await eden(own, "resume", "forgetting")
                await eden(own, "resume", "atlas-writer")
                await until(lambda: is_open(restored), "what was forgotten is forgotten again")
                await until(
                    lambda: late.memory.contexts.cache.live, "a server that started meanwhile is ready"
                )
            if not named:
                await until(lambda: is_merged(restored), "all messages are read again")
            await restored.told("first", "ann", "fact user: Ann bought a kayak.")
            said = await doors.quick(ANN, QUESTIONS) | await doors.slow(ANN, QUESTIONS)
            assert shown(said, *GONE) == {}
            assert "Albi" in str(await restored.facts("ann")), "what was formed since comes back"
            assert all("bees" in said[name] for name in ("python facts", "http facts?active=all&"))
            refused = await doors.http.get(
                "/v1/agents/helper/facts?session=first&user=ann", headers={"X-Eden-Key": secret}
            )
            assert refused.status_code == 401
        finally:
            await kill(process)


@pytest.mark.slow
async def test_dead_letters_that_were_forgotten_since_the_backup_are_forgotten_again(
    own: Settings, backup: Backup, shared_models: Serving, tmp_path: Path
) -> None:
    async with living(own, shared_models) as lived:
        await lived.told(await lived.session("xan", id="first"), "xan", "fact user: Xan lives in Bergen.")
        for session in ("first", "second"):
            odd = {"session_id": session, "role": "user", "user_id": "xan", "content": len(session)}
            await lived.source["messages"].insert_one(odd)
        await until(lambda: listed(own, {"first", "second"}), "both letters")
        await read_whole(lived)
    await backup.take()
    async with living(own, shared_models) as lived:
        await lived.forget("session", "first")
        await until(lambda: listed(own, {"second"}), "one of them is forgotten")
        await read_whole(lived)
    await backup.restore()
    async with system(own, shared_models, run=False) as restored:
        process = await start(own, tmp_path / "run.log", "run")
        try:
            await until(
                lambda: gives(restored.memory("live").count_documents({"restored_at": None}), 1), "open"
            )
            assert await listed(own, {"second"})
            await restored.forget("session", "second")
            await until(lambda: listed(own, set()), "the other letter is found by what it names")
        finally:
            await kill(process)


async def test_a_restored_mongodb_that_is_named_is_read_again_though_it_looks_new(
    own: Settings, shared_models: Serving, tmp_path: Path
) -> None:
    async with living(own, shared_models) as lived:
        await lived.session("ann", id="first")
        (bicycle,) = await lived.told("first", "ann", "fact user: Ann has a red bicycle.")
        await lived.told("first", "ann", "fact user: Ann keeps nine bees in Tarn.")
        await lived.forget("message", bicycle)
        await lived.shows("first", "ann", "bees", without=["bicycle"])
        await read_whole(lived)
        marks = await lived.memory("forgotten").find(sort=[("_id", 1)]).to_list()
        facts = await lived.memory("facts").find(sort=[("_id", 1)]).to_list()
    paid = dict(shared_models.tally.calls)
    async with system(own, shared_models, run=False) as restored:
        await restored.memory("forgotten").delete_many({})
        await eden(own, "restored")
        with pytest.raises(MemoryRestored):
            await restored.context("first", "ann")
        assert "a backup" in await eden(own, "status")
        process = await start(own, tmp_path / "run.log", "run")
        try:
            await until(lambda: is_open(restored), "everything is read again")
            await restored.shows("first", "ann", "bees", without=["bicycle"])
            assert await restored.memory("forgotten").find(sort=[("_id", 1)]).to_list() == marks
            assert await restored.memory("facts").find(sort=[("_id", 1)]).to_list() == facts
        finally:
            await kill(process)
    assert dict(shared_models.tally.calls) == paid, "nothing is paid again"


def shown(said: Said, *words: str) -> Said:
    return {name: text for name, text in said.items() if any(word in text for word in words)}


@asynccontextmanager
async def living(settings: Settings, models: Serving) -> AsyncGenerator[System]:
    """Everything runs for the block."""
    async with system(settings, models) as running:
        yield running


async def read_whole(running: System, *stages: str) -> None:
    """Until these stages have committed all there is; none: forgetting and the writer."""
    topics = load_topics(running.settings.kafka)
    names = stages or ("forgetting", "atlas-writer")
    groups = {topics.group(stage): topics.read_by(stage) for stage in names}
    async with GroupProgress(running.client, groups) as progress:
        await progress.until_quiet()


async def is_marked(running: System, message: str) -> bool:
    return await running.memory("forgotten").count_documents({"target": encode_id(message)}) == 1


async def is_revoked(running: System) -> bool:
    found = [came.key for came in await running.records("memory.forgotten")]
    return any(key.startswith("key:") for key in found)


async def is_shut(running: System) -> bool:
    live = await running.memory("live").find_one()
    return live is not None and live["restored_at"] is not None


async def is_open(running: System) -> bool:
    return not await is_shut(running)


async def is_merged(running: System) -> bool:
    wanted = {"token": {"$ne": LOST}, "phase": "stream"}
    return await running.memory("positions").count_documents(wanted) == 1


async def says_nothing(running: System) -> bool:
    try:
        await running.context("first", "ann")
    except MemoryRestored:
        return True
    return False


async def listed(settings: Settings, sessions: set[str]) -> bool:
    """Whether the letters are those of these sessions' documents."""
    lines = (await eden(settings, "dead", "list", "--json")).splitlines()
    letters = [json.loads(line) for line in lines if line.startswith("{")]
    found = list[str]()
    for letter in letters:
        try:
            found.append(await eden(settings, "dead", "show", letter["id"]))
        except AssertionError as error:
            assert "there is no dead letter" in str(error), "it may only have ended in this moment"  # noqa: PT017
    return sorted(name for text in found for name in ("first", "second") if name in text) == sorted(sessions)
