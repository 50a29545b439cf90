"""What a batch of changes, or a page of documents, becomes on its way to Kafka."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eden_memory.kafka.outgoing import Outgoing
from eden_memory.mongo.changes import Document, RereadRequest


class Unmapped(NamedTuple):
    """A document that cannot become a record, and why."""

    collection: str
    document: Document
    """As far as it is at hand: the mapped fields."""
    reason: str
    version: str


@dataclass(slots=True)
class Mapped:
    """What a batch of changes, or a page of documents, becomes."""

    records: list[Outgoing] = field(default_factory=list[Outgoing])
    unmapped: list[Unmapped] = field(default_factory=list[Unmapped])
    carried: list[Any] = field(default_factory=list[Any])
    """Ids of the inbox documents among them, to be erased once this is safely in Kafka."""
    empty: int = 0
    """Messages without text, left out until text arrives."""
    authorless: int = 0
    """Records of the role user without an author: what they say is no user's own memory."""
    emptied: list[Outgoing] = field(default_factory=list[Outgoing])
    """Of a merge: the records of messages without text, wanted only where the topic may hold an earlier text."""
    rereads: list[RereadRequest] = field(default_factory=list[RereadRequest])
    """Requests to read messages again; their inbox documents stay until that is done."""
    gone: str | None = None
    """Why the messages collection can no longer be followed."""
