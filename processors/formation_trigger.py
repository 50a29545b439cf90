"""chat.messages → memory.formations, memory.forgotten: cuts sessions into windows, a batch at a time.

It reads a batch of a partition, applies it in memory, and stores it (invariant one-batch-a-partition). Then it
publishes the windows in the sessions' outboxes, and clears them. A redelivered batch finds all done.
"""

from asyncio import Event, Lock, gather, timeout
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, ExitStack
from datetime import datetime, timedelta

from eden_memory.directory.participants import Directory
from eden_memory.forgotten import ForgottenMarks, Marks, ids_of
from eden_memory.metrics import TRIGGER_WAITING
from eden_memory.schemas.events import Watermark
from eden_memory.stages.gathering import Gathering
from eden_memory.stages.stage import Decision, Delivery, Emit, Erase, Gather, Retry
from eden_memory.usage.budget_rules import WindowBudgets
from eden_memory.windows.formation_requests import (
    MOST_BEFORE,
    BatchWrite,
    Closing,
    FormationRequests,
    StoredWindow,
    TriggerStore,
    forgotten_before,
    publishable,
    sources_before,
)
from eden_memory.windows.session_state import Messages, Session
from eden_memory.windows.trigger_batch import (
    AskedErasure,
    Batch,
    CachedSessions,
    Grace,
    SessionsAside,
    asked_again,
    authors,
    erased,
    forgettable,
    is_reread,
    messages_named,
    misnamed,
    named_on_answers,
    newest_time,
    only_join,
    session_named,
    sessions_named,
)

MOST_DUE = 500
"""Sessions that one watermark closes, and as many that it looks up again; the next one takes the rest."""
MANY_DUE = 100
"""Of so many windows, those that are stored are published before any later record is applied.

Behind a backfill all sessions are due, in every partition, and watermarks stand in a row. This bounds the windows in
memory; so does the rule that only one partition closes so many sessions at a time, and publishes them first."""
PUBLISHING_SECONDS = 10.0
"""After which another partition closes as many, though this one's are not published: it may have been revoked."""
MOST_CONFLICTS = 10
"""How often a batch is read anew because somebody else wrote first, before it is tried again later."""
ELSEWHERE = -1
"""The partition of a session that is not known to be of this one."""


