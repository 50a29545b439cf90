"""Changes of a scope's blob that somebody asks for: its text, and the sentences that every version keeps. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from eden_memory.limits import ScopeLimits, words_of
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.events.reflections import MemoryAction

Refusal = Literal["unknown", "stale", "needless", "absorbed", "too_long", "pinned"]
"""`unknown`: no such reflection, or a retired one; `stale`: another version stands; `needless`: nothing would change;
`absorbed`: a blob holds it; `too_long`: over the scope's word limit; `pinned`: the text lacks a pinned sentence."""


@dataclass(frozen=True, slots=True)
class CurrentBlob:
    """A scope's blob as decided so far; version 0: none."""

    version: int = 0
    highest: int = 0
    """The highest version ever given."""
    text: str = ""
    pins: tuple[str, ...] = ()
    consolidated_at: datetime | None = None
    said_at: datetime | None = None


def stored_blob(snapshot: Snapshot | None) -> CurrentBlob:
    """Return the blob that a snapshot holds."""
    if snapshot is None:
        return CurrentBlob()
    return CurrentBlob(
        snapshot.blob_version,
        snapshot.highest_blob_version,
        snapshot.blob or "",
        snapshot.pins,
        snapshot.consolidated_at,
        snapshot.blob_said_at,
    )


@dataclass(frozen=True, slots=True)
class BlobText:
    """The text and the pins that a command gives a blob."""

    text: str
    pins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlobEdit:
    """A change of a scope's blob that somebody asks for; `text`: the blob's, or the sentence."""

    action: MemoryAction
    text: str
    expected_version: int | None = None

    def applied_to(self, blob: CurrentBlob, limits: ScopeLimits) -> BlobText | Refusal:
        """Return the blob's next text, or why there is none."""
        if self.expected_version not in (None, blob.version):
            return "stale"
        changed = self._changed(blob)
        if isinstance(changed, BlobText) and words_of(changed.text) > limits.blob_words:
            return "too_long"
        return changed

    def _changed(self, blob: CurrentBlob) -> BlobText | Refusal:
        match self.action:
            case "pin":
                return self._pinned(blob, one_line(self.text))
            case "unpin":
                return self._unpinned(blob, one_line(self.text))
            case _:
                return self._edited(blob, self.text.strip())

    def _edited(self, blob: CurrentBlob, text: str) -> BlobText | Refusal:
        if text == blob.text:
            return "needless"
        return "pinned" if missing_pins(text, blob.pins) else BlobText(text, blob.pins)

    def _pinned(self, blob: CurrentBlob, sentence: str) -> BlobText | Refusal:
        if sentence in blob.pins:
            return "needless"
        return BlobText(with_pins(blob.text, (sentence,)), (*blob.pins, sentence))

    def _unpinned(self, blob: CurrentBlob, sentence: str) -> BlobText | Refusal:
        if sentence not in blob.pins:
            return "unknown"
        return BlobText(blob.text, tuple(pin for pin in blob.pins if pin != sentence))


def one_line(text: str) -> str:
    """Return a sentence without line breaks and doubled spaces."""
    return " ".join(text.split())


def missing_pins(text: str, pins: Sequence[str]) -> list[str]:
    """Return the pinned sentences that a text lacks; line breaks and spaces do not count."""
    said = one_line(text)
    return [pin for pin in pins if pin not in said]


def with_pins(text: str, pins: Sequence[str]) -> str:
    """Return the text, the pinned sentences that it lacks below it, each on a line of its own."""
    return "\n".join([*filter(None, [text.strip()]), *missing_pins(text, pins)])
