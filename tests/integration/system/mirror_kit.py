"""A mirror of one user's memory, as a person has it open: what its file shows, and edits of it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

from eden_memory.errors import EdenError
from eden_memory.files.mirror_folder import MirrorFolder
from eden_memory.files.mirror_page import parsed
from eden_memory.files.mirroring import MirroredMemory, Mirroring
from eden_memory.mongo.ids import encode_id
from tests.integration.system.running_system import AGENT, System, until

SECONDS = 60.0


class Mirror:
    """A mirror of one user's memory, as a person has it open."""

    def __init__(self, running: System, path: Path, user: str) -> None:
        self.running, self.path, self.user = running, path, user
        self.file = path / f"user.{encode_id(user)}.md"
        self.conflicts = path / f"user.{encode_id(user)}.conflicts.md"

    def text(self) -> str:
        return self.file.read_text() if self.file.exists() else ""

    def texts(self, kind: str = "fact") -> list[str]:
        page = parsed(self.text())
        return [line.text for line in page.lines if line.kind == kind] if page is not None else []

    async def shows(self, *texts: str, without: str = "\x00") -> None:
        async def so() -> bool:
            return all(one in self.text() for one in texts) and without not in self.text()

        await until(so, f"{texts} and not {without} in {self.text()}", SECONDS)

    async def shows_facts(self, *texts: str) -> None:
        async def so() -> bool:
            page = parsed(self.text())
            facts = [line for line in page.lines if line.kind == "fact"] if page is not None else []
            return {line.text for line in facts} == set(texts) and all(line.id for line in facts)

        await until(so, f"exactly {texts}, in {self.text()}", SECONDS)

    def edit(self, old: str, new: str) -> None:
        text = self.text()
        assert old in text
        self.save(text.replace(old, new))

    def save(self, text: str) -> None:
        """As an editor does: another file, put in this one's place."""
        saved = self.path.parent / f"saved-{uuid4().hex}"
        saved.write_text(text)
        saved.rename(self.file)

    def add(self, text: str) -> None:
        with self.file.open("a") as file:
            file.write(f"- {text}\n")

    async def has(self, *facts: str) -> None:
        async def so() -> bool:
            return await self.running.facts(self.user) == sorted(facts)

        await until(so, f"{facts} in memory", SECONDS)

    @asynccontextmanager
    async def open(
        self, *, new: bool = True, accept: bool = False, restore: bool = False
    ) -> AsyncGenerator[asyncio.Task[None]]:
        folder = MirrorFolder(self.path, self.user)
        if new:
            folder.create()
        folder.open()
        memory = MirroredMemory(self.running.service.memory, AGENT, None, self.user)
        task = asyncio.create_task(Mirroring(memory, folder, accept=accept, restore=restore).run())
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, EdenError):
                await task
            folder.close()
