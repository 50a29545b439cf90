"""Store the lists of messages as they were seen last: a document's newest elements in its row, older ones in further
rows, so that a long list costs a change only the rows that it changes.
"""

from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo import DeleteMany, ReplaceOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.listed_messages import (
    BETWEEN,
    FORGOTTEN,
    Listed,
    ListState,
    document_of,
    packed,
    unpacked,
)
from eden_memory.mongo.client import majority
from eden_memory.mongo.ids import decoded_or_none, encode_id
from eden_memory.mongo.transactions import Transactions
from eden_memory.names import Names
from eden_memory.schemas.documents import MessageLists

Row = dict[str, Any]
TOGETHER = 256
"""Elements of one row; twice as many at most."""
READ_TOGETHER = 1_000


@dataclass(slots=True)
class StoredList:
    """A document's list, and how its rows hold it."""

    state: ListState = field(default_factory=ListState)
    parts: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """The names in each further row, by its number, in the order of the list."""
    newest: list[str] = field(default_factory=list[str])
    """The names in the document's own row."""
    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    """As they are stored."""


class ListStore:
    """The lists of one installation. What a leader writes is refused once a newer one has claimed its source."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._rows = majority(database, names[MessageLists.COLLECTION])
        self._positions = majority(database, names["positions"])
        self._transactions = Transactions(database.client)

    async def read(self, documents: Collection[str]) -> dict[str, StoredList]:
        """Return the lists of documents by their typed ids; an empty one of a document that was never seen."""
        found = {document: StoredList() for document in documents}
        wanted = list(found)
        for start in range(0, len(wanted), READ_TOGETHER):
            for document, rows in (await self._read(wanted[start : start + READ_TOGETHER])).items():
                found[document] = stored_list(document, rows)
        return found

    async def _read(
        self, documents: Sequence[str], session: AsyncClientSession | None = None
    ) -> dict[str, dict[str, Row]]:
        """Return the rows of documents, and their further rows."""
        of = {"_id": {"$in": list(documents)}}
        found = {row["_id"]: {row["_id"]: row} async for row in self._rows.find(of, session=session)}
        parts = [
            f"{document}{BETWEEN}{number}"
            for document, rows in found.items()
            for number in rows[document]["parts"]
        ]
        async for row in self._rows.find({"_id": {"$in": parts}}, session=session) if parts else _nothing():
            found[row["_id"].partition(BETWEEN)[0]][row["_id"]] = row
        return found

    async def write(self, source: str, epoch: int, lists: Mapping[str, StoredList]) -> bool:
        """Store lists that were read, all or none; False if a newer leader has claimed the source.

        What was forgotten since they were read stays forgotten.
        """
        planned = {document: _changes(document, stored) for document, stored in lists.items()}
        if not any(replaced or unused for replaced, unused in planned.values()):
            return True

        async def put(session: AsyncClientSession) -> bool:
            mine = await self._positions.update_one(
                {"_id": source, "epoch": epoch}, {"$inc": {"lists": 1}}, session=session
            )
            if not mine.matched_count:
                return False
            read = [name for replaced, _ in planned.values() for name in replaced]
            async for row in self._rows.find({"_id": {"$in": read}}, session=session):
                document = row["_id"].partition(BETWEEN)[0]
                if _forget_too(lists[document], row):
                    planned[document] = _changes(document, lists[document])
            writes: list[Any] = [
                ReplaceOne({"_id": name}, row, upsert=True)
                for replaced, _ in planned.values()
                for name, row in replaced.items()
            ]
            if gone := [name for _, unused in planned.values() for name in unused]:
                writes.append(DeleteMany({"_id": {"$in": gone}}))
            await self._rows.bulk_write(writes, session=session)
            return True

        return await self._transactions.run(put)

    async def drop_deleted(self, documents: Mapping[str, str]) -> None:
        """Delete the lists of documents that were deleted at these versions, unless they are there again."""
        for document, version in documents.items():
            await self._rows.delete_one({"_id": document, "deleted": version})

    async def existing(self, documents: AsyncCollection[Row], encoded_ids: Sequence[str]) -> set[str]:
        """Return those of some messages (typed ids) that are still listed in one of the application's documents."""
        raw = {name: decoded_or_none(name) for name in encoded_ids}
        named = {
            name: document for name, value in raw.items() if (document := document_of(value)) is not None
        }
        wanted = [value for document in {*named.values()} if (value := decoded_or_none(document)) is not None]
        rows = documents.find({"_id": {"$in": wanted}}, {"_id": 1})
        lists = await self.read([encode_id(row["_id"]) async for row in rows])
        listed = {
            document: {entry.name for entry in stored.state.entries} for document, stored in lists.items()
        }
        return {
            name
            for name, document in named.items()
            if raw[name].partition(BETWEEN)[2] in listed.get(document, ())
        }

    async def forget(self, message_ids: Iterable[str]) -> None:
        """Erase what messages (by their typed ids) said from the lists; they keep their places there."""
        named: dict[str, set[str]] = {}
        for message in message_ids:
            raw = decoded_or_none(message)
            if (document := document_of(raw)) is not None:
                named.setdefault(document, set()).add(raw.partition(BETWEEN)[2])
        if not named:
            return

        async def put(session: AsyncClientSession) -> None:
            for document, rows in (await self._read(list(named), session)).items():
                for name, row in rows.items():
                    if changed := _forgotten(row, named[document]):
                        await self._rows.update_one({"_id": name}, {"$set": changed}, session=session)

        await self._transactions.run(put)


