"""messages, memory_inbox → chat.messages, and what the inbox requests of other topics: one batch of changes.

`eden_memory.source` reads the stream, holds the lease, publishes the records and saves the position.
"""

from collections.abc import Sequence

from eden_memory.mongo.changes import COLLECTION_GONE, DELETE, INSERT, REPLACE, UPDATE, ChangeEvent, Document
from eden_memory.source.message_mapping import overlap
from eden_memory.source.source_mapping import Mapped, SourceMapping


class Tailer:
    """Map changes of two collections to records, in order."""

    def __init__(self, mapping: SourceMapping) -> None:
        self._mapping, self._messages = mapping, mapping.message_mapping

    def __call__(self, changes: Sequence[ChangeEvent]) -> Mapped:
        """Map a batch of changes; of several updates of one message in a row only the last is recorded."""
        mapping, mapped = self._mapping, Mapped()
        superseded = self._superseded(changes)
        for index, change in enumerate(changes):
            if change.operation in COLLECTION_GONE:
                if change.collection == mapping.collection or not change.collection:
                    mapped.gone = change.operation
            elif change.collection == mapping.collection:
                if index not in superseded:
                    self._message(mapped, change)
            elif (
                change.collection == mapping.inbox
                and change.operation == INSERT
                and change.document is not None
            ):
                mapping.add_request(mapped, change.document, change.version, change.time)
        return mapped

    def _message(self, mapped: Mapped, change: ChangeEvent) -> None:
        """Map a change of a message; whatever it raises is its document's dead letter."""
        try:
            self._change(mapped, change)
        except Exception as error:  # noqa: BLE001 - one document never stops the others
            document = change.document or {"_id": change.id}
            self._mapping.refuse(mapped, change.collection, document, change.version, change.time, error)

    def _change(self, mapped: Mapped, change: ChangeEvent) -> None:
        record, messages = self._mapping.add_record, self._messages
        if change.operation == DELETE:
            self._ended(mapped, change, change.before)
        elif change.document is None:
            # Gone since, and its delete follows; that knows only the session that it was in last.
            self._moved(mapped, change)
        elif messages.is_deleted(change.document):
            if change.operation != INSERT and (change.operation == REPLACE or self._matters(change)):
                if messages.session_id(change.document) is not None:  # without one it is ended everywhere
                    self._moved(mapped, change)
                self._ended(mapped, change, change.document)
        elif change.operation == INSERT:
            record(mapped, change.document, change.version, messages.second(change.time), "stream")
        elif change.operation == REPLACE or self._matters(change):
            self._moved(mapped, change)
            time = messages.second(change.time)
            edited = change.operation == REPLACE or self._edits(change)
            record(mapped, change.document, change.version, time, "stream", even_empty=True, edited=edited)

    def _ended(self, mapped: Mapped, change: ChangeEvent, last: Document | None) -> None:
        """Add the tombstone of a message whose document is gone or marked as deleted; `last` names its session."""
        message_id = self._mapping.message_id(change.id)
        if message_id is None:
            return  # it was never recorded
        session = self._messages.session_id(last)
        mapped.records.append(
            self._messages.tombstone(message_id, change.version, change.time, "deleted", session_id=session)
        )

    def _moved(self, mapped: Mapped, change: ChangeEvent) -> None:
        """Add a tombstone for the session that the message was in, if it may have changed its session."""
        if change.operation == UPDATE and not _touches(change, self._messages.paths.session_id):
            return
        before, now = self._messages.session_id(change.before), self._messages.session_id(change.document)
        message_id = self._mapping.message_id(change.id)
        if message_id is None or (before == now and now is not None):
            return
        mapped.records.append(
            self._messages.tombstone(
                message_id, change.version, change.time, "moved", session_id=before, moved_to=now
            )
        )

    def _matters(self, change: ChangeEvent) -> bool:
        return any(_touches(change, path) for path in self._messages.read_paths)

    def _repeats(self, later: ChangeEvent, earlier: ChangeEvent) -> bool:
        """Tell whether the record of `later` says all that the one of `earlier` does: also that the text changed."""
        return self._edits(later) or not self._edits(earlier)

    def _edits(self, change: ChangeEvent) -> bool:
        return any(_touches(change, path) for path in self._messages.text_paths)

    def _superseded(self, changes: Sequence[ChangeEvent]) -> set[int]:
        """Return the indexes of updates that a later update repeats; an update that may move its message stays."""
        waiting: dict[str, int] = {}
        superseded: set[int] = set()
        for index, change in enumerate(changes):
            update = change.operation == UPDATE
            if not update and not waiting:
                continue
            name = f"{change.collection}/{change.id!r}"
            if update and not _touches(change, self._messages.paths.session_id):
                if self._matters(change):
                    if name in waiting and self._repeats(change, changes[waiting[name]]):
                        superseded.add(waiting[name])
                    waiting[name] = index
            else:
                waiting.pop(name, None)
        return superseded


def _touches(change: ChangeEvent, path: str) -> bool:
    return change.touched is None or any(overlap(name, path) for name in change.touched)
