"""Asks for contexts all the time while the faults strike: what the two authors of a session are shown."""

import asyncio
import random

from pymongo.errors import PyMongoError

from eden_memory.api.service import MemoryService
from eden_memory.errors import EdenError
from eden_memory.settings import Settings
from tests.chaos.formation_chat import Chat, Session
from tests.chaos.formation_verdict import leaked

NEWEST = 8
"""Sessions that gained an author last: they are looked at again and again."""
LONGEST_SECONDS = 5.0


class Onlooker:
    """Reads as an application does: through the service, and by the documented find over the ready contexts."""

    def __init__(self, chat: Chat, settings: Settings, seed: int) -> None:
        self._chat, self._settings = chat, settings
        self._chance = random.Random(f"{seed}/onlooker")
        self.leaked: list[str] = []
        self.looks = self.failed = self.own_seen = self.ready_seen = 0

    async def look(self) -> None:
        """Until cancelled."""
        async with MemoryService(settings=self._settings) as service:
            while True:
                await asyncio.sleep(0.15)
                try:
                    async with asyncio.timeout(LONGEST_SECONDS):
                        await self._once(service)
                except (TimeoutError, EdenError, PyMongoError):
                    self.failed += 1

    async def _once(self, service: MemoryService) -> None:
        if self._chat.alone:
            one = self._chance.choice(self._chat.alone[-NEWEST:])
            xml = await service.get_memory_context(one.id, one.user)
            self.own_seen += "<UserMemory" in xml or "- [user]" in xml
        if self._chat.joined:
            await self._of_two(service, self._chance.choice(self._chat.joined[-NEWEST:]))

    async def _of_two(self, service: MemoryService, session: Session) -> None:
        users = [session.user, session.second]
        for user in users:
            self.looks += 1
            self._judge(await service.get_memory_context(session.id, user), session)
        ready = self._chat.database["memory_contexts"]
        wanted = {"session_id": f"s.{session.id}", "users": {"$all": [f"s.{user}" for user in users]}}
        async for one in ready.find(wanted):
            self.ready_seen += 1
            self._judge(one["xml"], session)

    def _judge(self, xml: str, session: Session) -> None:
        self.leaked += leaked(xml, session.id, self._chat.messages.values())
