"""Messages read again because the field mapping was corrected: what it reads otherwise gets a new version.

Asked by a document of the inbox, which stays until all of it is done: a leader that dies in between leaves it to
the next one, which compares anew and publishes what is still different.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from eden_memory.kafka.outgoing import Outgoing
from eden_memory.mongo.changes import DocumentPage, RereadRequest
from eden_memory.source.known_message_topics import Consumers, Known
from eden_memory.source.leading import Leading
from eden_memory.source.mapped import Mapped, Unmapped
from eden_memory.source.position import RereadResult
from eden_memory.source.reading_in import Progress, ahead, unknown

log = structlog.get_logger("eden.tailer")


class Refusals(Protocol):
    """Dead letters of documents that an earlier mapping could not use."""

    async def waiting(self) -> Mapping[bytes, Collection[str]]:
        """Ids of the letters that nobody has settled, by their key."""
        ...

    async def settle(self, letters: Collection[str]) -> None:
        """Note that these documents are recorded now."""
        ...


@dataclass(slots=True)
class _Counts:
    """What a reading comes to."""

    read: int = 0
    changed: int = 0
    refused: int = 0
    accepted: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class Rereading:
    """Takes requests one after the other; the stream waits meanwhile, as it does for a merge."""

    consumers: Consumers
    refusals: Refusals
    read_alike: Callable[[Sequence[str]], Awaitable[None]]
    """Notes that this mapping reads messages as they are recorded; by typed id."""
    _waiting: dict[str, RereadRequest] = field(default_factory=dict[str, RereadRequest])
    _done: set[str] = field(default_factory=set[str])

    def ask(self, rereads: Sequence[RereadRequest]) -> None:
        """Take requests; one that is known already counts once."""
        for one in rereads:
            if one.request_id not in self._done:
                self._waiting.setdefault(one.request_id, one)

    async def run(self, leading: Leading) -> None:
        """Do what is asked; told to stop, leave the rest to the next leader."""
        while self._waiting and not leading.stopping.is_set():
            name, asked = next(iter(self._waiting.items()))
            counts = await self._read(leading, asked)
            if counts is None:
                return
            result = RereadResult(
                name, counts.read, counts.changed, len(counts.accepted), counts.refused, asked.everything
            )
            await leading.note_reread(result)
            self._done.add(name)
            del self._waiting[name]
            leading.erase_later([asked.request])
            await leading.settle()
            log.info("messages were read again", **result.counts())

    async def _read(self, leading: Leading, asked: RereadRequest) -> _Counts | None:
        """None: told to stop."""
        await leading.settle()  # so that the topic is read as it will stay
        known, counts = Known(), _Counts()
        try:
            await known.read(self.consumers)
            letters = await self.refusals.waiting()
            progress = Progress("reading messages again", await leading.source.messages.count(), 0)
            passed = 0
            async for page in ahead(leading, None, asked.session):
                passed += len(page.documents)
                selected = _selected(leading, page, asked)
                counts.read += len(selected.documents)
                await self._page(leading, known, letters, selected, counts)
                progress.tell(passed)
                if leading.stopping.is_set():
                    return None
            progress.tell(passed, finished=True)
        finally:
            known.close()
        await leading.settle()
        await self.refusals.settle(counts.accepted)
        return counts

    async def _page(
        self,
        leading: Leading,
        known: Known,
        letters: Mapping[bytes, Collection[str]],
        page: DocumentPage,
        counts: _Counts,
    ) -> None:
        mapped = await unknown(leading, known, page, "reread")
        changed = [one for one in mapped.records if one.value is not None]
        counts.changed += len(changed)
        counts.refused += len(mapped.unmapped)
        if letters:
            refused = {leading.mapping.dead_key(one.document) for one in mapped.unmapped}
            usable = {leading.mapping.dead_key(one) for one in page.documents} - refused
            counts.accepted.update(name for key in usable for name in letters.get(key, ()))
            mapped.unmapped[:] = [one for one in mapped.unmapped if _new(leading, one, letters)]
        await leading.publish(mapped, page.time, "reread")
        await self.read_alike(_alike(leading, page, mapped, changed))
        assert leading.position is not None
        await leading.advance(leading.position)


def _selected(leading: Leading, page: DocumentPage, asked: RereadRequest) -> DocumentPage:
    return page if asked.since is None else leading.mapping.created_since(page, asked.since)


def _new(leading: Leading, refused: Unmapped, letters: Mapping[bytes, Any]) -> bool:
    """Whether the document has no dead letter yet."""
    return leading.mapping.dead_key(refused.document) not in letters


def _alike(leading: Leading, page: DocumentPage, mapped: Mapped, changed: Sequence[Outgoing]) -> list[str]:
    """Messages of a page that are read as they are recorded."""
    others = {one.key for one in changed}
    others |= {key for one in mapped.unmapped if (key := leading.mapping.key(one.document)) is not None}
    keys = (leading.mapping.key(one) for one in page.documents)
    return [key.decode() for key in keys if key is not None and key not in others]
