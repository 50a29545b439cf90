"""Apply records to the state of one session. Pure.

In `memory_messages`, what waits has a place and what a window holds bears its formation (invariant
one-window-per-message).
"""

import hmac
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import blake2b, sha256
from sys import getsizeof
from typing import NamedTuple

from eden_memory.directory.participants import Audiences
from eden_memory.limits import MOST_SESSION_USERS
from eden_memory.schemas.events import MessageRecorded
from eden_memory.schemas.events.chat import participant_of, rules_of, settings_of
from eden_memory.windows.window_rule import Closed, Control, Limits, Pending, Waiting, weighted_tokens

REMEMBERED_CONTROLS = 50
STILL = timedelta(minutes=1)
"""How long the text of a formed message stays as an edit left it before it forms again."""
AGAIN_A_DAY = 5
"""How often an edited message forms again within a day."""
DAY = timedelta(days=1)


class Edit(NamedTuple):
    """The last edit of a message's text that forgot what had been formed from it."""

    version: str
    """Of the message, from the edit on."""
    up_to: str
    """The version up to which it is forgotten."""
    formed_in: str | None
    """The formation that had the earlier text; None: the message was deleted since."""


@dataclass(slots=True)
class StoredMessage:
    """A document of `memory_messages`."""

    message_id: str
    session_id: str | None
    version: str
    time: datetime
    role: str
    user_id: str | None
    text: str | None
    characters: int
    truncated: bool
    formation_id: str | None = None
    deleted: bool = False
    changed_after_formation: bool = False
    opted_out: bool = False
    """Its session or author is switched off: nothing of it is kept."""
    forgotten: bool = False
    """Forgotten by hand: no version of it is formed, and none keeps its text."""
    place: int | None = None
    """While it waits for its window, and after: its place in the partition."""
    since: datetime | None = None
    """When it began to wait, if that was not at `time`."""
    created_at: datetime | None = None
    """The application's own time, where it gave one."""
    edited_at: datetime | None = None
    """When its text was changed last, if it was."""
    missing: bool = False
    """A merge did not find its document any more."""
    mapping: str | None = None
    """The version of the field mapping that read it."""
    misread: bool = False
    """Formed as an earlier mapping read it, and read again since."""
    same: str | None = None
    """The keyed hash of its session, role, author and text; it goes with the text's erasure."""
    alias_of: str | None = None
    """The id under which the message was known before the application wrote it again; it alone is in a window."""
    digest: str | None = None
    """Of the text that was formed, or waits; erased with it. What leaves the text as it is, is no edit."""
    edit: Edit | None = None
    """Of its text, after it was formed."""
    formed_again: tuple[datetime, ...] = ()
    """When windows closed over edits of it: the last few."""
    replaces: tuple[str, str | None] | None = None
    """Version and formation as read, which this takes the place of; None: the message is new. Not stored."""

    @property
    def participant(self) -> str | None:
        """The user who takes part in the session by this message, if any."""
        return participant_of(self.role, self.user_id)

    @property
    def written_at(self) -> datetime:
        """Return when the message was written; prompts show this time, from which `tomorrow` counts."""
        return min(self.created_at or self.time, self.time)

    @property
    def said_at(self) -> datetime:
        """Return when the text was said; the newer text wins."""
        return self.edited_at or self.written_at

    @property
    def forms_alone(self) -> bool:
        """Tell whether it was formed before its text was edited: it is to have a window of its own."""
        return self.edit is not None and self.edit.formed_in is not None

    @property
    def forms_again_at(self) -> datetime:
        """Return when a message that an edit has forgotten forms again, if it is not edited until then."""
        still = (self.edited_at or self.time) + STILL
        full = len(self.formed_again) >= AGAIN_A_DAY
        return max(still, self.formed_again[-AGAIN_A_DAY] + DAY) if full else still

    @property
    def formed_again_too_often(self) -> bool:
        """Tell whether it waits longer than its text has to be still."""
        return self.forms_again_at > (self.edited_at or self.time) + STILL

    @classmethod
    def of(
        cls, event: MessageRecorded, time: datetime, known: "StoredMessage | None" = None
    ) -> "StoredMessage":
        """Build a message recorded at `time`; a message that was known keeps the time at which it was first seen."""
        return cls(
            event.message_id,
            event.session_id,
            event.version,
            time if known is None else known.time,
            event.role,
            event.user_id,
            event.text or None,
            event.characters,
            event.truncated,
            created_at=event.created_at,
            edited_at=event.edited_at or (None if known is None else known.edited_at),
            mapping=event.mapping,
            digest=digest_of(event),
            edit=None if known is None else known.edit,
            formed_again=() if known is None else known.formed_again,
        )


