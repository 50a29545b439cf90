"""One change stream over some collections of a database, read as whole batches by plain commands.

`watch()` costs a task switch and several objects an event; a cursor that is read command by command gives the
server's batch as it is, and the position after it (`postBatchResumeToken`) also when nothing has happened.
"""

import asyncio
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any

from bson import decode  # pyright: ignore[reportUnknownVariableType]
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure, PyMongoError

from eden_memory.errors import describe
from eden_memory.mongo.changes import (
    PART,
    ChangeBatch,
    ChangeEvent,
    PositionLost,
    SourceFailed,
    Unreadable,
    version_of,
)
from eden_memory.mongo.document_fields import without_nested
from eden_memory.mongo.lenient_decoding import PLAIN, decode_outer_fields

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
"""Answers are decoded only as far as is needed to ask for the next one."""
BATCH = re.compile(rb"\x04(?:first|next)Batch\x00")
"""The array of events in a cursor's BSON, by type and name. Nothing before it in a cursor can look like this."""
LENGTH = struct.Struct("<i")
LOST_CODES = frozenset({260, 280, 286, 40585, 50811})
"""InvalidResumeToken, ChangeStreamFatalError, ChangeStreamHistoryLost, and their codes on older servers."""
FAILED_TO_PARSE, TYPE_MISMATCH, OVERFLOW = 9, 14, 15
ASSERTIONS_FROM = 20_000
"""Codes from here on are assertions inside the server, such as the many ways to fail at decoding a token."""
ANSWER_SECONDS = 15.0
"""Seconds without an answer after which a server counts as frozen."""
AN_UPDATE = b"\x02operationType\x00\x07\x00\x00\x00update\x00"
"""An update in a reply, as BSON."""
TIMESTAMP_TYPE = "82"
AFTER_TIME = 18
FIRST = "2B022C010029"
"""Format version 1, an event, position 0: the beginning of nearly every token."""
ZERO, LONGEST_INTEGER = 0x29, 0x32
"""Type bytes of integers: 0 is the type byte alone, then come those of integers of 1 to 8 bytes."""


