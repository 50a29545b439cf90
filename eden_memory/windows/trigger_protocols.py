"""What formation-trigger asks of its store, and tells those who count."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Protocol

from eden_memory.windows.session_state import Session, StoredMessage
from eden_memory.windows.trigger_batch import Counts
from eden_memory.windows.window_request import BatchWrite, StoredWindow


class TriggerWatch(Protocol):
    """Who counts what formation-trigger does."""

    def wrote(self, counts: Counts) -> None:
        """A batch is stored."""
        ...

    def waiting(self, partition: int, sessions: int) -> None:
        """So many sessions of a partition wait for a document."""
        ...


class TriggerStore(Protocol):
    """Where formation-trigger keeps messages, sessions and closed windows."""

    async def sessions(self, ids: Iterable[str], partition: int) -> dict[str, Session]:
        """The sessions with the messages that wait in them; one that has no document is of `partition`."""
        ...

    async def authors_among(
        self, session_id: str, users: Collection[str], besides: Collection[str]
    ) -> set[str]:
        """Which of the users wrote in a session, messages `besides` left out."""
        ...

    async def due(self, partition: int, time: datetime, most: int) -> list[str]:
        """Sessions of a partition that have gone cold or stale by `time`, the longest ago first."""
        ...

    async def unpublished(self, partition: int, after: str, most: int) -> list[str]:
        """Sessions of a partition with something in the outbox, by id, from behind the id `after` on."""
        ...

    async def waiting(self, partition: int) -> int:
        """How many sessions of a partition wait for a document."""
        ...

    async def messages(self, ids: Iterable[str]) -> dict[str, StoredMessage]:
        """Those of the messages that are known."""
        ...

    async def windows(self, formation_ids: Iterable[str]) -> dict[str, StoredWindow]:
        """Closed windows with their texts."""
        ...

    async def place(self, partition: int) -> int:
        """The last place given to a message of a partition; every write to the partition moves it on."""
        ...

    async def put(self, write: BatchWrite) -> int | None:
        """Store a batch if the partition's last place is still as it was seen; its last place now.

        None: somebody else was first, or a message is not as it was read any more: read anew. What stands together
        in the write changes together: a session that closes windows with the messages that the batch touched, its
        windows, and the formations that their members bear from then on (and whose text leaves the message); all
        other messages and sessions among themselves.
        """
        ...

    async def published(self, entries: Sequence[tuple[str, str]]) -> None:
        """Clear (session id, formation id) from the outboxes: they are confirmed."""
        ...
