"""Memory beside the live one: namespaces, and how far each has been filled."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.documents.base import Document
from schemas.fields import Count, KeyText, Moment, Part


class Place(Part):
    """How far one partition of a memory topic has been read into a namespace."""

    topic: KeyText
    partition: Count
    begin: Count
    """The first offset there was when the namespace was made."""
    end: Count
    """The offset behind the last record there was then."""
    reached: Count
    """The group's offset when it was last looked up; the group in Kafka is what counts."""


class Namespace(Document):
    """Memory collections of their own, filled from the topics of the installation."""

    COLLECTION: ClassVar[str] = "namespaces"

    id: Annotated[str, Field(alias="_id", pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    kind: Literal["rebuild"]
    prefix: KeyText
    """Of its collections."""
    group: KeyText
    """The consumer group that fills it, whole."""
    source: KeyText
    """What it is filled from, and compared with: the prefix of the live collections."""
    pipeline: KeyText = "original"
    """The namespace whose topics, groups, ledger and trigger state go with this memory."""
    places: tuple[Place, ...]
    state: Literal["filling", "caught_up", "verified", "dropped"]
    """`dropped`: dropping has begun, and nothing of it is to be used."""
    created_at: Moment
    caught_up_at: Moment | None = None
    verified_at: Moment | None = None
    counts: dict[str, Count] = {}
    """Documents by collection (without prefix), when it had last caught up."""
    unreadable: Count = 0
    """Records that could not be read or written; the live writer has them among its dead letters."""