class FormationTrigger:
    """Cuts sessions into windows.

    `forgets`: whether memory forgets messages that the application deletes. Without `gathering`, every batch is
    processed at once. `most_before`: messages before a window that explain it. `grace`: how long the erasure of a
    deleted message waits in case the message is written again, which a hash keyed with `secret` tells.
    """

    def __init__(
        self,
        store: TriggerStore,
        directory: Directory,
        settings_version: str,
        forgotten: ForgottenMarks,
        *,
        forgets: bool = True,
        budgets: WindowBudgets | None = None,
        gathering: Gathering | None = None,
        most_before: int = MOST_BEFORE,
        grace: timedelta = timedelta(0),
        secret: bytes = b"",
    ) -> None:
        self._grace, self._secret = grace, secret
        self._graces: dict[int, Grace] = {}
        self._gathering = gathering
        self._store, self._directory = store, directory
        self._requests = FormationRequests(store, directory, budgets, settings_version, most_before)
        self._forgotten, self._forgets = forgotten, forgets
        self._cached: dict[int, CachedSessions] = {}
        self._confirmed: dict[int, list[tuple[str, str]]] = {}
        self._looked_at: dict[int, str] = {}
        self._aside = SessionsAside()
        self._closing_many, self._many_published = Lock(), Event()
        self._many_published.set()

    async def __call__(self, deliveries: Sequence[Delivery]) -> Decision | Gather | Retry:
        """Process one batch of one partition, cut where it must be, unless it may wait for more.

        Forgetting stores its marks before it looks for messages, and this stores messages before it looks for
        marks again: so one of the two finds what the other has stored. Marks that came meanwhile have the batch
        applied once more, which leaves the forgotten messages without a text.
        """
        if (seconds := self._may_wait(deliveries)) > 0:
            return Gather(seconds)
        try:
            with ExitStack() as unpublished:
                decision = await self._process(deliveries, unpublished)
                if isinstance(decision, Decision):
                    unpublished.pop_all()
                return decision
        except BaseException:  # what is cached has moved on: the next attempt waits for no more records
            self._cached.pop(deliveries[0].partition, None)
            raise

    async def _process(self, deliveries: Sequence[Delivery], unpublished: ExitStack) -> Decision | Retry:
        """Process a batch; `unpublished` is closed where nothing of it will be published."""
        partition, conflicts = deliveries[0].partition, 0
        if deliveries[0].asks_anew:
            self._aside.lift(session_named(deliveries[0]))
        refused: dict[str, str] = {}
        left = self._accepted(deliveries, refused)
        sent: list[Emit | Erase] = []
        asked: dict[AskedErasure, datetime] = {}
        ready: dict[str, StoredWindow] = {}
        many = False
        named = forgettable(deliveries)
        marks = await self._marks(named)
        while left:
            cached = await self._take(partition)
            batch = await self._read(cached, left, marks)
            left = self._accepted(left, refused)
            async with AsyncExitStack() as turn:
                being_published = {window.session_id for window in ready.values()}
                taken = await self._apply(batch, cached, left, being_published, None if many else turn)
                closing = await self._requests.close(batch)
                written = await self._write(batch, cached, closing, newest_time(left[:taken]))
                if written:
                    ready |= await self._ready(batch, closing)
                if len(ready) >= MANY_DUE and not many:
                    many = True
                    self._many_published.clear()
                    unpublished.callback(self._many_published.set)
            if written:
                self._cached[partition] = cached
                refused |= batch.refused
                self._accepted(left[:taken], refused)  # those that could not be stored
                sent += batch.sent
                asked |= batch.asked
                if len(ready) >= MANY_DUE:
                    deliveries, left = _up_to(left[taken - 1], deliveries), left[:taken]
                left = self._accepted(left[taken:], refused)
                if left or (now := await self._marks(named)) == marks:
                    continue
                refused.clear()
                marks, left = now, self._accepted(deliveries, refused)
            if (conflicts := conflicts + 1) > MOST_CONFLICTS:
                return Retry("a session was changed meanwhile, again and again", after=1.0)
        await self._erase_forgotten_before(ready.values())
        names = [(window.session_id, name) for name, window in ready.items()]
        events = [*sent, *(emit for window in ready.values() for emit in _outgoing(window))]
        remember = self._remember(partition, names, asked, many=many)
        return Decision(events, covers=len(deliveries), published=remember, refused=refused)

    def _may_wait(self, deliveries: Sequence[Delivery]) -> float:
        """Return for how many seconds these records may wait for more; 0: not at all."""
        cached = self._cached.get(deliveries[0].partition)
        if cached is None or self._gathering is None:
            return 0.0
        left = self._gathering.left(deliveries)
        return left if left > 0 and only_join(deliveries, cached) else 0.0

    def _accepted(self, deliveries: Sequence[Delivery], refused: dict[str, str]) -> Sequence[Delivery]:
        """Return the records whose sessions are not set aside; `refused` gets the others, with the reason."""
        if not self._aside:
            return deliveries
        accepted: list[Delivery] = []
        for delivery in deliveries:
            if (reason := self._aside.reason(session_named(delivery))) is None:
                accepted.append(delivery)
            else:
                refused[delivery.id] = reason
        return accepted

    async def _take(self, partition: int) -> CachedSessions:
        """Take the partition's cache out: only a batch that was stored puts it back."""
        cached = self._cached.pop(partition, None)
        if confirmed := self._confirmed.pop(partition, None):
            await self._store.published(confirmed)
            if cached is not None:
                cached.published(confirmed)
        return cached if cached is not None else CachedSessions(await self._store.place(partition))

    async def _marks(self, named: Set[tuple[str, str]]) -> Marks:
        return (await self._forgotten.among(named)).asked() if named else Marks()

    async def _read(self, cached: CachedSessions, deliveries: Sequence[Delivery], marks: Marks) -> Batch:
        """Read what the records refer to; sessions that cannot be read are set aside."""
        partition = deliveries[0].partition
        named = dict.fromkeys(sessions_named(deliveries))
        known, sessions = await gather(
            self._store.messages(messages_named(deliveries)), self._sessions(cached, named, partition)
        )
        held = {message.session_id for message in known.values() if message.session_id is not None}
        if unread := held - set(named):
            sessions |= await self._sessions(cached, unread, ELSEWHERE)
        firsts = {message.alias_of for message in known.values() if message.alias_of is not None}
        firsts |= {deletion.message_id for session in sessions.values() for deletion in session.deletions}
        known |= await self._store.messages(firsts - set(known))
        batch = Batch(partition, sessions, Messages(known), self._forgets, cached.place, marks=marks)
        batch.grace = self._graces.setdefault(partition, Grace(self._grace, self._secret))
        batch.asked_again = asked_again(deliveries)
        await self._take_back_authors(batch, deliveries)
        await self._look_who_is_off(batch, deliveries)
        return batch

    async def _take_back_authors(self, batch: Batch, deliveries: Sequence[Delivery]) -> None:
        """Remove authors of a session that only a wrong field mapping named."""
        corrected = [delivery.key for delivery in deliveries if is_reread(delivery)]
        for name, users in misnamed(deliveries, batch.messages.known).items():
            if (session := batch.sessions.get(name)) is not None and session.partition == batch.partition:
                session.unsee(users - await self._store.authors_among(name, users, corrected))

    async def _sessions(
        self, cached: CachedSessions, ids: Iterable[str], partition: int
    ) -> dict[str, Session]:
        """Return sessions as stored, without those set aside; one that has no document is of `partition`."""
        wanted = [name for name in ids if self._aside.reason(name) is None]
        found = cached.find(wanted)
        unread = [name for name in wanted if name not in found] if len(found) < len(wanted) else []
        if not unread:
            return found
        read = await self._store.sessions(unread, partition)
        self._aside.add(set(unread) - set(read), "read")
        return found | read

    async def _look_who_is_off(self, batch: Batch, deliveries: Sequence[Delivery]) -> None:
        if self._directory.switches:
            own = batch.own()
            batch.off = await self._directory.off(authors(own, deliveries), named_on_answers(own, deliveries))

    async def _apply(
        self,
        batch: Batch,
        cached: CachedSessions,
        deliveries: Sequence[Delivery],
        ready: Set[str],
        turn: AsyncExitStack | None,
    ) -> int:
        """Apply records, and return how many: at least one. `ready`: sessions about to be published.

        `turn` holds back other partitions that have many sessions to close; a batch that closes many ends with them.
        None: others wait for this batch already.
        """
        for index, delivery in enumerate(deliveries):
            if not batch.takes(delivery):
                return index
            many = False
            if type(delivery.event) is Watermark:  # asked of every record
                many = await self._add_due(batch, cached, delivery.event, ready, turn)
                await self._look_who_is_off(batch, deliveries)
            batch.apply(delivery)
            if many:
                return index + 1
        return len(deliveries)

    async def _add_due(
        self,
        batch: Batch,
        cached: CachedSessions,
        event: Watermark,
        ready: Set[str],
        turn: AsyncExitStack | None,
    ) -> bool:
        """Read what goes cold by then, and, in turn, what waits or was left unpublished; tell whether it is much."""
        partition = batch.partition
        due, left, waiting = await gather(
            self._store.due(partition, event.time, MOST_DUE),
            self._store.unpublished(partition, self._looked_at.get(partition, ""), MOST_DUE),
            self._store.waiting(partition),
        )
        self._looked_at[partition] = left[-1] if len(left) == MOST_DUE else ""
        named = dict.fromkeys([*due, *(name for name in left if name not in ready)])
        many = len(named) >= MANY_DUE
        if many and turn is not None:
            await turn.enter_async_context(self._closing_many)
            try:
                async with timeout(PUBLISHING_SECONDS):
                    await self._many_published.wait()
            except TimeoutError:
                self._many_published.set()
        unread = [name for name in named if name not in batch.sessions]
        batch.add(await self._sessions(cached, unread, partition))
        deletions = (deletion for session in batch.own() for deletion in session.deletions)
        if erasing := {("message", deletion.message_id) for deletion in deletions if deletion.asked}:
            batch.erasing = await self._forgotten.among(erasing)
        TRIGGER_WAITING.labels(str(partition)).set(waiting)
        return many

    async def _write(
        self, batch: Batch, cached: CachedSessions, closing: Closing, newest: datetime | None
    ) -> bool:
        """Store what the batch did; False: somebody else was first, read anew. `newest`: its last message's time."""
        own = batch.own()
        write = BatchWrite(batch.partition, cached.place, batch.place, closing=list(closing.writes.values()))
        write.forgotten, write.superseded = batch.forgotten, batch.superseded
        write.sessions = [
            session for session in own if session.needs_writing() and session.session_id not in closing.writes
        ]
        for message in batch.messages.touched.values():
            of = closing.writes.get(message.session_id or "")
            (write.messages if of is None else of.messages).append(message)
        if write.empty:
            if await self._is_old(cached, batch):
                return False
        elif (place := await self._store.put(write)) is None:
            return False
        else:
            cached.place = place
        if write.failed:
            self._take_out(write.failed, batch, cached, closing)
            own = batch.own()
        for session in own:
            session.written()
        cached.keep(own, newest)
        batch.counts.export()
        return True

    async def _is_old(self, cached: CachedSessions, batch: Batch) -> bool:
        """Tell whether cached sessions by which a batch changes nothing are no longer as they are stored.

        The partition may have been another worker's meanwhile. A write would notice.
        """
        return bool(cached.find(batch.sessions)) and await self._store.place(batch.partition) != cached.place

    def _take_out(
        self, failed: Sequence[str], batch: Batch, cached: CachedSessions, closing: Closing
    ) -> None:
        """Leave sessions that could not be stored as they were; the others go on."""
        for name in failed:
            cached.drop(name)
            del batch.sessions[name]
        for window in [window for window in closing.windows.values() if window.session_id in failed]:
            del closing.windows[window.formation_id]
        self._aside.add(failed, "stored")

    async def _ready(self, batch: Batch, closing: Closing) -> dict[str, StoredWindow]:
        """Return the windows to publish, in order: new ones, and those that an earlier attempt left."""
        names = {name: session.session_id for session in batch.own() for name in publishable(session)}
        left = await self._store.windows(name for name in names if name not in closing.windows)
        windows = {**closing.windows, **left}
        erased = [(session, name) for name, session in names.items() if name not in windows]
        if erased:  # published and formed long ago: only the outbox does not say so yet
            self._confirmed.setdefault(batch.partition, []).extend(erased)
        return {name: windows[name] for name in names if name in windows}

    async def _erase_forgotten_before(self, windows: Iterable[StoredWindow]) -> None:
        """Erase the texts before windows that were forgotten after they were read: forgetting did not find them."""
        sources = sources_before(windows)
        marks = await self._forgotten.among(ids_of(None, sources)) if sources else Marks()
        if gone := forgotten_before(sources, marks.asked()):
            await self._store.erase_in_windows(gone)

    def _remember(
        self,
        partition: int,
        sent: Iterable[tuple[str, str]],
        asked: Mapping[AskedErasure, datetime],
        *,
        many: bool,
    ) -> Callable[[], None]:
        def confirmed() -> None:
            if many:
                self._many_published.set()
            self._confirmed.setdefault(partition, []).extend(sent)
            if asked:
                self._graces[partition].published.update(asked)

        return confirmed


def _up_to(last: Delivery, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
    """Return the records up to and including `last`."""
    return deliveries[: next(index for index, one in enumerate(deliveries, 1) if one is last)]


def _outgoing(window: StoredWindow) -> list[Emit | Erase]:
    """Return the records of a window, the same at every attempt: ids of the formation and the messages."""
    time, events = window.closed.at, list[Emit | Erase]()
    for reference in window.left_out:
        events.append(erased(reference.message_id, reference.version, window.session_id, time=time))
    if window.requested is not None:
        identity = f"formation/{window.formation_id}"
        events.append(Emit(window.requested, None, time, identity, window.traceparent, window.value))
    return events
