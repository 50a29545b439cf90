"""What the application's database tells the tailer: one change, one batch of changes, one page of documents."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

Document = Mapping[str, Any]

INSERT, UPDATE, REPLACE, DELETE = "insert", "update", "replace", "delete"
COLLECTION_GONE = frozenset({"drop", "rename", "dropDatabase", "invalidate"})
"""Operations after which the collection can no longer be followed event by event."""


class Change(NamedTuple):
    """One change event; ids and field values are the driver's, `version` and `time` are its cluster time."""

    operation: str
    collection: str
    id: Any
    document: Document | None
    before: Document | None
    touched: Sequence[str] | None
    """Names of the top-level or dotted fields that an update set or removed."""
    version: str
    time: datetime


class ChangeBatch(NamedTuple):
    """Changes in the order of the stream, and the position after them."""

    decoded: Callable[[], Sequence[Change]]
    """Decodes the changes, each time it is called: after the next batch has been asked for, so that the server
    works meanwhile."""
    position: str
    version: str
    """Every change up to this cluster time stands in this batch or an earlier one."""
    time: datetime


class Page(NamedTuple):
    """Documents read from a collection in order."""

    documents: Sequence[Document]
    last: Any
    """Where the next page begins: to be kept and handed back, nothing else."""
    version: str
    """A cluster time taken before the page was read."""
    time: datetime


def version_of(seconds: int, counter: int) -> str:
    """A cluster time as `schemas.ids.Version`: text that compares as the time does."""
    return f"{seconds:08x}{counter:08x}"