@dataclass(slots=True)
class PendingDeletion:
    """A formed message that was deleted, and may be written again until `due`; or whose text was edited."""

    message_id: str
    version: str
    """Of the deletion; up to it, what rests on the message is hidden."""
    same: str | None
    due: datetime
    """Of an edit: its time."""
    asked: bool = False
    """Its time has passed, and its erasure is requested."""
    edited: bool = False
    """The text was edited: forgetting is requested with the edit, and nothing is to be written again."""


@dataclass(slots=True)
class UnpublishedWindow:
    """A closed window that is not known to be published."""

    formation_id: str
    seq: int
    requested: bool = False
    """Its request is written; False while the session waits."""


@dataclass(slots=True)
class Session:
    """A session as stored, with what this batch does to it."""

    session_id: str
    partition: int
    limits: Limits
    stored: bool = False
    """Whether it has a document: what only waits needs none."""
    seq: int = 0
    formed_to: int = 0
    """Messages with a place up to here do not wait any more."""
    held: dict[str, StoredMessage] = field(default_factory=dict[str, StoredMessage])
    """The messages that wait, in order."""
    outbox: list[UnpublishedWindow] = field(default_factory=list[UnpublishedWindow])
    waits_for: str | None = None
    controls: list[str] = field(default_factory=list[str])
    """The last control records that were carried out: a redelivery finds itself here."""
    last_control: Control | None = None
    """The newest of them: what was written before it is formed, however late it comes."""
    late: bool = False
    """Whether something waits that was written before `last_control`: the next Watermark closes it."""
    audiences: Audiences = field(default_factory=Audiences)
    users: tuple[str, ...] = ()
    """Authors seen, for sessions that the application does not describe."""
    due_at: datetime | None = None
    """As stored: it is not cold before, and looked at again then."""
    closed: list[tuple[Closed, list[StoredMessage]]] = field(
        default_factory=list[tuple[Closed, list[StoredMessage]]]
    )
    """Windows that this batch closed, with what they hold."""
    deletions: list[PendingDeletion] = field(default_factory=list[PendingDeletion])
    """Deleted and edited messages whose memory is hidden until it is erased, or they are written again."""
    changed: bool = False
    """Whether its document is to be written: not for a message that only joins those that wait."""
    text_bytes: int = 0
    """Memory of the texts that wait."""
    pending: Pending = field(init=False)
    edited: dict[str, StoredMessage] = field(init=False)
    """Of those that wait, the ones that were formed before: each is to have a window of its own."""

    def __post_init__(self) -> None:
        self.edited = {name: message for name, message in self.held.items() if message.forms_alone}
        self.pending = Pending(
            self.limits,
            [
                _waiting(message, message.since or message.time)
                for name, message in self.held.items()
                if name not in self.edited
            ],
        )
        self.text_bytes = sum(_text_bytes(message) for message in self.held.values())
        self._see(*(message.participant for message in self.held.values()))

    def hold(self, message: StoredMessage, time: datetime, place: int, *, judge: bool = True) -> None:
        """Let a message wait for its window; one that waits already keeps its place.

        `judge`: whether its new version may close a window. Where a mapping is corrected message by message, the
        others of the window are still to come.
        """
        name, before = message.message_id, self.held.get(message.message_id)
        if before is None:
            message.place, message.since = place, time if time != message.time else None
        else:
            message.place, message.since = before.place, before.since
        if message.forms_alone:
            self._hold_edited(message, before)
            return
        waiting = _waiting(message, time)
        closed = self.pending.add(waiting) if before is None else self.pending.edit(waiting, judge=judge)
        while closed and closed[0].messages[-1].message_id != name and before is None:
            self._close(closed.pop(0))  # it went cold, or was complete, before this message
        self.held[name] = message
        self.text_bytes += _text_bytes(message) - (_text_bytes(before) if before is not None else 0)
        if closed:
            self._close(*closed)
        elif before is None and self.last_control and self.last_control.follows(message.version, time):
            self.late = self.changed = True
        elif before is not None and message.participant != before.participant:
            self.changed = True  # whoever wrote it before is remembered by the session alone
        self.see(message.participant)

    def _hold_edited(self, message: StoredMessage, before: StoredMessage | None) -> None:
        """Let a message that was formed before wait until its text is still, beside the others."""
        self.held[message.message_id] = self.edited[message.message_id] = message
        self.text_bytes += _text_bytes(message) - (_text_bytes(before) if before is not None else 0)
        self.changed = True
        self.see(message.participant)

    def drop(self, message_id: str) -> None:
        """Take a message out of those that wait; its author stays known."""
        self.edited.pop(message_id, None)
        gone = self.held.pop(message_id, None)
        if gone is not None:
            self.text_bytes -= _text_bytes(gone)
            self.pending.remove(message_id)
            self.changed = True

    def admits(self, user_id: str | None) -> bool:
        """Tell whether the session can have this author: a known one always, a new one up to a bound."""
        return user_id is None or len(self.users) < MOST_SESSION_USERS or user_id in self.users

    def see(self, user_id: str | None) -> None:
        """Remember an author; a new one is stored with this batch, so that readers know who is in the session."""
        if user_id is not None and user_id not in self.users and self.admits(user_id):
            self._see(user_id)
            self.changed = True

    def unsee(self, users: Collection[str]) -> None:
        """Take back authors that only a wrong field mapping named."""
        left = tuple(user for user in self.users if user not in users)
        if left != self.users:
            self.users, self.changed = left, True

    def passed(self, time: datetime, version: str = "") -> None:
        """Close what is due once everything up to `time`, and before `version`, is recorded."""
        if self.late and self.last_control is not None and self.last_control.time <= time:
            self._close(*(self.pending.late(self.last_control, time) if self.held else ()))
            self.late, self.changed = False, True
        self._close(*self.pending.passed(time, version))
        before = [message for message in self.edited.values() if not version or message.version < version]
        still = [message for message in before if message.forms_again_at <= time]
        self._close_edited(still, time)
        if self.due_at is not None and self.due_at <= time:
            self.changed = True

    def due(self) -> datetime | None:
        """Return when the session is due, if no message comes before."""
        if self.late and self.last_control is not None:
            return self.last_control.time
        waiting = [self.pending.due(), *(deletion.due for deletion in self.deletions if not deletion.asked)]
        waiting += [message.forms_again_at for message in self.edited.values()]
        return min((time for time in waiting if time is not None), default=None)

    def look_at(self) -> datetime | None:
        """Return when a Watermark first changes something, as the session stands now."""
        due = self.due()
        return self.due_at if due is None or (self.due_at is not None and self.due_at < due) else due

    def control(self, asked: Control) -> None:
        """Carry out a request for a window; the same record again changes nothing."""
        if asked.control_id not in self.controls:
            self.carried_out(asked)
            self._close(*self.pending.asked(asked))
        elif self.last_control is None or self.last_control.version < asked.version:
            self.last_control, self.changed = asked, True  # carried out before this state was restored

    def judge(self, time: datetime, version: str) -> None:
        """Close a window that is due at `time`. Repeating it is harmless, so nothing remembers it."""
        self._close(*self.pending.judged(time, version))

    def carried_out(self, asked: Control) -> None:
        """Remember a control record; messages that come after it and were written before are late."""
        self.controls = [*self.controls[1 - REMEMBERED_CONTROLS :], asked.control_id]
        if self.last_control is None or self.last_control.version < asked.version:
            self.last_control = asked
        self.changed = True

    def give_up(self, time: datetime) -> None:
        """Close a window over everything that waits: the session is switched off."""
        if self.held:
            self._close(*self.pending.asked(Control("asked", "", "", time, None)))
            self._close_edited(list(self.edited.values()), time)

    def stays_open(self, messages: Iterable[tuple[MessageRecorded, datetime]]) -> bool:
        """Tell whether messages, each recorded at a time, are of known authors and would close no window."""
        waiting: list[Waiting] = []
        for event, time in messages:
            if event.participant is not None and event.participant not in self.users:
                return False
            tokens = weighted_tokens(event.text, event.role)
            waiting.append(Waiting(event.message_id, event.version, time, tokens))
        return self.waits_for is None and self.pending.stays_open(waiting)

    def closes(self, message_id: str) -> bool:
        """Tell whether a window that this batch closed has the message."""
        return any(
            message.message_id == message_id for closed, _ in self.closed for message in closed.messages
        )

    def needs_writing(self) -> bool:
        """Tell whether something changed, or its stored due time would be too late."""
        if not self.changed:
            due = self.due()
            self.changed = due is not None and (self.due_at is None or due < self.due_at)
        return self.changed

    def written(self) -> None:
        """Note that the changes of this batch are stored."""
        if self.changed:
            self.stored, self.due_at = True, self.due()
        self.closed, self.changed = [], False

    def _close_edited(self, messages: Iterable[StoredMessage], time: datetime) -> None:
        for message in messages:
            del self.edited[message.message_id]
            message.formed_again = (*message.formed_again, time)[-AGAIN_A_DAY:]
            self._close(Closed((_waiting(message, time),), "edited", time))

    def _close(self, *windows: Closed) -> None:
        for window in windows:
            members = [self.held.pop(message.message_id) for message in window.messages]
            self.text_bytes -= sum(map(_text_bytes, members))
            last = max((message.place for message in window.messages), default=self.formed_to)
            first = min((message.place or 0 for message in self.held.values()), default=last + 1)
            self.formed_to = max(self.formed_to, min(last, first - 1))
            self.closed.append((replace(window, users=self.users), members))
            self.late, self.changed = False, True

    def _see(self, *users: str | None) -> None:
        for user in users:
            if user is not None and user not in self.users:
                self.users = (*self.users, user)


