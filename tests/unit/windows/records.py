"""Records of `chat.messages` as the stage is given them, and what runs the stage on them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from eden_memory.directory.participants import NO_AUTHORS, Missing, Off, SessionFacts
from eden_memory.forgotten import ForgottenMarks, Mark, Marks
from eden_memory.processors.formation_trigger import FormationTrigger
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    FormationAsked,
    FormationRequested,
    MessageRecorded,
    SessionEnded,
    Watermark,
)
from eden_memory.schemas.events.base import Event
from eden_memory.schemas.events.chat import Origin, Role
from eden_memory.schemas.ids import encode
from eden_memory.source.message_mapping import FieldPaths, MessageMapping, Reason
from eden_memory.stages.codec import Encoder
from eden_memory.stages.stage import Decision, Delivery, Emit, Result
from eden_memory.windows.formation_requests import TriggerStore
from eden_memory.windows.trigger_batch import erased

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


MAPPING = MessageMapping(
    FieldPaths("session", "role", "text", "user", "at"), "test", encode, text_limit=8_000
)


def version(number: int) -> str:
    """A cluster time."""
    return f"{number:016x}"


def at(minutes: float) -> datetime:
    """A time after noon."""
    return NOON + timedelta(minutes=minutes)


def delivery(
    key: str, ordering_key: str, time: datetime, event: Event | None, identity: str, **ended: str
) -> Delivery:
    """One record; `ended` are a tombstone's attributes."""
    envelope = Envelope(
        id=identity,
        name=event.NAME if event else MessageRecorded.NAME,
        version=event.VERSION if event else MessageRecorded.VERSION,
        source="test",
        time=time,
        subject=key,
        ordering_key=ordering_key,
        traceparent=None,
        **ended,
    )
    return Delivery(envelope, event, "chat.messages", key)


def message(
    name: str,
    session: str,
    number: int,
    minutes: float,
    text: str = "something to remember",
    *,
    role: Role = "user",
    user: str | None = "i.1",
    origin: Origin = "stream",
    edited: bool = False,
) -> Delivery:
    """A message recorded at a version."""
    event = MessageRecorded(
        message_id=name,
        session_id=session,
        version=version(number),
        role=role,
        user_id=user,
        text=text,
        characters=len(text),
        truncated=False,
        created_at=at(minutes),
        edited_at=at(minutes) if edited else None,
        origin=origin,
    )
    return delivery(name, session, at(minutes), event, f"{name}@{version(number)}")


def gone(name: str, session: str | None, number: int, minutes: float, reason: Reason = "deleted") -> Delivery:
    """The tailer's own tombstone of a message."""
    record = MAPPING.tombstone(name, version(number), at(minutes), reason, session_id=session)
    return Delivery(Envelope.of_headers(record.headers), None, "chat.messages", record.key.decode())


def opted_out(name: str, session: str, number: int, minutes: float) -> Delivery:
    """The stage's own tombstone of a message whose session or author is switched off."""
    cause = message(name, session, number, minutes)
    encoder = Encoder("formation-trigger", lambda _: "chat.messages")
    (record,) = encoder.records([erased(name, version(number), session)], [cause])
    return Delivery(Envelope.of_headers(record.headers), None, record.topic, name)


def asked(session: str, number: int, minutes: float, *, if_due: bool = False) -> Delivery:
    """Form now, or if a window is due."""
    name = f"o.{number:024x}"
    event = FormationAsked(
        inbox_id=name, session_id=session, version=version(number), asked_by="ana", if_due=if_due
    )
    return delivery(name, session, at(minutes), event, f"{name}@{version(number)}")


def ended(session: str, number: int, minutes: float) -> Delivery:
    """The session is over."""
    name = f"o.{number:024x}"
    event = SessionEnded(inbox_id=name, session_id=session, version=version(number), asked_by=None)
    return delivery(name, session, at(minutes), event, f"{name}@{version(number)}")


def watermark(number: int, minutes: float, partition: int = 0) -> Delivery:
    """Everything before is recorded."""
    event = Watermark(partition=partition, time=at(minutes), version=version(number))
    return delivery(event.key(), event.key(), at(minutes), event, f"{event.key()}@{version(number)}")


@dataclass
class Sessions:
    """A directory: what the application says of each session; unless it says otherwise, nothing is mapped."""

    said: dict[str, SessionFacts | Missing] = field(default_factory=dict[str, SessionFacts | Missing])
    asked: list[str] = field(default_factory=list[str])
    off_sessions: set[str] = field(default_factory=set[str])
    off_users: set[str] = field(default_factory=set[str])

    async def look_up(
        self,
        session_ids: Iterable[str],
        authors: Mapping[str, Collection[str]] = NO_AUTHORS,
        branches_of: Collection[str] = (),
    ) -> dict[str, SessionFacts | Missing]:
        wanted = list(session_ids)
        self.asked += wanted
        return {one: self.said.get(one, SessionFacts("s.default", None, sharing="team")) for one in wanted}

    @property
    def switches(self) -> bool:
        return bool(self.off_sessions or self.off_users)

    async def off(self, authors: Mapping[str, Collection[str]], others: Collection[str]) -> Off:
        users = frozenset(self.off_users)
        alone = {one for one, named in authors.items() if named and users >= set(named)}
        return Off(frozenset(alone | (self.off_sessions & set(authors))), users)


@dataclass
class KnownMarks:
    """What is forgotten; a test adds to it."""

    marks: list[Mark] = field(default_factory=list[Mark])

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        wanted = set(named)
        return Marks(one for one in self.marks if (one.kind, one.target) in wanted)


def trigger(
    store: TriggerStore,
    sessions: Sessions | None = None,
    forgotten: ForgottenMarks | None = None,
    grace: timedelta = timedelta(0),
) -> FormationTrigger:
    """A process's stage, newly started."""
    marks = forgotten or KnownMarks()
    return FormationTrigger(store, sessions or Sessions(), "v1", marks, most_before=2, grace=grace)


async def run(stage: FormationTrigger, *batches: Sequence[Delivery]) -> list[Emit]:
    """Run batches one after the other, what is left of one again, publish what they say, and return it."""
    published: list[Emit] = []
    for batch in batches:
        left = batch
        while left:
            decision = await stage(left)
            published += publish(decision)
            assert isinstance(decision, Decision)
            assert decision.covers is not None
            left = left[decision.covers :]
    return published


def publish(decision: Result) -> list[Emit]:
    """Publish what a decision says, and return it."""
    assert isinstance(decision, Decision), decision
    if decision.published is not None:
        decision.published()
    return [one for one in decision.events if isinstance(one, Emit)]


def formations(published: Iterable[Emit]) -> list[FormationRequested]:
    """The requests among what was published, repeats included."""
    return [one.event for one in published if isinstance(one.event, FormationRequested)]


def names(formation: FormationRequested) -> list[str]:
    """The messages of a window."""
    return [one.message_id for one in formation.messages]
