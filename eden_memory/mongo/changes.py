"""Changes, batches of changes and pages of documents, as the tailer reads them from the application's database."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from eden_memory.errors import EdenError, ServerAway


class PositionLost(EdenError):  # noqa: N818 - reads as what happened
    """The source no longer knows the position; only a merge of the whole collection closes the gap."""


class SourceFailed(ServerAway):
    """The source did not answer or refused; a retry from the same position may help."""


Document = Mapping[str, Any]

PART = 200
"""So many changes or documents are worked on at once: all of it is still in the processor's cache when it is sent."""
INSERT, UPDATE, REPLACE, DELETE = "insert", "update", "replace", "delete"
COLLECTION_GONE = frozenset({"drop", "rename", "dropDatabase", "invalidate"})
"""Operations after which the collection can no longer be followed event by event."""


class Unreadable(dict[str, Any]):
    """A document that cannot be read: its `_id`, or where that cannot be read None and a digest; and why.

    `no_json`: a text that was to be JSON is none.
    """

    def __init__(
        self, identity: Any, reason: str, digest: str | None = None, *, no_json: bool = False
    ) -> None:
        super().__init__(_id=identity)
        self.reason, self.digest, self.no_json = reason, digest, no_json


class ChangeEvent(NamedTuple):
    """One change event; ids and field values are the driver's, ``time` is its cluster time."""

    operation: str
    collection: str
    id: Any
    document: Document | None
    before: Document | None
    touched: Sequence[str] | None
    """Names of the top-level or dotted fields that an update set or removed."""
    version: str
    """Unique to the change: its cluster time and its position among the changes of that time."""
    time: datetime


class ChangeBatch(NamedTuple):
    """Changes in the order of the stream, and the position after them."""

    parts: Callable[[], Iterable[Sequence[ChangeEvent]]]
    """Decodes the changes, a part at a time: after the next batch has been asked for, so that the server works
    meanwhile. All updates of a batch are in one part."""
    size: int
    """The number of changes."""
    position: str
    version: str
    """Every change up to this cluster time is in this batch or an earlier one."""
    time: datetime


class RereadRequest(NamedTuple):
    """A request to read messages again: all, or some, or those of a session (its id as the application has it)."""

    request: Any
    """The id of the inbox document that asks."""
    request_id: str
    """The same, typed."""
    session: Any = None
    session_id: str | None = None
    """The same, typed."""
    since: datetime | None = None
    documents: tuple[Any, ...] | None = None
    """Only the messages with these `_id`s."""

    @property
    def everything(self) -> bool:
        """Whether the request covers everything."""
        return self.session is None and self.since is None and self.documents is None


class DocumentPage(NamedTuple):
    """Documents read from a collection in order."""

    documents: Sequence[Document]
    last: Any
    """The place where the next page begins: to be handed back as it is."""
    version: str
    """A cluster time taken before the page was read."""
    time: datetime


def version_of(seconds: int, counter: int, position: int | None = None) -> str:
    """Text (a `Version` of schemas/ids.py) that compares as the cluster time does, then as the position within it.

    `position`: of a change in a transaction, from 0 on.
    """
    time = f"{seconds:08x}{counter:08x}"
    return time if position is None else f"{time}.{position:08x}"
