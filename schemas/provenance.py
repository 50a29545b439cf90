"""Where a memory comes from: the messages it rests on, the call that was paid, the words that caused it."""

from schemas.fields import KeyText, Moment, Ordinal, Part, Usd, Vector
from schemas.ids import EntityId, Version


class MessageRef(Part):
    """One message as a window saw it."""

    message_id: EntityId
    version: Version


class SourceMessage(MessageRef):
    """A message that a memory rests on, with what forgetting must know of it."""

    session_id: EntityId
    user_id: EntityId | None = None
    """Its author, if a user."""
    time: Moment
    """When it was written (`ce_time` of its record)."""


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
