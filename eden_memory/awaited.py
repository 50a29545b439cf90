"""A server that a process waits for: said in the log, never line after line."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from eden_memory.logs import LibraryLogger

log = LibraryLogger()
SOON_SECONDS = 1.0
"""Seconds without an answer after which a server is reported for the first time."""
SAID_SECONDS = 60.0
"""Seconds between two reports of a refusal or of a server that is waited for, however many steps meet it."""


class Awaited:
    """Says in one sentence that a server does not answer: soon, when the reason changes, and once a minute."""

    def __init__(self, server: str, hint: str) -> None:
        self._server, self._hint = server, hint
        self._reason, self._said = "", False
        self._due = time.monotonic() + SOON_SECONDS

    @asynccontextmanager
    async def said(self) -> AsyncGenerator[None]:
        """Say it while the block waits, and when the server answers after all."""
        teller = asyncio.create_task(self._tell())
        try:
            yield
        finally:
            teller.cancel()
        if self._said:
            log.info(f"{self._server} answers")

    def away(self, reason: str) -> None:
        """An attempt has failed; the reason is known now."""
        if reason != self._reason:
            self._reason = reason
            self._say()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(max(0.0, self._due - time.monotonic()))
            if time.monotonic() >= self._due:
                self._say()

    def _say(self) -> None:
        self._said, self._due = True, time.monotonic() + SAID_SECONDS
        because = f" ({self._reason})" if self._reason else ""
        log.warning(f"{self._server} does not answer{because}: {self._hint[:1].lower()}{self._hint[1:]}")
