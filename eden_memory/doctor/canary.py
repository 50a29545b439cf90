"""`eden doctor --canary`: plant a unique word in the running system, forget it, and look for it everywhere."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from uuid import uuid4

import httpx2

from eden_memory.api.service import MemoryService
from eden_memory.doctor.canary_scan_store import InTopics, in_collections, in_files, in_topics
from eden_memory.doctor.finding import Finding
from eden_memory.doctor.segment_scan_topics import in_segment_files, segment_folders
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.mongo.application_ids import id_of
from eden_memory.mongo.bson_ids import encode_id
from eden_memory.receipts.compact_forgotten import compact_forgotten
from eden_memory.replay.installation import Installation, installation
from eden_memory.schemas.documents import DeadLetter, InboxAddedText
from eden_memory.settings import Settings

PATIENCE = 120.0
LOOK_SECONDS = 0.5
TEXTS = (
    "My boat is called {word}.",
    "I always prefer to be told about {word} first.",
    "I moved to the harbour of {word} in March 2024.",
    "Please remember that {word} is my favourite place.",
)
RUNNING = "`eden run` must be running (`eden status`)."


class Canary:
    """One word, and the user of its own who says it."""

    def __init__(self, at: Installation, service: MemoryService, *, compact: bool = False) -> None:
        self._at, self._service, self._compact = at, service, compact
        self.word = f"canary{uuid4().hex}"
        self.user = f"eden-canary-{uuid4().hex[:12]}"

    async def run(self) -> list[Finding]:
        """Return what became of the word; it is forgotten in any case."""
        try:
            planted = await self._planted()
        finally:
            await self._service.forget("user", self.user)
        if planted.state == "fail":
            return [planted]
        return [
            planted,
            await self._in_mongodb(),
            await self._at_doors(),
            await self._in_kafka(),
            *([await self._in_segments()] if self._compact else []),
            self._in_logs(),
            *([await self._in_metrics(port)] if (port := self._at.settings.http.port) else []),
        ]

    async def _planted(self) -> Finding:
        messages = [{"role": "user", "content": text.format(word=self.word)} for text in TEXTS]
        await self._service.add(messages, user=self.user)
        await self._dead_letter()
        if not await _within(PATIENCE, self._is_remembered):
            return Finding("canary: planted", "fail", f"nothing was formed in {PATIENCE:.0f} s", RUNNING)
        if not await _within(PATIENCE, self._is_dead_letter):
            return Finding("canary: planted", "fail", f"no dead letter came in {PATIENCE:.0f} s", RUNNING)
        return Finding("canary: planted", "ok", "a unique word was formed, shown, found and dead-lettered")

    async def _dead_letter(self) -> None:
        """Ask for something that cannot be carried out: a text that is none."""
        inbox = self._at.source[self._at.settings.mongodb.prefix + InboxAddedText.COLLECTION]
        await inbox.insert_one({"kind": "added_text", "user_id": self.user, "text": {"odd": self.word}})

    async def _is_dead_letter(self) -> bool:
        letters = self._at.database[self._at.settings.names[DeadLetter.COLLECTION]]
        return await letters.find_one({"named": f"user:{encode_id(self.user)}"}, {"_id": 1}) is not None

    async def _is_remembered(self) -> bool:
        context = await self._service.get_memory_context(None, self.user)
        return self.word in context and bool(await self._found())

    async def _found(self) -> list[str]:
        facts = await self._service.search_facts([self.word], user=self.user)
        return [fact.content for fact in facts if self.word in fact.content]

    async def _in_mongodb(self) -> Finding:
        async def gone() -> bool:
            return not await self._collections() and not await self._is_dead_letter()

        if await _within(PATIENCE, gone):
            return Finding("canary: MongoDB", "ok", "no document of any namespace contains it any more")
        left = [f"{name} ({count})" for name, count in (await self._collections()).items()]
        left += ["dead_letters"] if await self._is_dead_letter() else []
        return Finding("canary: MongoDB", "fail", f"forgotten, and still in {', '.join(left)}", RUNNING)

    async def _collections(self) -> dict[str, int]:
        prefix, word = self._at.settings.mongodb.prefix, self.word.encode()
        found = dict(await in_collections(self._at.database, prefix, word))
        return found | dict(await in_collections(self._at.source, prefix, word))

    async def _at_doors(self) -> Finding:
        shown = self.word in await self._service.get_memory_context(None, self.user)
        if shown or await self._found():
            return Finding("canary: doors", "fail", "the context or a search still shows it")
        return Finding("canary: doors", "ok", "neither the context nor a search shows it")

    async def _records(self) -> InTopics:
        """Look in the topics of all namespaces; without a prefix, in those of the live one."""
        prefix = self._at.settings.kafka.topic_prefix
        names = [topic.name for topic in self._at.topics(self._at.settings.placement)]
        if prefix:
            admin = await asyncio.to_thread(TopicAdmin, self._at.admin)
            names = await asyncio.to_thread(admin.names, prefix)
        return await in_topics(self._at.kafka, names, self.word.encode())

    async def _in_segments(self) -> Finding:
        await compact_forgotten(self._at, lambda _: None)
        folders = await segment_folders(self._at.admin)
        prefix, word = self._at.settings.kafka.topic_prefix, self.word.encode()
        found = await asyncio.to_thread(in_segment_files, folders, prefix, word)
        found = found or (await self._records()).ended
        if found:
            left = ", ".join(f"{name} ({count})" for name, count in found.items())
            return Finding("canary: segments", "fail", f"compacted, and still in {left}")
        looked = "no segment file contains it" if folders else "no record is left (the files are elsewhere)"
        return Finding("canary: segments", "ok", f"compacted: {looked}")

    async def _in_metrics(self, port: int) -> Finding:
        address = f"http://{self._at.settings.http.host}:{port}/metrics"
        try:
            async with httpx2.AsyncClient() as client:
                shown = (await client.get(address)).text
        except httpx2.HTTPError:
            return Finding("canary: metrics", "warn", f"{address} does not answer", RUNNING)
        if self.word in shown or self.user in shown:
            return Finding("canary: metrics", "fail", f"{address} shows it")
        return Finding("canary: metrics", "ok", "no metric contains it")

    async def _in_kafka(self) -> Finding:
        prefix = self._at.settings.kafka.topic_prefix
        if not await _within(PATIENCE, self._is_ended):
            found = await self._records()
            left = ", ".join(f"{name.removeprefix(prefix)} ({n})" for name, n in found.standing.items())
            return Finding("canary: Kafka", "fail", f"records that compaction leaves: {left}")
        ended = sum((await self._records()).ended.values())
        hint = "Within 36 hours, with the settings of topics.yaml." if ended else ""
        return Finding("canary: Kafka", "ok", f"{ended} tombstoned records wait for compaction", hint)

    async def _is_ended(self) -> bool:
        return not (await self._records()).standing

    def _in_logs(self) -> Finding:
        found = in_files(self._at.settings.local.folder, self.word.encode())
        if found:
            return Finding("canary: logs", "fail", f"written to {', '.join(found)}")
        return Finding("canary: logs", "ok", "no log file of the local servers contains it")


async def canary(settings: Settings, agent: str, *, compact: bool = False) -> list[Finding]:
    """Plant and forget a word in the memory of an agent's user; `agent`: typed, or its text.

    `compact`: look in Kafka's files after compaction.
    """
    agent_id = id_of(agent, "agent")
    async with installation(settings) as at, MemoryService(agent_id, settings=at.settings) as service:
        return await Canary(at, service, compact=compact).run()


async def _within(seconds: float, holds: Callable[[], Awaitable[bool]]) -> bool:
    until = monotonic() + seconds
    while not await holds():
        if monotonic() > until:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True