class ChangeStream:
    """Reads changes of `fields` (dotted paths) of the collections named, in the stream's order."""

    def __init__(
        self,
        client: AsyncMongoClient[dict[str, Any]],
        database: str,
        fields: Mapping[str, Sequence[str]],
        *,
        batch: int,
        kept_before: Sequence[str] = (),
        wait_seconds: float = 1.0,
    ) -> None:
        self._client, self._database = client, client.get_database(database, codec_options=PLAIN)
        self._collections = list(fields)
        self._project = _projection(fields, kept_before)
        self._batch, self._wait_ms = batch, int(wait_seconds * 1000)
        self._session: AsyncClientSession | None = None
        self._cursor: tuple[int, str] | None = None
        self._position: str | None = None

    async def now(self) -> ChangeBatch:
        """Return the current position, without changes: everything older is before it."""
        await self.close()
        batch = await self._aggregate({})
        await self.close()
        return batch._replace(parts=tuple, size=0)

    async def next(self, after: str) -> ChangeBatch:
        """The batch after a position; empty when nothing happened for a while. Opens or reopens as needed."""
        if self._cursor is None or self._position != after:
            await self.close()
            batch = await self._resume(after)
        else:
            batch = await self._get_more(*self._cursor)
        self._position = batch.position
        return batch

    async def close(self) -> None:
        """Return the cursor to the server; a later `next` opens another."""
        cursor, self._cursor = self._cursor, None
        session, self._session = self._session, None
        if session is None:
            return
        try:
            if cursor is not None:
                async with asyncio.timeout(2):
                    await self._database.command(
                        "killCursors", cursor[1], cursors=[cursor[0]], session=session
                    )
            await session.end_session()
        except (PyMongoError, TimeoutError):
            return

    async def _resume(self, after: str) -> ChangeBatch:
        try:
            return await self._aggregate({"resumeAfter": {"_data": after}})
        except SourceFailed as error:
            code = getattr(error.__cause__, "code", None) or 0
            if code in (FAILED_TO_PARSE, TYPE_MISMATCH, OVERFLOW) or code >= ASSERTIONS_FROM:
                raise PositionLost(
                    f"MongoDB cannot read the change stream's position: {describe(error)}"
                ) from error
            raise

    async def _aggregate(self, resume: dict[str, Any]) -> ChangeBatch:
        stage = {
            "fullDocument": "updateLookup",
            "fullDocumentBeforeChange": "whenAvailable",
            **resume,
        }
        ours = {"ns.coll": {"$in": self._collections}}
        may_be_ours = {"operationType": {"$in": ["rename", "dropDatabase", "invalidate"]}}
        pipeline = [
            {"$changeStream": stage},
            {"$match": {"$or": [ours, may_be_ours]}},
            {"$project": self._project},
        ]
        self._session = self._client.start_session(causal_consistency=False)
        return await self._command(
            {
                "aggregate": 1,
                "pipeline": pipeline,
                "cursor": {"batchSize": self._batch},
                "readConcern": {"level": "majority"},
            }
        )

    async def _get_more(self, cursor: int, collection: str) -> ChangeBatch:
        return await self._command(
            {
                "getMore": cursor,
                "collection": collection,
                "batchSize": self._batch,
                "maxTimeMS": self._wait_ms,
            }
        )

    async def _command(self, command: dict[str, Any]) -> ChangeBatch:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reply = await self._database.command(command, session=self._session, codec_options=RAW)
        except OperationFailure as error:
            await self.close()
            raise _what_it_means(error) from error
        except (PyMongoError, TimeoutError) as error:
            self._cursor = None
            await self.close()
            raise SourceFailed(f"change stream: {error or 'no answer'}") from error
        except asyncio.CancelledError:
            self._cursor = None
            raise
        raw = bytes(reply["cursor"].raw)
        places, cursor = _taken_apart(raw)
        if cursor["id"]:
            self._cursor = cursor["id"], cursor["ns"].partition(".")[2]
        else:
            self._cursor = None
        position: str = cursor["postBatchResumeToken"]["_data"]
        seconds, counter = token_time(position)
        return ChangeBatch(
            parts=lambda: self._parts(raw, places),
            size=len(places) - 1,
            position=position,
            version=version_of(seconds, max(counter - 1, 0)),
            time=datetime.fromtimestamp(seconds, UTC),
        )

    def _parts(self, cursor: bytes, places: Sequence[int]) -> Iterator[list[ChangeEvent]]:
        count = len(places) - 1
        size = max(PART, count) if AN_UPDATE in cursor else PART
        for start in range(0, count, size):
            yield [self._change(event) for event in _events(cursor, places[start : start + size + 1])]

    def _change(self, event: dict[str, Any]) -> ChangeEvent:
        token: str = event["_id"]["_data"]
        key = event.get("documentKey")
        identity, document = key["_id"] if key else None, event.get("fullDocument")
        if isinstance(document, Unreadable):
            document["_id"] = identity
        return ChangeEvent(
            event["operationType"],
            self._concerned(event),
            identity,
            document,
            event.get("fullDocumentBeforeChange"),
            event.get("touched"),
            _version(token, in_transaction="txnNumber" in event),
            _moment(token[2:10]),
        )

    def _concerned(self, event: dict[str, Any]) -> str:
        """The collection; of a rename the one of ours, be it the old name or the new; "" of the database."""
        name: str = event["ns"].get("coll", "") if "ns" in event else ""
        return event["to"]["coll"] if "to" in event and name not in self._collections else name


def _taken_apart(cursor: bytes) -> tuple[list[int], dict[str, Any]]:
    """Return where each event of a cursor's BSON begins and the last one ends, and the cursor's other fields."""
    array = BATCH.search(cursor)
    assert array is not None
    places = _places(cursor, array.end() + LENGTH.size)
    others = cursor[LENGTH.size : array.start()] + cursor[places[-1] + 1 : -1]
    return places, decode(_document(others), PLAIN)


def _places(raw: bytes, at: int) -> list[int]:
    """Return where each document of a BSON array begins, with its type and name, and where the last one ends."""
    places = [at]
    while raw[at]:
        at = raw.index(0, at) + 1  # behind the name
        at += LENGTH.unpack_from(raw, at)[0]
        places.append(at)
    return places


