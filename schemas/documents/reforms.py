"""Reforms: what was asked of each, what it was expected to cost, and how far it is."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from eden_memory.schemas.documents.base import Document
from eden_memory.schemas.documents.namespaces import Placed
from eden_memory.schemas.fields import Count, Moment, Ordinal, Part, Usd
from eden_memory.schemas.ids import EntityId


class Override(Part):
    """A setting that a reform has of its own."""

    name: str
    """As `memory.similar`, or `llm`."""
    value: str
    """In JSON."""


class ReformAsked(Part):
    """What is formed anew, and how: the same for as long as the namespace exists."""

    agent_id: EntityId | None = None
    user_id: EntityId | None = None
    session_id: EntityId | None = None
    rewindow: bool = False
    """Windows are cut anew; else they are taken as they were recorded."""
    overrides: tuple[Override, ...] = ()
    """By name."""
    streams: str | None = None
    """SHA-256 of the stream documents that it has of its own (collection `streams` of the namespace)."""


class ReformCalls(Part):
    """What one stage was expected to ask."""

    stage: str
    calls: Count
    input_tokens: Count
    output_tokens: Count
    usd: Usd | None
    """Of those that are to be paid; null where a price is unknown."""
    reused: Count
    """Calls whose answers are known to be kept already."""


class Reform(Document):
    """One reform; its namespace has the same id."""

    COLLECTION: ClassVar[str] = "reforms"

    id: Annotated[str, Field(alias="_id", pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    asked: ReformAsked
    settings_version: str
    """Hash of the settings that decide what is formed, overrides included."""
    source: Placed
    """What was live when it began: windows come from there."""
    state: Literal["restoring", "running", "paused", "caught_up"]
    """`restoring`: its formation-trigger's state is being made; `paused`: at the cap."""
    at_once: Ordinal
    """Windows on their way at the same time."""
    cap_usd: Usd | None = None
    messages: Count
    """Of the selected windows, as they were counted before."""
    windows: Count
    estimate: tuple[ReformCalls, ...]
    formed: Count = 0
    """Windows that are complete."""
    spent_usd: Usd
    paid: Count = 0
    """Calls of models."""
    reused: Count = 0
    """Answers that were kept already."""
    created_at: Moment
    caught_up_at: Moment | None = None
