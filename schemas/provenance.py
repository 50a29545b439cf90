"""Where a memory comes from: the messages it rests on, the call that was paid, the words that caused it."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pydantic import Field

from eden_memory.schemas.fields import Count, KeyText, Moment, Ordinal, Part, Usd, Vector
from eden_memory.schemas.ids import EntityId, Version


class MessageRef(Part):
    """One message as a window saw it."""

    message_id: EntityId
    version: Version


def _time_of(fields: dict[str, Any]) -> datetime:
    return fields["time"]


class SourceMessage(MessageRef):
    """A message that a memory rests on, with what forgetting must know of it."""

    session_id: EntityId
    user_id: EntityId | None = None
    """Its author, if a user."""
    time: Moment
    """When it was written (`ce_time` of its record): by it forgetting knows what came before it."""
    said_at: Moment = Field(default_factory=_time_of)
    """When it was said: the earlier of the application's time and `time`; of an edited text, when it was edited.
    Equal to `time` where nothing else is known."""
    participants: Count | None = None
    """How many users took part in the window that it was read in (one whom nobody names counts); null where the
    memory was not read in a window: it was added by hand or imported."""


def newest_said(sources: Iterable[SourceMessage]) -> datetime | None:
    """When the newest of the messages was said; None without any."""
    return max((source.said_at for source in sources), default=None)


def _newest_of(fields: dict[str, Any]) -> datetime | None:
    return newest_said(fields["sources"])


class Call(Part):
    """The model call whose answer this is."""

    call_id: KeyText
    model: str
    prompt: str
    """Name and version of the prompt: `fact-extraction/3`."""
    cost_usd: Usd | None = None
    """What the whole call cost; null where the price is unknown."""
    items: Ordinal = 1
    """Facts, reflections or decisions that the call yielded: one item cost `cost_usd / items`."""


class Embedding(Part):
    """A text's vector and the model that made it."""

    model: str
    vector: Vector
    call_id: KeyText | None = None
    """The embedding call; null where the model runs in the process."""


class Statement(Part):
    """What one extraction (or one person) stated: a fact before anything is decided about it."""

    number: Ordinal
    """Its place among the facts of its formation or command."""
    text: str
    formation_id: KeyText | None = None
    """Null when a command stated it."""
    sources: tuple[SourceMessage, ...] = ()
    whole_window: bool = False
    """True where the model named no valid message, so all of the window count."""
    call: Call | None = None
    said_at: Moment | None = Field(default_factory=_newest_of)
    """When it was said: the newest of its sources, or as a command says; null where neither tells."""
    occurred_at: Moment | None = None
    """When what it tells of happened or begins, where its text says so: the beginning of a day, month or year."""