def _text_bytes(message: StoredMessage) -> int:
    return getsizeof(message.text)


def _waiting(message: StoredMessage, time: datetime) -> Waiting:
    tokens = weighted_tokens(message.text or "", message.role)
    return Waiting(message.message_id, message.version, time, tokens, message.place or 0)


class Messages:
    """The messages that a batch touches, as stored and as the batch leaves them."""

    def __init__(self, stored: Mapping[str, StoredMessage]) -> None:
        self.known = dict(stored)
        self.touched: dict[str, StoredMessage] = {}

    def put(self, message: StoredMessage) -> None:
        """Set a message's new state, to be written in place of the one that was read."""
        name = message.message_id
        known = self.known.get(name)
        if name in self.touched:
            message.replaces = self.touched[name].replaces
        else:
            message.replaces = (known.version, known.formation_id) if known is not None else None
        self.known[name] = self.touched[name] = message


def miss(known: StoredMessage | None, version: str) -> StoredMessage | None:
    """Return a message marked as missing at `version`; None if that says nothing new."""
    if known is None or known.deleted or known.missing or known.version > version:
        return None
    return replace(known, missing=True)


def record(session: Session, messages: Messages, event: MessageRecorded, time: datetime, place: int) -> None:
    """Apply a message as it is since its version; `place` is free to be taken."""
    known = messages.known.get(event.message_id)
    if known is not None and known.forgotten:
        forget(session, messages, event, time)
        return
    if known is not None and known.version > event.version:
        return
    if known is not None and edits(event, known):
        known = replace(superseded(known, event), opted_out=False)
        if not (event.text and session.limits.forms_edited):
            messages.put(known)
            if known.session_id == session.session_id:  # what is stored together with the message
                session.see(event.participant)
            return
    elif known is not None and known.formation_id is not None and not follows_deletion(known, event.version):
        if known.version < event.version or corrects(event, known):
            messages.put(changed_after(known, event, users=session.users))
        return
    waits = session.held.get(event.message_id)
    if waits is not None and waits.version == event.version and not corrects(event, waits):
        return  # a redelivery
    left = waits is None and known is not None and has_left(known, event)
    if left or stays_out(known, event):
        return  # a redelivery, too: where it went is in a record that follows
    message = StoredMessage.of(event, time, known)
    messages.put(message)
    if event.text:
        session.hold(message, time, place, judge=event.origin != "reread")
    else:  # there is nothing to wait for
        session.drop(event.message_id)
        session.see(event.participant)


