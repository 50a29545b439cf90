"""Turn changes of documents that list messages into changes of these messages, as if each were a document of its own.

What becomes of a list is stored before any of it is published, and the tailer's position after that (invariant
listed-before-published). Every element keeps the version of the change that told it last: if a leader dies in
between, the next one meets these changes again, and tells what they brought once more, as the same records.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pymongo.asynchronous.collection import AsyncCollection

from eden_memory.directory.listed_messages import (
    DOCUMENT,
    FORGOTTEN,
    Compared,
    Listed,
    ListState,
    MessageList,
    document_of,
    other_branches,
)
from eden_memory.directory.listed_store import ListStore, StoredList
from eden_memory.errors import describe
from eden_memory.metrics import TAILER_LEFT_OUT
from eden_memory.mongo.changes import (
    DELETE,
    INSERT,
    REPLACE,
    UPDATE,
    ChangeEvent,
    Document,
    DocumentPage,
    Unreadable,
)
from eden_memory.mongo.document_fields import UnreadableJson, Unusable, getter, is_json, stored_path
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.mongo.leases import LeaseLost
from eden_memory.source.message_mapping import MessageMapping, overlap
from eden_memory.source.messages_store import source_errors

WRITTEN = frozenset({INSERT, UPDATE, REPLACE})
UNKNOWN = b"?" * 8
"""The digest of an element whose list was lost."""
OLDEST = "0" * 16
Recorded = Callable[[str], Sequence[tuple[str, bool]]]
"""Return the names of a document's messages, and whether each was forgotten."""


@dataclass(slots=True)
class _Change:
    """The changes of one document that follow one another, as its document is after the last of them."""

    first: ChangeEvent
    last: ChangeEvent

    @property
    def deleted(self) -> bool:
        """Whether it is the deletion of the document."""
        return self.last.operation == DELETE

    def brought(self, entry: Listed) -> bool:
        """Tell whether an entry was told, or ended, by one of the changes: then they are met once more."""
        return self.first.version <= entry.version <= self.last.version


@dataclass(slots=True)
class Expanded:
    """The messages of a page of documents."""

    page: DocumentPage
    new: set[str] = field(default_factory=set[str])
    """The ids of those that were not known, or say something else now."""
    documents: list[Document] = field(default_factory=list[Document])
    """Those that could be read."""
    removed: list[tuple[Document, str]] = field(default_factory=list[tuple[Document, str]])
    """Messages that are listed no more, with the fields of their documents, and when that was seen."""

    def keep(self, selected: Sequence[Document]) -> None:
        """Leave out the messages that are not selected; what the stream will not tell any more stays."""
        if self.new:
            kept = {id(document) for document in selected}
            selected = [
                document
                for document in self.page.documents
                if id(document) in kept or document["_id"] in self.new
            ]
        self.page = self.page._replace(documents=selected)


