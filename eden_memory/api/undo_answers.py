"""Answers of HTTP and MCP about undos and receipts."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from eden_memory.receipts.receipt import CleanStore
from eden_memory.unpoison.undo_preview import MOST_NAMED, Change


class _UndoPart(BaseModel):
    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)


class PlannedChangeAnswer(_UndoPart):
    """Memories to which the same would happen."""

    change: Change
    count: int
    ids: Annotated[tuple[str, ...], AfterValidator(lambda ids: ids[:MOST_NAMED])]
    """The first 1,000: of a fact or reflection its id, of a restored text `<fact id>@<version>`, of a blob
    `<scope key>@<version>`, the lowest version that goes."""


class UndoPreviewAnswer(_UndoPart):
    """All that an undo would change, without texts; no changes: no memory rests on it."""

    changes: list[PlannedChangeAnswer]
    preview: str
    """The value to pass to `undo`, so that it changes exactly this."""


class StillThereAnswer(_UndoPart):
    """Something that a receipt says is erased, and that is there."""

    where: str
    """A collection or topic."""
    name: str
    """An id or key, never a text."""


class CheckedReceiptAnswer(_UndoPart):
    """A receipt of this installation, held against its stores."""

    still_there: list[StillThereAnswer]
    """Empty, unless something came back."""
    on_disk: int | None
    """Records that a tombstone has ended and Kafka's compaction has not removed yet; null: not looked for."""
    not_clean: list[CleanStore]
    """Stores whose disks may hold remains until then."""
    not_yet: list[str]
    """Namespaces that keep what they hold of it until they go on or are dropped."""