def stays_out(known: StoredMessage | None, event: MessageRecorded) -> bool:
    """Tell whether a message was left out while memory was off, and a record of it reports no later edit of its text.

    Whatever reads or fills the collection again gives its documents newer versions.
    """
    if known is None or not known.opted_out:
        return False
    edited = event.origin == "stream" and event.edited_at is not None
    return not edited or known.version == event.version


def has_left(known: StoredMessage, event: MessageRecorded) -> bool:
    """Tell whether a message was taken out of its session as it stands in this record: it moved to another one."""
    same = known.version == event.version and known.session_id == event.session_id
    return same and known.place is None and known.text is not None and not corrects(event, known)


def digest_of(event: MessageRecorded) -> str:
    """Return the digest of a text, keyed with its message: it says nothing about texts of other messages."""
    key = event.message_id.encode(errors="surrogatepass")[:64]
    return blake2b(event.text.encode(errors="surrogatepass"), digest_size=12, key=key).hexdigest()


def edits(event: MessageRecorded, known: StoredMessage) -> bool:
    """Tell whether the application changed the text of a formed message.

    Only the change stream says so: a merge and a corrected field mapping may read a text differently that nobody
    has edited.
    """
    formed = known.formation_id is not None and not known.deleted and known.version < event.version
    written = event.origin == "stream" and event.edited_at is not None
    return formed and written and known.digest != digest_of(event)


