"""Records of `memory.formations`, then of `chat.messages`, taken in: by the highest version, whatever repeats."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from eden_memory.replay.restore.restore_file import RestoreFile
from eden_memory.replay.restore.restore_rules import (
    PlacedControl,
    WindowMember,
    after_record,
    after_tombstone,
    waits,
)
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    Event,
    FormationAsked,
    FormationRequested,
    MessageRecorded,
    SessionEnded,
    Watermark,
)
from eden_memory.windows.session_state import StoredMessage
from eden_memory.windows.trigger_batch import control_of

GONE = frozenset({"forgotten", "opted_out"})
"""Tombstones after which no text of a message is used any more; after a deletion none up to its version."""

WantsTexts = Callable[[FormationRequested], bool]
"""Tells whether a window is to have its texts."""


@dataclass(slots=True)
class RestoreReader:
    """`forgets`: whether a deleted message's text is not to be used any more."""

    file: RestoreFile
    texts: WantsTexts
    forgets: bool
    passed: dict[int, datetime] = field(default_factory=dict[int, datetime])
    """By partition: everything up to then is recorded."""

    def window(self, asked: Event | None, envelope: Envelope, value: bytes) -> None:
        """Take in a record of `memory.formations`."""
        if isinstance(asked, FormationRequested):
            self.file.window(asked, value, envelope.traceparent, texts=self.texts(asked))

    def chat(self, event: Event | None, envelope: Envelope, key: str, place: tuple[int, int]) -> None:
        """A record of `chat.messages`."""
        partition, offset = place
        match event:
            case MessageRecorded():
                self._message(event, envelope.time, offset + 1)
            case FormationAsked(if_due=True):
                pass  # the trigger does not remember it; a window that it closed has its own record
            case SessionEnded() | FormationAsked():
                asked = PlacedControl(offset + 1, control_of(event, envelope.time))
                self.file.control(event.session_id, asked)
            case Watermark():
                self.passed[partition] = max(self.passed.get(partition, event.time), event.time)
            case None:
                self._tombstone(key, envelope, offset + 1)
            case _:
                pass

    def _message(self, event: MessageRecorded, time: datetime, place: int) -> None:
        member, known = self.file.member(event.message_id), self.file.known(event.message_id)
        after = after_record(known, member, event, time, place)
        if after is not None:
            self.file.put(after, place, waits=waits(after))
            if known is not None and member is None and event.origin != "reread":
                self._remember_author(known, after, place)
        if member is not None:
            self._tell(member, event, time, known)
            if event.version < member.version and event.session_id != member.session_id and event.user_id:
                self.file.wrote(event.session_id, event.user_id, place)  # before it moved to the window's

    def _tell(
        self, member: WindowMember, event: MessageRecorded, time: datetime, known: StoredMessage | None
    ) -> None:
        """Keep a message as its window saw it, or as near to it as there is.

        What was read again with a corrected field mapping counts in place of what the window saw.
        """
        before, corrects = self.file.told(event.message_id), event.origin == "reread"
        exact = before is not None and before.version == member.version
        if event.version != member.version and exact and not corrects:
            return
        told = StoredMessage.of(event, time, known)
        told.misread = corrects or (before is not None and before.misread)
        self.file.text(event.message_id, told if member.texts else replace(told, text=None))

    def _remember_author(self, before: StoredMessage, after: StoredMessage, place: int) -> None:
        changed = (before.session_id, before.user_id) != (after.session_id, after.user_id)
        if changed and before.session_id is not None and before.user_id is not None and not before.opted_out:
            self.file.wrote(before.session_id, before.user_id, place)

    def _tombstone(self, message_id: str, envelope: Envelope, place: int) -> None:
        known, member = self.file.known(message_id), self.file.member(message_id)
        after = after_tombstone(known, member, message_id, envelope)
        if after is not None:
            self.file.put(after, place, waits=waits(after))
        if member is not None and self._ends(envelope, member):
            self.file.text(message_id, None)

    def _ends(self, envelope: Envelope, member: WindowMember) -> bool:
        """Whether a tombstone takes the text of a message as its window saw it."""
        if envelope.reason == "deleted":
            return self.forgets and member.version <= (envelope.entity_version or "")
        return envelope.reason in GONE
