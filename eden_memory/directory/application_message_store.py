"""Read messages that MongoDB cannot select by their fields: those that a document lists, and those in JSON texts.

Whole documents are read, and taken apart here. Where MongoDB can read every field, its queries and indexes do this.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.listed_messages import (
    MessageList,
    place_in_document,
)
from eden_memory.directory.listed_store import ListStore, StoredList
from eden_memory.directory.secret_store import installation_secret
from eden_memory.mongo.document_fields import (
    beside,
    beside_content,
    paths_of,
    stored_path,
    without_nested,
)
from eden_memory.mongo.ids import encode_id
from eden_memory.mongo.lenient_decoding import readable
from eden_memory.schemas.ids import NoId
from eden_memory.settings import MessagesSettings, Settings

Row = Mapping[str, Any]
SEEN = "_seen"
"""The field of a listed message that holds when it was told last; now, for one that the tailer has not seen."""


def placed(messages: MessagesSettings, path: str) -> str:
    """Return a mapped path as it is read from a message."""
    return path if messages.list is None else place_in_document(path)


def projection(messages: MessagesSettings, paths: Sequence[str]) -> dict[str, int]:
    """Return what a query for some paths has to read; of a list, its elements' own ids too."""
    own = () if messages.list is None else MessageList(messages).read_paths
    wanted = dict.fromkeys(stored_path(path) for path in (*paths, *own) if path)
    return dict.fromkeys(without_nested(["_id", *(path for path in wanted if path != "_id")]), 1)


def parts(messages: MessagesSettings, document: Row) -> Iterator[Row]:
    """Yield the messages of a document, without ids of their own; Unusable if they cannot be read."""
    if messages.list is None:
        yield document
        return
    listing = MessageList(messages)
    for element in listing.elements(document):
        yield listing.message(document, element, "")


class ApplicationMessages:
    """The messages of documents as the tailer tells them; `memory` is our own database."""

    def __init__(self, memory: AsyncDatabase[dict[str, Any]], settings: Settings) -> None:
        self._memory, self._settings = memory, settings
        self._lists = ListStore(memory, settings.names)
        self._listing: MessageList | None = None
        messages = settings.messages
        paths = [
            messages.session_id,
            messages.role,
            *messages.contents,
            messages.user_id,
            messages.created_at,
        ]
        content = messages.contents[0]
        more = [
            *beside_content(content, paths),
            beside(content, "tool_calls"),
            beside(content, "attachments"),
        ]
        self.fields = projection(messages, [*paths, *more, *paths_of(messages.unread)])

    async def of(self, documents: Sequence[Row]) -> list[dict[str, Any]]:
        """Return the messages of documents that were read whole, in the order of their lists."""
        whole = [dict(row) for row in readable("message", documents, lambda row: row)]
        if self._settings.messages.list is None:
            return whole
        listing = await self._key()
        named = {name: row for row in whole if (name := _name(row)) is not None}
        lists = await self._lists.read(list(named))
        found = readable("message", named.values(), lambda row: _told(listing, row, lists))
        return [message for messages in found for message in messages]

    async def _key(self) -> MessageList:
        if self._listing is None:
            secret = await installation_secret(self._memory, self._settings.names)
            self._listing = MessageList(self._settings.messages, secret)
        return self._listing


def _told(listing: MessageList, row: Row, lists: Mapping[str, StoredList]) -> list[dict[str, Any]]:
    """Return the messages of a document, with the times of those that say none."""
    now = datetime.now(UTC)
    found = listing.identified(row, lists[encode_id(row["_id"])].state)
    return [
        {
            **message,
            SEEN: (now if version is None else _moment(version)) + timedelta(milliseconds=place - len(found)),
        }
        for place, (message, version) in enumerate(found)
    ]


def _moment(version: str) -> datetime:
    return datetime.fromtimestamp(int(version[:8], 16), UTC)


def _name(row: Row) -> str | None:
    try:
        return encode_id(row["_id"])
    except NoId:
        return None