def forgets_up_to(event: MessageRecorded, known: StoredMessage | None) -> str | None:
    """Return the version up to which an edit forgets a formed message; None if it forgets nothing.

    A redelivery says so again: the request to forget may not have been published.
    """
    if known is None:
        return None
    if edits(event, known):
        return known.version
    again = known.edit is not None and known.edit.version == event.version
    return known.edit.up_to if known.edit is not None and again else None


def superseded(known: StoredMessage, event: MessageRecorded) -> StoredMessage:
    """Return a formed message after an edit of its text, as far as the edit forms nothing."""
    return replace(
        known,
        version=event.version,
        edited_at=event.edited_at,
        changed_after_formation=True,
        missing=False,
        mapping=event.mapping,
        misread=False,
        digest=digest_of(event),
        edit=Edit(event.version, known.version, known.formation_id),
    )


def follows_deletion(known: StoredMessage, version: str) -> bool:
    """Tell whether a record is of another message, written under the `_id` of a deleted message."""
    return known.deleted and known.version < version


def changed_after(
    formed: StoredMessage, event: MessageRecorded, users: Collection[str] = ()
) -> StoredMessage:
    """Return a formed message after a newer record of it.

    `users`: who takes part in the session; an answer that bears the id of one was read as now, in effect.
    Forgetting finds a message by the author that a corrected mapping names.
    """
    corrected = event.origin == "reread" or corrects(event, formed)
    if corrected:
        formed = replace(formed, role=event.role, user_id=event.user_id, created_at=event.created_at)
    if settings_of(event.mapping) == settings_of(formed.mapping) and event.user_id in users:
        corrected = corrected and event.participant is not None
    return replace(
        formed,
        version=event.version,
        changed_after_formation=True,
        missing=False,
        mapping=event.mapping,
        misread=formed.misread or corrected,
    )


