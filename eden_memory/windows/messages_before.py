"""The messages right before a window: they explain a "yes" or a "there" that opens it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eden_memory.directory.own_sessions import whose
from eden_memory.directory.participants import Off
from eden_memory.forgotten import Marks
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.windows.session_state import StoredMessage
from eden_memory.windows.window_request import EarlierWindow, StoredWindow, WindowAudience, refs

WindowPlace = tuple[str, int]
"""A session and the number of a window in it."""


def place_before(window: StoredWindow) -> WindowPlace | None:
    """Return where the window before this one is; None for a session's first, and for texts that were added."""
    if window.seq == 1 or not window.messages or whose(window.session_id) is not None:
        return None
    return window.session_id, window.seq - 1


@dataclass(frozen=True, slots=True)
class EarlierWindows:
    """The windows before others, and their messages as they are now."""

    windows: Mapping[WindowPlace, StoredWindow | EarlierWindow] = field(
        default_factory=dict[WindowPlace, StoredWindow | EarlierWindow]
    )
    messages: Mapping[str, StoredMessage] = field(default_factory=dict[str, StoredMessage])
    most: int = 0
    """Messages of one window."""

    def explain(self, window: StoredWindow, off: Off) -> None:
        """Add to a requested window the messages before it, if the same people hear both.

        Messages of authors who are switched off by now are left out, whenever they were written.
        """
        earlier = self.windows.get(place_before(window) or ("", 0))
        asked, before = window.requested, earlier.requested if earlier else None
        if earlier is None or asked is None or before is None or _audience(asked) != _audience(before):
            return
        last = earlier.messages[-self.most :] if self.most else ()
        window.before = tuple(
            message
            for message in last
            if self._may_explain(message, asked) and not off.of(window.session_id, message.user_id)
        )
        window.requested = asked.model_copy(update={"before": refs(window.before)})

    def _may_explain(self, message: StoredMessage, asked: FormationRequested) -> bool:
        """Return whether a message stands as its window saw it, and everybody behind it takes part here."""
        now = self.messages.get(message.message_id)
        heard = message.user_id is None or message.user_id in asked.participants
        return heard and bool(message.text) and now is not None and _unchanged(message, now)


def _unchanged(message: StoredMessage, now: StoredMessage) -> bool:
    gone = now.deleted or now.forgotten or now.opted_out or now.missing or now.misread
    return not gone and (now.session_id, now.version) == (message.session_id, message.version)


def _audience(asked: FormationRequested | WindowAudience) -> tuple[object, ...]:
    return asked.scopes, asked.users, asked.private_users, asked.sharing, asked.shared_sessions


def sources_before(windows: Iterable[StoredWindow]) -> list[SourceMessage]:
    """Return the messages before windows, as forgetting knows them."""
    return [
        SourceMessage(
            message_id=message.message_id,
            version=message.version,
            session_id=window.session_id,
            user_id=message.user_id,
            time=message.time,
        )
        for window in windows
        for message in window.before
    ]


def forgotten_before(sources: Sequence[SourceMessage], marks: Marks) -> list[str]:
    """Return the messages that were forgotten while a batch was applied."""
    return [source.message_id for source in sources if marks.source_gone(source)]