def _events(cursor: bytes, places: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Decode the events at some places; one by one if a document in one of them cannot be decoded."""
    try:
        yield from decode(_document(cursor[places[0] : places[-1]]), PLAIN).values()
    except Exception:  # noqa: BLE001 - whatever it is, one document raised it
        for begins, ends in pairwise(places):
            event = cursor[cursor.index(0, begins) + 1 : ends]
            yield decode_outer_fields(event)


def _document(elements: bytes) -> bytes:
    """Decode BSON elements as a document."""
    return LENGTH.pack(LENGTH.size + len(elements) + 1) + elements + b"\x00"


def _version(token: str, *, in_transaction: bool) -> str:
    """The version of a change, from its resume token: its cluster time, and its position in its transaction."""
    position = token_position(token)
    if position or in_transaction:
        return version_of(*token_time(token), position)
    return token[2:AFTER_TIME].lower()


def _what_it_means(error: OperationFailure) -> Exception:
    labels = error.has_error_label("ResumableChangeStreamError") or error.has_error_label(
        "TransientTransactionError"
    )
    if error.code in LOST_CODES and not labels:
        return PositionLost(f"MongoDB no longer has the change stream's position: {_said(error)}")
    return SourceFailed(f"change stream: {_said(error)}")


def _said(error: OperationFailure) -> str:
    """The server's words, without the reply's times and signatures."""
    return str((error.details or {}).get("errmsg") or error)


@lru_cache(maxsize=16)
def _moment(seconds: str) -> datetime:
    """The time of hexadecimal seconds, one object a second: what is derived from it can be kept as well."""
    return datetime.fromtimestamp(int(seconds, 16), UTC)


def _projection(fields: Mapping[str, Sequence[str]], kept_before: Sequence[str]) -> dict[str, Any]:
    """Only what is mapped crosses the wire: other fields, however large, stay in the server."""
    wanted = sorted({path for paths in fields.values() for path in paths} | {"_id"})
    before = sorted(set(kept_before) | {"_id"})
    names: dict[str, Any] = {
        "$concatArrays": [
            _keys("$updateDescription.updatedFields"),
            {"$ifNull": ["$updateDescription.removedFields", []]},
            {
                "$map": {
                    "input": {"$ifNull": ["$updateDescription.truncatedArrays", []]},
                    "in": "$$this.field",
                }
            },
        ]
    }
    return {
        "operationType": 1,
        "txnNumber": 1,
        "documentKey": 1,  # a projection of whole objects costs the server less than one of paths inside them
        "ns": 1,
        "to": 1,
        **{f"fullDocument.{path}": 1 for path in without_nested(wanted)},
        **{f"fullDocumentBeforeChange.{path}": 1 for path in without_nested(before)},
        "touched": {"$cond": [{"$eq": ["$operationType", "update"]}, names, "$$REMOVE"]},
    }


def _keys(document: str) -> dict[str, Any]:
    pairs: dict[str, Any] = {"$objectToArray": {"$ifNull": [document, {}]}}
    return {"$map": {"input": pairs, "in": "$$this.k"}}


def token_time(token: str) -> tuple[int, int]:
    """Seconds since the epoch and counter of a token's cluster time; a ValueError if it is not of that form."""
    if not token.startswith(TIMESTAMP_TYPE) or len(token) < AFTER_TIME:
        raise ValueError(f"not a resume token: {token[:24]!r}")
    return int(token[2:10], 16), int(token[10:AFTER_TIME], 16)


def token_position(token: str) -> int:
    """The event's position within its transaction, 0 outside of one; a ValueError if the token is not of that form.

    The events of a transaction share a cluster time, however many oplog entries the transaction takes.
    """
    if token.startswith(FIRST, AFTER_TIME):
        return 0
    version, at = _integer(token, AFTER_TIME)
    if version:
        _, at = _integer(token, at)
    return _integer(token, at)[0]


def _integer(token: str, at: int) -> tuple[int, int]:
    """The integer at an offset, and the offset behind it."""
    length, at = int(token[at : at + 2], 16) - ZERO - 1, at + 2
    if length == -1:
        return 0, at
    end = at + 2 * length
    if not 0 < length < LONGEST_INTEGER - ZERO or len(token) < end:
        raise ValueError(f"not a resume token: {token[:40]!r}")
    return int(token[at:end], 16) >> 1, end  # the lowest bit says whether a fraction follows