def corrects(event: MessageRecorded, known: StoredMessage) -> bool:
    """Tell whether another mapping read the message differently."""
    if known.mapping is None or event.mapping in (None, known.mapping):
        return False
    return takes_back_author(event, known) or (
        (event.session_id, event.role, event.user_id, event.created_at)
        != (known.session_id, known.role, known.user_id, known.created_at)
    )


def takes_back_author(event: MessageRecorded, known: StoredMessage) -> bool:
    """Tell whether earlier rules took the author of an answer for a user of the session, and these do not."""
    named = known.user_id is not None and known.participant is None
    return named and rules_of(event.mapping) != rules_of(known.mapping)


def opt_out(session: Session, messages: Messages, event: MessageRecorded, time: datetime) -> bool:
    """Record a message without its text: somebody is, or was, switched off. False: a newer version is known."""
    known = messages.known.get(event.message_id)
    if known is not None and known.version > event.version:
        return False
    session.drop(event.message_id)
    if known is not None and known.formation_id is not None:
        if edits(event, known):
            messages.put(replace(superseded(known, event), digest=None))
        elif known.version < event.version:
            messages.put(replace(known, version=event.version, changed_after_formation=True))
    elif known is None or known.version < event.version or not known.opted_out:
        message = StoredMessage.of(event, time, known)
        messages.put(replace(message, text=None, digest=None, opted_out=True))
    return True


def forget(session: Session, messages: Messages, event: MessageRecorded, time: datetime) -> None:
    """Record a forgotten message without its text. It keeps the time at which it was first seen."""
    session.drop(event.message_id)
    session.see(event.participant)
    known = messages.known.get(event.message_id)
    if known is not None and known.forgotten and known.version >= event.version:
        return
    message, edited = known, known is not None and known.version < event.version
    if message is None or (edited and message.formation_id is None):
        message = StoredMessage.of(event, time, message)
    version, formed = max(message.version, event.version), message.formation_id is not None
    changed = message.changed_after_formation or (formed and edited)
    messages.put(_textless(replace(message, version=version, changed_after_formation=changed)))


def _textless(message: StoredMessage) -> StoredMessage:
    return replace(message, text=None, same=None, digest=None, place=None, since=None, forgotten=True)


def hash_of(secret: bytes, event: MessageRecorded) -> str | None:
    """Return the keyed hash by which a message that is written again is known; None for one without text."""
    if not event.text:
        return None
    parts = (event.session_id, event.role, event.user_id or "", event.text)
    said = b"message\x00" + b"\x00".join(part.encode(errors="surrogatepass") for part in parts)
    return hmac.new(secret, said, sha256).hexdigest()


