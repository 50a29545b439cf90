"""Histories into the topics, live memory from them, and rebuilds: in this process, or as the command."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random

from aiokafka import TopicPartition

from eden_memory.forgetting.forgetting_store import MongoForgettingStore
from eden_memory.forgotten import Mark
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.replay.installation import Installation, installation
from eden_memory.replay.rebuild.namespace_rebuild import NamespaceFill, RebuildVerdict, filling, verify
from eden_memory.schemas.documents import Namespace
from eden_memory.schemas.events import Event, FactChanged, SessionClosed
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.patience import until_done
from eden_memory.stages.stage import Delivery
from tests.integration.memory.stage_kit import StageKit
from tests.integration.stages.harness import until
from tests.names import NAMES
from tests.unit.memory.memory_histories import delivered, forgotten_of, history, minute, tombstone

NAME, WRITER = "anew", "atlas-writer"


def ignored(_: object) -> None:
    """In the place of a progress bar."""


class ReplayKit(StageKit):
    """One installation."""

    async def lived(self, scopes: int, seed: int = 1) -> None:
        """Histories of scopes side by side, each record twice, with what is forgotten; live memory of them."""
        rows, gone = told(scopes, seed)
        await self.put([*rows, *rows])
        await self.live()
        named = next(one.event for one in rows if isinstance(one.event, FactChanged))
        marks = MongoForgettingStore(self.database, NAMES)
        await marks.mark([Mark("fact", named.fact_id, "for_ever")], "event", minute(0))
        await self.put([*gone, *(tombstone(one) for one in _versions(rows, named.fact_id))])
        await self.live()

    async def live(self) -> None:
        """The live writer takes in everything that is there."""
        topics = self.topics.read_by(WRITER)
        group = self.topics.group(WRITER)
        async with (
            GroupProgress(self.client, {group: topics}) as places,
            self.running(self.worker()),
        ):
            ends = await places.ends()
            await until(lambda: until_done(partial(_all_read, places, ends)), "everything read")

    async def ends(self) -> Mapping[TopicPartition, int]:
        """Of every topic there is."""
        names = [one.name for one in self.topics]
        async with GroupProgress(self.client, {"nobody": names}) as places:
            return dict(await places.ends())

    async def rebuilt(
        self, meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> tuple[RebuildVerdict, Namespace]:
        """What `eden rebuild NAME --verify` does; `meanwhile` runs while both are compared."""
        found: list[RebuildVerdict] = []
        async with installation(self.settings) as at, filling(at, NAME, ignored) as work:
            await work.run(lambda: _verdict(found, at, work, meanwhile), follow=False)
            return found[0], work.namespace

    def eden(self, *words: str, program: str = "eden_memory.cli.main") -> subprocess.Popen[bytes]:
        """The command in a process of its own; `program`: a module that stands for it."""
        mongodb, kafka = self.settings.mongodb, self.settings.kafka
        assert mongodb.uri is not None
        given = {
            "EDEN_MONGODB_URI": mongodb.uri.get_secret_value(),
            "EDEN_MONGODB_DATABASE": mongodb.database,
            "EDEN_KAFKA_BOOTSTRAP": str(kafka.bootstrap),
            "EDEN_KAFKA_TOPIC_PREFIX": kafka.topic_prefix,
            "EDEN_KAFKA_GROUP_PREFIX": kafka.group_prefix,
            "EDEN_KAFKA_PARTITIONS": str(kafka.partitions),
            "COLUMNS": "200",
        }
        command = [sys.executable, "-m", program, *words]
        return subprocess.Popen(
            command, env={**os.environ, **given}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    async def told(self, *words: str) -> tuple[int, str]:
        """The command's exit code, and what it printed."""
        process = self.eden(*words)
        shown, _ = await asyncio.to_thread(process.communicate)
        return process.returncode, shown.decode()


async def _all_read(places: GroupProgress, ends: Mapping[TopicPartition, int]) -> bool:
    return not await places.behind(ends)


async def _verdict(
    found: list[RebuildVerdict],
    at: Installation,
    work: NamespaceFill,
    meanwhile: Callable[[], Awaitable[None]] | None,
) -> None:
    others = None if meanwhile is None else asyncio.ensure_future(meanwhile())
    found.append(await verify(at, work))
    if others is not None:
        await others


def told(scopes: int, seed: int) -> tuple[list[Delivery], list[Delivery]]:
    """Records of all scopes in turn, and the tombstones of some; no scope has records of two seeds."""
    chance = Random(seed)
    users = [Scope.of_user("s.assistant", f"i.{1_000 * seed + one}") for one in range(scopes - 5)]
    sessions = [Scope.of_session("s.assistant", f"s.{seed}-{one}", ("i.1",)) for one in range(5)]
    lived = [history(chance, scope, 3) for scope in (*users, *sessions)]
    lived = [list(map(_of_its_own, one)) for one in lived]
    longest = max(map(len, lived))
    rows = [delivered(one) for step in range(longest) for of in lived for one in of[step : step + 1]]
    return rows, [tombstone(one) for of in lived[::3] for one in forgotten_of(chance, of)]


def _of_its_own(event: Event) -> Event:
    """A session's last word names a formation that no other session's names: it is the record's key."""
    if isinstance(event, SessionClosed):
        return event.model_copy(update={"formation_id": f"{event.formation_id}-{event.scope.session_id}"})
    return event


def _versions(rows: list[Delivery], fact_id: str) -> list[FactChanged]:
    found = [one.event for one in rows]
    return [one for one in found if isinstance(one, FactChanged) and one.fact_id == fact_id]
