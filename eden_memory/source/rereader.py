"""Read messages again with a corrected field mapping, and publish those that it reads differently.

A document of the inbox requests it, and stays until all of it is done. If the leader dies in between, the next one
compares anew and publishes what still differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from eden_memory.kafka.outgoing import Outgoing
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.changes import DocumentPage, RereadRequest
from eden_memory.source.backfill import ReadProgress, differing, pages_ahead
from eden_memory.source.flagged_message_store import MappingVersions
from eden_memory.source.known_message_topics import Known, MessagesTopic, known_messages
from eden_memory.source.leader import Leader
from eden_memory.source.position_store import RereadOutcome
from eden_memory.source.source_mapping import Mapped

log = LibraryLogger("eden.tailer")
TOGETHER = 1_000


@dataclass(slots=True)
class _Counts:
    """How many messages a request has read, changed, refused, and accepted after an earlier refusal."""

    read: int = 0
    changed: int = 0
    refused: int = 0
    accepted: list[str] = field(default_factory=list[str])
    """Their dead letters."""


@dataclass(slots=True)
class MessageRereader:
    """Carry out requests to read messages again, one after the other; the stream waits, as it does for a merge."""

    leader: Leader
    topic: MessagesTopic
    versions: MappingVersions
    _waiting: dict[str, RereadRequest] = field(default_factory=dict[str, RereadRequest])
    _done: set[str] = field(default_factory=set[str])

    def request(self, rereads: Sequence[RereadRequest]) -> None:
        """Take requests; a request that is known already counts once."""
        for request in rereads:
            if request.request_id not in self._done:
                self._waiting.setdefault(request.request_id, request)

    async def run(self) -> None:
        """Carry out the requests; when told to stop, leave the rest to the next leader."""
        leader = self.leader
        while self._waiting and not leader.stopping.is_set():
            name, request = next(iter(self._waiting.items()))
            counts = await self._read(request)
            if counts is None:
                return
            outcome = RereadOutcome(
                name, counts.read, counts.changed, len(counts.accepted), counts.refused, request.everything
            )
            await leader.source.positions.note_reread(leader.epoch, outcome)
            self._done.add(name)
            del self._waiting[name]
            leader.erase_later([request.request])
            await leader.settle()
            log.info("messages were read again", **outcome.counts())

    async def _read(self, request: RereadRequest) -> _Counts | None:
        """Read the messages of a request; None when told to stop."""
        leader, counts = self.leader, _Counts()
        await leader.settle()  # so that the topic is read as it will stay
        async with known_messages(self.topic) as known:
            progress = ReadProgress("reading messages again", await leader.source.messages.count(), 0)
            passed = 0
            async for page in pages_ahead(leader, None, request.session, request.documents):
                passed += len(page.documents)
                selected = page
                if request.since is not None:
                    selected = leader.mapping.created_since(page, request.since)
                await self._page(known, selected, counts)
                progress.report(passed)
                if leader.stopping.is_set():
                    return None
            progress.report(passed, finished=True)
        await leader.settle()
        for start in range(0, len(counts.accepted), TOGETHER):
            await leader.source.letters.settle(counts.accepted[start : start + TOGETHER], "published")
        return counts

    async def _page(self, known: Known, page: DocumentPage, counts: _Counts) -> None:
        leader = self.leader
        mapped = await differing(leader, known, page, "reread")
        changed = [record for record in mapped.records if record.value is not None]
        counts.read += len(page.documents)
        counts.changed += len(changed)
        counts.refused += len(mapped.unmapped)
        counts.accepted += await leader.source.letters.open_of(self._usable(page, mapped))
        await leader.publish(mapped, page.time, "reread")
        await self.versions.note(self._read_alike(page, mapped, changed))
        await leader.advance(leader.position)

    def _usable(self, page: DocumentPage, mapped: Mapped) -> set[str]:
        """Return the ids that letters of the documents have which this mapping can use."""
        of = partial(self.leader.mapping.letter_id, self.leader.mapping.collection)
        refused = {of(unmapped.document) for unmapped in mapped.unmapped}
        return {of(document) for document in page.documents} - refused

    def _read_alike(self, page: DocumentPage, mapped: Mapped, changed: Sequence[Outgoing]) -> list[str]:
        """Return the messages of a page that this mapping reads as they are recorded."""
        key_of = self.leader.mapping.key_of
        others = {record.key for record in changed}
        others |= {key for refused in mapped.unmapped if (key := key_of(refused.document)) is not None}
        keys = (key_of(document) for document in page.documents)
        return [key.decode() for key in keys if key is not None and key not in others]