def write_again(
    session: Session, messages: Messages, event: MessageRecorded, time: datetime, same: str | None
) -> bool:
    """Take a message for one that was deleted just before, in the order of deletion; False if there is none such.

    It keeps its first id, window and memory; a new id becomes an alias of the first. A record that names the first
    id is taken at its word: this stage wrote it. An id that a window holds never becomes an alias: applications
    that number the messages of a session use their ids again for other texts.
    """
    known = messages.known.get(event.message_id)
    unformed = known is not None and (known.formation_id, known.alias_of) == (None, None)
    if known is not None and not known.deleted and not (unformed and event.first_id is not None):
        return False
    own = event.message_id if known is None else known.alias_of or event.message_id
    in_a_window = known is not None and not unformed and known.alias_of is None
    if in_a_window and event.first_id not in (None, own):
        return False
    alike = [
        deletion
        for deletion in session.deletions
        if (not in_a_window or deletion.message_id == own)
        and _is_still_deleted(messages.known.get(deletion.message_id), deletion)
        and (
            deletion.message_id == event.first_id
            or (same is not None and deletion.same == same and time <= deletion.due)
        )
    ]
    deletion = min(alike, key=lambda deletion: deletion.message_id != own, default=None)
    first = messages.known.get(event.first_id or (deletion.message_id if deletion is not None else ""))
    if first is None or first.formation_id is None or first.forgotten:
        return False
    named = event.first_id is not None  # after a restore, its window may have the version of this record
    if first.version > event.version or (first.version == event.version and not named):
        return False
    if deletion is not None:
        session.deletions.remove(deletion)
        session.changed = True
    again = replace(
        StoredMessage.of(event, time, first),
        text=None,
        edited_at=first.edited_at,
        formation_id=first.formation_id,
        same=same,
        digest=digest_of(event.model_copy(update={"message_id": first.message_id})),
    )
    messages.put(replace(again, message_id=first.message_id, created_at=first.created_at))
    if event.message_id != first.message_id:
        session.drop(event.message_id)
        messages.put(replace(again, time=time, same=None, digest=None, alias_of=first.message_id))
    return True


def _is_still_deleted(known: StoredMessage | None, deletion: PendingDeletion) -> bool:
    """Tell whether no other message was written under the id of a deleted one since."""
    return known is not None and known.deleted and known.version == deletion.version


def delete(
    messages: Messages,
    message_id: str,
    version: str,
    time: datetime,
    session_id: str | None,
    *,
    forgotten: bool = False,
) -> None:
    """Apply the deletion of a message: leave it out, or note the deletion if it is formed already.

    `forgotten`: someone asked to forget the message, so newer versions of it are left out too.
    """
    known = messages.known.get(message_id)
    if known is not None and (known.version > version or (known.deleted and known.version == version)):
        if forgotten and not known.forgotten:
            messages.put(_textless(known))
        return
    messages.put(
        StoredMessage(
            message_id=message_id,
            session_id=known.session_id if known else session_id,
            version=version,
            time=known.time if known else time,
            role=known.role if known else "other",
            user_id=known.user_id if known else None,
            text=None,
            characters=0,
            truncated=False,
            formation_id=known.formation_id if known else None,
            deleted=True,
            forgotten=forgotten or (known is not None and known.forgotten),
            changed_after_formation=known is not None and known.formation_id is not None,
            created_at=known.created_at if known else None,
            mapping=known.mapping if known else None,
            edit=known.edit._replace(formed_in=None) if known and known.edit else None,
            formed_again=known.formed_again if known else (),
        )
    )


def leave(session: Session | None, messages: Messages, message_id: str, before: str) -> None:
    """Take a message out of a session that it left before version `before`; if it came back since, it stays."""
    waits = session.held.get(message_id) if session is not None else None
    if session is None or waits is None or waits.version >= before:
        return
    session.drop(message_id)
    known = messages.known.get(message_id)
    if known is not None and known.session_id == session.session_id and known.place is not None:
        messages.put(replace(known, place=None))


def formation_id(session_id: str, seq: int, members: Sequence[StoredMessage]) -> str:
    """Name a window by its session, its place there and its messages, so that two workers mean the same window."""
    digest = blake2b(digest_size=6)
    for member in members:
        digest.update(f"{member.message_id}@{member.version}\n".encode())
    return f"{session_id}/{seq}-{digest.hexdigest()}"