class ListedSource:
    """Expands changes and pages of `collection`, and stores the lists for the leader of `epoch`."""

    def __init__(
        self,
        listing: MessageList,
        store: ListStore,
        mapping: MessageMapping,
        collection: str,
        source: str,
        documents: AsyncCollection[dict[str, Any]],
    ) -> None:
        """`documents`: those of the application."""
        self._listing, self._store, self._mapping = listing, store, mapping
        self._collection, self._source = collection, source
        self._session = mapping.paths.session_id
        self._documents = documents
        self._paths = tuple(map(stored_path, (*listing.listed, *mapping.read_paths)))
        branches = listing.listed == (listing.path,) and not is_json(listing.path)
        self._elements = getter(listing.path) if branches else None
        self._deleted: dict[str, str] = {}
        self._passed = ""
        self.epoch = 0

    async def changes(self, changes: Sequence[ChangeEvent]) -> list[ChangeEvent]:
        """Return the changes with those of listed messages in place of those of their documents.

        Several changes of a document count as one, at the place of the first and with the document of the last.
        """
        mine = {place: change for place, change in enumerate(changes) if self._concerns(change)}
        together = _together(mine)
        names = {_typed(change.last) for change in together.values()}
        lists = await self._read([name for name in names if name is not None])
        found: list[ChangeEvent] = []
        changed: dict[str, StoredList] = {}
        for place, change in enumerate(changes):
            if place in together:
                name = _typed(change)
                if name is None:
                    found.append(_refused(change, Unusable("its _id is no id")))
                else:
                    try:
                        events, differs = self._change(together[place], lists[name])
                    except Exception as error:  # noqa: BLE001 - one document never stops the others
                        events, differs = [_refused(together[place].last, error)], False
                    found += events
                    if differs:
                        changed[name] = lists[name]
            elif not self._is_of_document(change):
                found.append(change)
        await self._write(changed)
        return found

    def _is_of_document(self, change: ChangeEvent) -> bool:
        return change.collection == self._collection and change.operation in (*WRITTEN, DELETE)

    def _concerns(self, change: ChangeEvent) -> bool:
        """Tell whether a change may change a message."""
        if not self._is_of_document(change):
            return False
        if change.operation != UPDATE or change.touched is None:
            return True
        return any(overlap(name, path) for name in change.touched for path in self._paths)

    def _change(self, change: _Change, stored: StoredList) -> tuple[list[ChangeEvent], bool]:
        """Return the changes of messages that a change of their document is, and whether its list is another now."""
        last = change.last
        if change.deleted:
            return self._deletion(change, stored.state)
        if last.document is None:  # gone since, and its delete follows
            fields = {**(last.before or {}), "_id": last.id}
            return [
                self._removed(entry, fields, last) for entry in stored.state.gone if change.brought(entry)
            ], False
        compared, beside = self._compared(last.document, stored.state)
        again = [
            self._removed(entry, last.document, last) for entry in stored.state.gone if change.brought(entry)
        ]
        if stored.state.version >= last.version:
            told = [
                self._told(self._kind(last.document, element, entry), last.document, element, entry, last)
                for element, entry, digest in zip(
                    compared.elements, compared.matches, compared.digests, strict=True
                )
                if entry is not None and entry.digest == digest and change.brought(entry)
            ]
            return [*again, *told], False
        events, differs = self._update(change, last.document, compared, beside, stored.state)
        return [*again, *events], differs

    def _compared(self, document: Document, state: ListState) -> tuple[Compared, list[Listed]]:
        """Compare a list with its state; return what was told of branches beside the shown one apart: it stays."""
        compared = self._listing.compared(document, state)
        if not compared.removed or self._elements is None:
            return compared, []
        others = other_branches(self._elements(document))
        beside = [entry for entry in compared.removed if entry.name in others]
        removed = [entry for entry in compared.removed if entry.name not in others]
        return compared._replace(removed=removed), beside

    def _deletion(self, change: _Change, state: ListState) -> tuple[list[ChangeEvent], bool]:
        """Return the end of every message of a document that was deleted."""
        last = change.last
        before = {**(last.before or {}), "_id": last.id}
        again = [self._removed(entry, before, last) for entry in state.gone if change.brought(entry)]
        if state.version >= last.version:
            return again, False
        removed = _ended(state.entries, last.version)
        state.gone = [*self._unpassed(state), *removed]
        state.entries, state.version = [], last.version
        self._deleted[encode_id(last.id)] = last.version
        return [*again, *(self._removed(entry, before, last) for entry in removed)], True

    def _update(
        self,
        change: _Change,
        document: Document,
        compared: Compared,
        beside: Sequence[Listed],
        state: ListState,
    ) -> tuple[list[ChangeEvent], bool]:
        """Bring a list up to a change; return what that tells, and whether the list is another now."""
        last, outer = change.last, self._listing.outer(document)
        _count_left_out(self._listing.left_out(document))
        alike = state.reads == self._listing.reads
        moved = alike and bool(state.outer) and state.outer != outer
        removed = _ended(compared.removed, last.version)
        events = [self._removed(entry, document, last) for entry in removed]
        differs = bool(removed) or moved or not alike
        entries = [*beside]
        for entry in beside if moved else ():  # told once its branch is shown again
            entry.digest = entry.digest if entry.digest == FORGOTTEN else UNKNOWN
        for element, match, digest, own in compared.rows():
            entry = match or self._entry(state, own, digest, last.version)
            entries.append(entry)
            if match is None:
                events.append(self._told(INSERT, document, element, entry, last))
                differs = True
            elif entry.digest != FORGOTTEN and (moved or (alike and entry.digest != digest)):
                entry.version, entry.edited, entry.digest = last.version, True, digest
                events.append(self._told(UPDATE, document, element, entry, last, moved=moved))
                differs = True
            elif entry.digest == digest and change.brought(entry):
                kind = self._kind(document, element, entry)
                events.append(self._told(kind, document, element, entry, last))
            elif entry.digest != FORGOTTEN:
                entry.digest = digest
        if differs:
            state.gone = [*self._unpassed(state), *removed]
            state.entries, state.outer, state.reads = entries, outer, self._listing.reads
            state.version = last.version
        return events, differs

    def _entry(self, state: ListState, own: str | None, digest: bytes, version: str) -> Listed:
        """Return the entry of a new element."""
        name = own or self._listing.numbered(state.following, digest)
        state.following += own is None
        return Listed(name, digest, version)

    def _unpassed(self, state: ListState) -> list[Listed]:
        """Return what the next leader may have to tell as removed: what no saved position has passed."""
        return [entry for entry in state.gone if entry.version > self._passed]

    def _kind(self, document: Document, element: Document, entry: Listed) -> str:
        """Return as what an element was told, by the change that brought it."""
        message = self._listing.message(document, element, entry.name)
        with suppress(Unusable):
            return UPDATE if entry.edited or self._mapping.is_deleted(message) else INSERT
        return INSERT

    def _told(
        self,
        operation: str,
        document: Document,
        element: Document,
        entry: Listed,
        change: ChangeEvent,
        *,
        moved: bool = False,
    ) -> ChangeEvent:
        message = self._listing.message(document, element, entry.name)
        moves = moved and self._session != DOCUMENT
        touched = (self._listing.path, *((self._session,) if moves else ()))
        before = None if change.before is None else {**change.before, DOCUMENT: change.id}
        return change._replace(
            operation=operation,
            id=message["_id"],
            document=message,
            before=before,
            touched=touched if operation == UPDATE else None,
            version=entry.version,
            time=_time(entry.version, change),
        )

    def _removed(self, entry: Listed, document: Document, change: ChangeEvent) -> ChangeEvent:
        message = self._listing.message(document, None, entry.name)
        return change._replace(
            operation=DELETE,
            id=message["_id"],
            document=None,
            before=message,
            touched=None,
            version=entry.version,
            time=_time(entry.version, change),
        )

    async def page(self, page: DocumentPage, recorded: Recorded | None = None) -> Expanded:
        """Return the messages of a page of documents; those that are listed no more are told apart.

        `recorded`: the messages of a document that the topic holds, where the lists may be lost, as after a restore.
        """
        documents = {name: document for document in page.documents if (name := _name(document)) is not None}
        lists = await self._read(list(documents))
        found: list[Document] = [document for document in page.documents if _name(document) is None]
        expanded = Expanded(page)
        for name, document in documents.items():
            stored = lists[name]
            state = stored.state
            if recorded is not None and not stored.rows:
                _recover(state, recorded(name))
            try:
                compared, beside = self._compared(document, state)
            except Exception as error:  # noqa: BLE001 - as above
                found.append(_unreadable(document["_id"], error))
                del lists[name]
                continue
            expanded.documents.append(document)
            _count_left_out(self._listing.left_out(document))
            alike = state.reads == self._listing.reads
            entries = [*beside]
            for element, match, digest, own in compared.rows():
                entry = match or self._entry(state, own, digest, page.version)
                entries.append(entry)
                message = self._listing.message(document, element, entry.name)
                found.append(message)
                edited = alike and entry.digest not in (digest, FORGOTTEN)
                if match is None or edited:
                    expanded.new.add(message["_id"])
                    entry.version, entry.edited = max(entry.version, page.version), edited
                if entry.digest != FORGOTTEN:
                    entry.digest = digest
            state.gone = [*self._unpassed(state), *_ended(compared.removed, page.version)]
            expanded.removed += [
                (self._listing.message(document, None, entry.name), entry.version) for entry in state.gone
            ]
            state.version = max(state.version, page.version)
            state.entries, state.reads = entries, self._listing.reads
            state.outer = self._listing.outer(document)
        await self._write(lists)
        expanded.page = page._replace(documents=found)
        return expanded

    async def _read(self, documents: Collection[str]) -> dict[str, StoredList]:
        with source_errors("reading lists of messages"):
            return await self._store.read(documents)

    async def _write(self, lists: Mapping[str, StoredList]) -> None:
        with source_errors("storing lists of messages"):
            stored = await self._store.write(self._source, self.epoch, lists)
        if not stored:
            raise LeaseLost(f"lists of {self._source}: a newer tailer has claimed them")

    def documents_of(self, messages: Sequence[object]) -> list[object]:
        """Return the ids of the documents that list messages, or that are named themselves."""
        named = ((message, document_of(message)) for message in messages)
        return [message if document is None else decode_id(document) for message, document in named]

    async def existing(self, encoded_ids: Sequence[str]) -> set[str]:
        """Return those of the typed ids whose message is still listed, as the lists were seen last."""
        with source_errors("looking for listed messages"):
            return await self._store.existing(self._documents, encoded_ids)

    async def final(self, version: str) -> None:
        """Note that the next leader begins at a version, and drop the lists of documents that were deleted before."""
        self._passed = version
        passed = {name: at for name, at in self._deleted.items() if at <= version}
        with source_errors("dropping lists of deleted documents"):
            await self._store.drop_deleted(passed)
        for name in passed:
            del self._deleted[name]


