"""The lines of an `eden export` file: a header, records as the memory topics hold them, a closing line."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, RootModel, StringConstraints

from eden_memory.schemas.fields import Count, EventId, Moment, Ordinal, Part
from eden_memory.schemas.ids import EntityId
from eden_memory.schemas.scopes import ScopeKey

EventType = Annotated[str, StringConstraints(pattern=r"^eden\.[A-Za-z]+\.v[1-9][0-9]*$")]


class ExportHeader(Part):
    """The first line: what the file holds."""

    line: Literal["header"] = "header"
    format: Literal["eden-export"] = "eden-export"
    version: Ordinal = 1
    """Of the lines. The records' data have versions of their own, in `type`."""
    store_format: Count = 0
    """Of the store that it comes from; 0 where none is said."""
    export_id: str = Field(pattern=r"^[0-9a-f]{32}$")
    """Names this file: importing it twice changes nothing."""
    exported_at: Moment
    program: str
    """Version of the program that wrote it."""
    agent_id: EntityId | None = None
    """Only this agent's memory; null: of all agents."""
    user_id: EntityId | None = None
    """Only this user's memory, and that of sessions in which nobody else was; null: of all users."""


class ExportedRecord(Part):
    """One version of a fact, reflection or blob, or the end of a session: a record of its topic, whole.

    Lines of a scope stand together: its reflections, its blobs from the first version on, the end of its session, its
    facts. Of a reflection or fact the newest version comes first.
    """

    line: Literal["record"] = "record"
    key: EventId
    """The record's key in its topic."""
    scope: ScopeKey
    type: EventType
    """`ce_type`: the event, and the version of its schema that `data` has (`schemas/json`)."""
    id: EventId
    """`ce_id`."""
    source: str
    """`ce_source`."""
    time: Moment
    """`ce_time`."""
    traceparent: str | None = None
    data: dict[str, Any]


class ExportedGap(Part):
    """The number of a blob version that was forgotten: it is never used again."""

    line: Literal["gap"] = "gap"
    scope: ScopeKey
    version: Ordinal


class ExportEnd(Part):
    """The last line: a file without it was cut off."""

    line: Literal["end"] = "end"
    records: Count
    gaps: Count


class ExportLine(RootModel[ExportHeader | ExportedRecord | ExportedGap | ExportEnd]):
    """One line of an export: JSON Lines, UTF-8. Readers skip fields that they do not know."""

    NAME: ClassVar[str] = "ExportLine"
    VERSION: ClassVar[int] = 1

    root: ExportHeader | ExportedRecord | ExportedGap | ExportEnd = Field(discriminator="line")
