"""Namespaces: which one is live, and how far each of the others has been filled."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from eden_memory.schemas.documents.base import Document
from eden_memory.schemas.fields import Count, KeyText, Moment, Part


class Namespace(Document):
    """Memory collections of their own, filled from the topics of the installation."""

    COLLECTION: ClassVar[str] = "namespaces"

    id: Annotated[str, Field(alias="_id", pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    kind: Literal["original", "rebuild", "reform"]
    """`original`: what the installation began with; it has a document once another was live."""
    prefix: KeyText
    """Of its collections."""
    group: KeyText
    """The consumer group that fills it, whole: that of its writer."""
    source: KeyText
    """What it is filled from, and compared with: the prefix of the live collections."""
    pipeline: KeyText = "original"
    """The namespace whose topics, groups, ledger and trigger state go with this memory."""
    state: Literal["filling", "caught_up", "verified", "dropped"]
    """`dropped`: dropping has begun, and nothing of it is to be used."""
    created_at: Moment
    caught_up_at: Moment | None = None
    verified_at: Moment | None = None
    switched_at: Moment | None = None
    """When it was last made live."""
    counts: dict[str, Count] = {}
    """Documents by collection (without prefix), when it had last caught up."""
    unreadable: Count = 0
    """Records that could not be read or written; the live writer has them among its dead letters."""


class Placed(Part):
    """Which memory, and by whose topics, groups, ledger and state it is formed."""

    memory: KeyText
    pipeline: KeyText


class Live(Document):
    """The namespace that is read and formed now; without this document it is the original."""

    COLLECTION: ClassVar[str] = "live"

    id: Annotated[Literal["live"], Field(alias="_id")] = "live"
    memory: KeyText
    pipeline: KeyText
    previous: Placed | None = None
    """What was live before: `--rollback` returns to it."""
    handover: KeyText | None = None
    """A group at what the former writer had announced: what came since is announced again, by the new one."""
    revision: Count
    """One more at every switch."""
    switched_at: Moment
    restored_at: Moment | None = None
    """Since when `eden run` forgets again what was forgotten since a backup that was restored; readers show nothing
    until it is null."""