def _recover(state: ListState, recorded: Sequence[tuple[str, bool]]) -> None:
    """Fill a lost list with the messages that the topic holds, in the order of their numbers."""
    numbers = {name: int(name.partition(".")[0]) if name[:1].isdigit() else -1 for name, _ in recorded}
    state.following = max(numbers.values(), default=-1) + 1
    state.entries = [
        Listed(name, FORGOTTEN if forgotten else UNKNOWN, OLDEST)
        for name, forgotten in sorted(recorded, key=lambda known: numbers[known[0]])
    ]


def _together(changes: Mapping[int, ChangeEvent]) -> dict[int, _Change]:
    """Return the changes by the place of their first one: those of a document up to its deletion are one."""
    found: dict[int, _Change] = {}
    open_: dict[str, _Change] = {}
    for place, change in changes.items():
        name = repr(change.id)
        running = open_.get(name)
        if change.operation == DELETE or change.document is None:
            if change.operation == DELETE:
                open_.pop(name, None)
            found[place] = _Change(change, change)
        elif running is None or change.operation == INSERT:
            found[place] = open_[name] = _Change(change, change)
        else:
            before = change.before if running.last.before is None else running.last.before
            running.last = change._replace(before=before)
    return found


def _ended(entries: Sequence[Listed], version: str) -> list[Listed]:
    return [Listed(entry.name, FORGOTTEN, version) for entry in entries]


def _refused(change: ChangeEvent, error: Exception) -> ChangeEvent:
    """Return a change that tells that a document cannot be read."""
    return change._replace(operation=INSERT, document=_unreadable(change.id, error), before=None)


def _unreadable(identity: Any, error: Exception) -> Unreadable:
    reason = str(error) if isinstance(error, Unusable) else describe(error)
    return Unreadable(identity, reason, no_json=isinstance(error, UnreadableJson))


def _count_left_out(elements: int) -> None:
    if elements:
        TAILER_LEFT_OUT.labels("element").inc(elements)


def _typed(change: ChangeEvent) -> str | None:
    try:
        return encode_id(change.id)
    except Exception:  # noqa: BLE001 - whatever stands there, it is no id
        return None


def _name(document: Document) -> str | None:
    try:
        return encode_id(document["_id"])
    except Exception:  # noqa: BLE001 - as above
        return None


def _time(version: str, change: ChangeEvent) -> datetime:
    """Return the cluster time of a version."""
    return change.time if version == change.version else datetime.fromtimestamp(int(version[:8], 16), UTC)
