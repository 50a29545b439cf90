"""An import from another system: survey the source, then write its items as requests and follow them to memory.

Items are read in parts; within a part, those of one scope are written together, so that they are decided together. An
import keeps no state: when it is started again, it finds by their ids the items that memory already has.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from eden_memory.errors import EdenError
from eden_memory.files.import_items import (
    BEGINNING,
    ConversationCost,
    Entry,
    ImportedAs,
    ImportedItem,
    ImportReport,
    Reader,
    SkippedItem,
)
from eden_memory.files.import_store import AT_ONCE, MongoImports
from eden_memory.forgotten import Marks
from eden_memory.limits import limits_of, words_of
from eden_memory.models.call_accounts import Prices
from eden_memory.mongo.ids import encode_id
from eden_memory.replay.installation import Installation
from eden_memory.schemas.documents import InboxAddedText, InboxFormNow, InboxMemoryCommand, Stream
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Audience
from eden_memory.settings import Settings
from eden_memory.usage.costs import start_values
from eden_memory.windows.window_rule import weighted_tokens, window_limits

PART = 10_000
"""Items read together."""

AHEAD = 20_000
"""Most requests that wait for memory."""

LOOK_SECONDS = 0.5

CARRIED_SECONDS, STILL_SECONDS = 60.0, 600.0

"""Seconds after which the import stops: if no request leaves the inbox, and if none that left is decided."""

FREE = 0
"""The tier for which costs are estimated."""

FORGOTTEN = "it was forgotten here, or belongs to something that was"

Progress = Callable[[int, int], None]
"""Called with the number of items that are done, and of all items."""


@dataclass
class ForeignImport:
    """One import of a source at `path`."""

    at: Installation
    read: Reader
    path: str
    to: ImportedAs
    _store: MongoImports = field(init=False)

    def __post_init__(self) -> None:
        self._store = MongoImports(self.at)

    async def survey(self, on_progress: Progress) -> ImportReport:
        """Return what would be taken; writes nothing."""
        report, costs = ImportReport(), CostOfConversations(self.at.settings)
        judging, read = Judging(self.at.settings, self._store, report), 0
        async for part in _parts(self.read(self.path, self.to)):
            for item in await judging.new(part):
                report.take(item)
                costs.add(item)
            read += len(part)
            on_progress(read, 0)
        report.cost = costs.result()
        return report

    async def run(self, whole: int, on_progress: Progress) -> ImportReport:
        """Import; returns once memory has taken every item. `whole`: how many the survey counted."""
        report = ImportReport()
        judging, following = Judging(self.at.settings, self._store, report), Following(self._store)
        async for part in _parts(self.read(self.path, self.to)):
            new = await judging.new(part)
            for start in range(0, len(new), PART // 10):
                await self._write(new[start : start + PART // 10], following)
                for item in new[start : start + PART // 10]:
                    report.take(item)
                await following.until(AHEAD, lambda done: on_progress(done, max(whole, done)))
        await following.until(0, lambda done: on_progress(done, max(whole, done)))
        return report

    async def _write(self, items: Sequence[ImportedItem], following: "Following") -> None:
        for item in items:
            if isinstance(item.request, Stream):
                await self._store.put_stream(item.request)
        await self._store.write([item.request for item in items if not isinstance(item.request, Stream)])
        following.add(items)


class Judging:
    """Decides which items are new; counts the others in the report."""

    def __init__(self, settings: Settings, store: MongoImports, report: ImportReport) -> None:
        self._limits, self._store, self._report = settings.limits.formation(), store, report
        self._seen: set[int] = set()
        """Hashes of names: the names of millions of items would be large."""
        self._blobs: set[str] = set()
        self._audiences: dict[str, Audience] = {}
        self._sessions: set[str] = set()
        """Conversations that get messages, or whose messages wait in the inbox."""

    async def new(self, part: Sequence[Entry]) -> list[ImportedItem]:
        """Return the items of a part that memory does not have, those of a scope together."""
        for entry in part:
            if isinstance(entry, SkippedItem):
                self._report.skip(entry)
        items = [entry for entry in part if isinstance(entry, ImportedItem)]
        taken, waiting = await self._store.taken(items)
        self._sessions |= {
            item.request.session_id
            for item in items
            if isinstance(item.request, InboxAddedText) and item.name in waiting
        }
        marks = await self._store.marks(pair for item in items for pair in _marked(item))
        self._blobs |= await self._store.blobs(item.scope.key for item in items if item.kind == "blob")
        own = {item.scope.key for item in items if item.scope.session_id is not None}
        self._audiences = await self._store.audiences(own)
        known = taken | waiting
        found = [item for item in items if await self._is_new(item, known, marks)]
        return sorted(found, key=lambda item: item.order)

    async def _is_new(self, item: ImportedItem, known: set[str], marks: Marks) -> bool:
        if isinstance(item.request, InboxFormNow):
            session = item.request.session_id
            return session in self._sessions or await self._store.unformed(session)
        if item.name in known or hash(item.name) in self._seen:
            self._report.known += 1
            return False
        self._seen.add(hash(item.name))
        if (reason := await self._refusal(item, marks)) is not None:
            self._report.skip(SkippedItem(item.where, reason))
            return False
        if isinstance(item.request, InboxAddedText):
            self._sessions.add(item.request.session_id)
        return True

    async def _refusal(self, item: ImportedItem, marks: Marks) -> str | None:
        if marks and _forgotten(item, marks):
            return FORGOTTEN
        here = self._audiences.get(item.scope.key, item.scope.audience)
        if _users(here) != _users(item.scope.audience):
            return "others take part in its session here"
        if item.kind != "blob" or not isinstance(item.request, InboxMemoryCommand):
            return None
        if item.scope.key in self._blobs:
            return "its scope has a consolidated text already"
        self._blobs.add(item.scope.key)
        streams = await self._store.streams.of(item.scope.agent_id)
        most = limits_of(item.scope, streams, self._limits).blob_words
        words = words_of(item.request.text or "")
        if words > most and item.scope.kind != "shard":
            return f"its text has {words:,} words, and one of a {item.scope.kind} may have {most:,}"
        return None


def _users(audience: Audience) -> object:
    """Return a value that is equal for the same users, in any order if the list is short."""
    return frozenset(audience) if isinstance(audience, tuple) else audience


def _marked(item: ImportedItem) -> Iterable[tuple[str, str]]:
    """Yield (kind, typed id) of everything whose forgetting concerns an item."""
    source = _source(item)
    yield "message", source.message_id
    yield "session", source.session_id
    for user in {source.user_id, item.scope.belongs_to} - {None}:
        yield "user", user or ""
    if item.scope.session_id is not None:
        yield "session", item.scope.session_id


def _forgotten(item: ImportedItem, marks: Marks) -> bool:
    """Return whether a forgotten user or session said it; an item without a time counts as the oldest."""
    source = _source(item)
    return marks.source_gone(source) or marks.scope_gone(item.scope, source.time)


def _source(item: ImportedItem) -> SourceMessage:
    """Return the item as a source message, dated by when it was said."""
    session = getattr(item.request, "session_id", None)
    return SourceMessage(
        message_id=item.name,
        version="0" * 16,
        session_id=encode_id("" if session is None else session),
        user_id=item.scope.user_id,
        time=item.said_at or BEGINNING,
    )


class Following:
    """Follows requests until memory has taken them."""

    def __init__(self, store: MongoImports) -> None:
        self._store = store
        self._facts: list[str] = []
        self._others: list[str] = []
        self._done, self._moved = 0, time.monotonic()

    def add(self, items: Iterable[ImportedItem]) -> None:
        """Follow the requests of these items, too."""
        for item in items:
            if item.kind == "fact":
                self._facts.append(item.name)
            elif item.kind in ("reflection", "blob", "message"):
                self._others.append(item.name)

    async def until(self, left: int, on_done: Callable[[int], None]) -> None:
        """Wait until at most so many are left; EdenError if memory takes none for a long time."""
        while True:
            before = self._done
            self._facts = await self._without(self._facts, self._store.decided)
            self._others = await self._without(self._others, self._carried)
            now = time.monotonic()
            self._moved = now if self._done > before else self._moved
            on_done(self._done)
            if len(self._facts) + len(self._others) <= left:
                self._moved = now
                return
            if now - self._moved > CARRIED_SECONDS:
                await self._demand_work(now - self._moved)
            await asyncio.sleep(LOOK_SECONDS)

    async def _demand_work(self, seconds: float) -> None:
        """Raise EdenError if no request leaves the inbox, or none was decided for very long."""
        first = [*self._facts[:AT_ONCE], *self._others[:AT_ONCE]]
        if seconds > STILL_SECONDS or len(await self._store.waiting(first)) == len(first):
            raise EdenError(
                f"memory has taken nothing for {seconds:.0f} s; {self._done:,} items are taken",
                "Is `eden run` running? `eden status` shows it. Repeat the command to continue.",
            )

    async def _without(self, names: list[str], done: "Done") -> list[str]:
        """Return the names that are left; stop after a batch of which most are left."""
        left: list[str] = []
        for start in range(0, len(names), AT_ONCE):
            part = names[start : start + AT_ONCE]
            taken = await done(part)
            left += [name for name in part if name not in taken]
            self._done += len(taken)
            if 2 * len(taken) < len(part):
                return left + names[start + AT_ONCE :]
        return left

    async def _carried(self, names: Sequence[str]) -> set[str]:
        return set(names) - await self._store.waiting(names)


Done = Callable[[Sequence[str]], Awaitable[set[str]]]


class CostOfConversations:
    """Counts the windows that imported messages will close, and estimates their cost."""

    def __init__(self, settings: Settings) -> None:
        self._limits, self._value = window_limits(settings), start_values(settings, Prices().cost)
        self._messages = self._characters = 0
        self._tokens = 0.0
        self._found = ConversationCost()

    def add(self, item: ImportedItem) -> None:
        """Count a message, or the end of a conversation; conversations come one after the other."""
        if isinstance(item.request, InboxFormNow):
            self._close()
        if not isinstance(item.request, InboxAddedText):
            return
        text = item.request.text
        self._messages, self._characters = self._messages + 1, self._characters + len(text)
        self._tokens += weighted_tokens(text, item.request.role)
        full = self._tokens >= self._limits.tokens and self._messages >= self._limits.least
        if full or self._messages >= self._limits.messages:
            self._close()

    def result(self) -> ConversationCost:
        """Return what was counted."""
        return self._found

    def _close(self) -> None:
        if self._messages:
            usd = self._value(FREE, self._characters).usd
            known = self._found.usd
            self._found.windows += 1
            self._found.usd = None if usd is None or known is None else known + usd
        self._messages = self._characters = 0
        self._tokens = 0.0


async def _parts(entries: AsyncIterator[Entry]) -> AsyncIterator[list[Entry]]:
    """Yield the entries in lists."""
    part: list[Entry] = []
    async for entry in entries:
        part.append(entry)
        if len(part) == PART:
            yield part
            part = []
    if part:
        yield part