async def _nothing() -> AsyncGenerator[Row]:
    return
    yield


def _forget_too(stored: StoredList, row: Row) -> bool:
    """Bring into a list what was forgotten in one of its rows since it was read; tell whether anything was."""
    before = stored.rows.get(row["_id"])
    if before is None or row["marks"] == before["marks"]:
        return False
    known = unpacked(row["names"], row["marks"])
    forgotten = {entry.name for entry in known if entry.digest == FORGOTTEN}
    for entry in stored.state.entries:
        entry.digest = FORGOTTEN if entry.name in forgotten else entry.digest
    return True


def _forgotten(row: Row, names: Collection[str]) -> Row:
    """Return the marks of a row without the digests of some elements; nothing where it holds none of them."""
    entries = unpacked(row["names"], row["marks"])
    if not any(entry.name in names and entry.digest != FORGOTTEN for entry in entries):
        return {}
    for entry in entries:
        entry.digest = FORGOTTEN if entry.name in names else entry.digest
    return {"marks": packed(entries)[1]}


def stored_list(document: str, rows: dict[str, Row]) -> StoredList:
    """Put a document's list together from its rows; an empty one where there are none."""
    stored = StoredList(rows=rows)
    if (row := rows.get(document)) is None:
        return stored
    state = stored.state
    state.version, state.following = row["version"], row["following"]
    state.outer, state.reads = row["outer"], row["reads"]
    for number in row["parts"]:
        part = rows.get(f"{document}{BETWEEN}{number}")
        if part is None:
            continue  # a reader beside the leader's write: the next one sees it whole
        entries = unpacked(part["names"], part["marks"])
        stored.parts[number] = [entry.name for entry in entries]
        state.entries += entries
    newest = unpacked(row["names"], row["marks"])
    stored.newest = [entry.name for entry in newest]
    state.entries += newest
    state.gone = unpacked(row["gone"], row["gone_marks"])
    return stored


def rows_of(document: str, stored: StoredList) -> dict[str, Row]:
    """Return the rows of a list: those that it does not change are as they were."""
    state = stored.state
    parts, newest = _laid_out(state.entries, stored.parts, stored.newest)
    names, marks = packed(newest)
    gone, gone_marks = packed(state.gone)
    rows: dict[str, Row] = {
        document: {
            "_id": document,
            "version": state.version,
            "following": state.following,
            "outer": state.outer,
            "reads": state.reads,
            "parts": list(parts),
            "names": names,
            "marks": marks,
            "gone": gone,
            "gone_marks": gone_marks,
        }
    }
    if not state.entries:
        rows[document]["deleted"] = state.version
    for number, entries in parts.items():
        names, marks = packed(entries)
        name = f"{document}{BETWEEN}{number}"
        rows[name] = {"_id": name, "names": names, "marks": marks}
    return rows


def _changes(document: str, stored: StoredList) -> tuple[dict[str, Row], list[str]]:
    """Return the rows of a list that differ from the stored ones, and the names of those that it needs no more."""
    rows = rows_of(document, stored)
    replaced = {name: row for name, row in rows.items() if stored.rows.get(name) != row}
    return replaced, [name for name in stored.rows if name not in rows]


def _laid_out(
    entries: Sequence[Listed], before: Mapping[int, Sequence[str]], newest: Collection[str]
) -> tuple[dict[int, list[Listed]], list[Listed]]:
    """Return the entries of each further row, and those of the document's own: where they were, as far as possible.

    A new element stands where the next one that was there before does.
    """
    home = {name: place for place, names in enumerate(before.values()) for name in names}
    home |= dict.fromkeys(newest, len(before))
    rows: list[list[Listed]] = [[] for _ in range(len(before) + 1)]
    place = len(before)
    for entry in reversed(entries):
        if home.get(entry.name, place) > place:
            return _anew(entries)
        place = home.get(entry.name, place)
        rows[place].append(entry)
    if any(len(row) > 2 * TOGETHER for row in rows[:-1]):
        return _anew(entries)
    parts = {number: row[::-1] for number, row in zip(before, rows, strict=False) if row}
    return _split(parts, rows[-1][::-1])


def _anew(entries: Sequence[Listed]) -> tuple[dict[int, list[Listed]], list[Listed]]:
    return _split({}, list(entries))


def _split(
    parts: dict[int, list[Listed]], newest: list[Listed]
) -> tuple[dict[int, list[Listed]], list[Listed]]:
    """Move what is too much for a document's own row to further ones."""
    while len(newest) > 2 * TOGETHER:
        parts[max(parts, default=-1) + 1], newest = newest[:TOGETHER], newest[TOGETHER:]
    return parts, newest
