"""`eden doctor --canary`: plant a unique word in the running system, forget it, and look for it everywhere."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from uuid import uuid4

from eden_memory.api.service import MemoryService
from eden_memory.doctor.canary_scan_store import in_collections, in_files, in_topics
from eden_memory.doctor.finding import Finding
from eden_memory.replay.installation import Installation, installation
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

    def __init__(self, at: Installation, service: MemoryService) -> None:
        self._at, self._service = at, service
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
            self._in_logs(),
        ]

    async def _planted(self) -> Finding:
        messages = [{"role": "user", "content": text.format(word=self.word)} for text in TEXTS]
        await self._service.add(messages, user=self.user)
        if await _within(PATIENCE, self._is_remembered):
            return Finding("canary: planted", "ok", "a unique word was formed, shown and found")
        return Finding("canary: planted", "fail", f"nothing was formed in {PATIENCE:.0f} s", RUNNING)

    async def _is_remembered(self) -> bool:
        context = await self._service.get_memory_context(None, self.user)
        return self.word in context and bool(await self._found())

    async def _found(self) -> list[str]:
        facts = await self._service.search_facts([self.word], user=self.user)
        return [fact.content for fact in facts if self.word in fact.content]

    async def _in_mongodb(self) -> Finding:
        async def gone() -> bool:
            return not await self._collections()

        if await _within(PATIENCE, gone):
            return Finding("canary: MongoDB", "ok", "no document of any namespace contains it any more")
        left = ", ".join(f"{name} ({count})" for name, count in (await self._collections()).items())
        return Finding("canary: MongoDB", "fail", f"forgotten, and still in {left}", RUNNING)

    async def _collections(self) -> dict[str, int]:
        prefix, word = self._at.settings.mongodb.prefix, self.word.encode()
        found = dict(await in_collections(self._at.database, prefix, word))
        return found | dict(await in_collections(self._at.source, prefix, word))

    async def _at_doors(self) -> Finding:
        shown = self.word in await self._service.get_memory_context(None, self.user)
        if shown or await self._found():
            return Finding("canary: doors", "fail", "the context or a search still shows it")
        return Finding("canary: doors", "ok", "neither the context nor a search shows it")

    async def _in_kafka(self) -> Finding:
        prefix = self._at.settings.kafka.topic_prefix
        names = [topic.name for topic in self._at.topics(self._at.settings.placement)]
        found = await in_topics(self._at.kafka, names, self.word.encode())
        if found.standing:
            left = ", ".join(f"{name.removeprefix(prefix)} ({n})" for name, n in found.standing.items())
            return Finding("canary: Kafka", "fail", f"records that compaction leaves: {left}")
        ended = sum(found.ended.values())
        hint = "Within 36 hours, with the settings of topics.yaml." if ended else ""
        return Finding("canary: Kafka", "ok", f"{ended} tombstoned records wait for compaction", hint)

    def _in_logs(self) -> Finding:
        found = in_files(self._at.settings.local.folder, self.word.encode())
        if found:
            return Finding("canary: logs", "fail", f"written to {', '.join(found)}")
        return Finding("canary: logs", "ok", "no log file of the local servers contains it")


async def canary(settings: Settings, agent: str) -> list[Finding]:
    """Plant and forget a word in the memory of an agent's user."""
    async with installation(settings) as at, MemoryService(agent, settings=at.settings) as service:
        return await Canary(at, service).run()


async def _within(seconds: float, holds: Callable[[], Awaitable[bool]]) -> bool:
    until = monotonic() + seconds
    while not await holds():
        if monotonic() > until:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True
