"""Sessions that fail, or have as many users as they can, cost the others of their partition nothing."""

from collections.abc import Iterable, Sequence

from eden_memory.forgotten import Mark
from eden_memory.limits import MOST_SESSION_USERS
from eden_memory.metrics import TRIGGER_REFUSED
from eden_memory.processors.formation_trigger import FormationTrigger
from eden_memory.stages.stage import Decision, Delivery, Emit
from eden_memory.windows.formation_requests import BatchWrite
from eden_memory.windows.session_state import Session
from eden_memory.windows.trigger_batch import ASIDE_SECONDS, SessionsAside
from eden_memory.windows.window_rule import Limits
from tests.counted import Grown
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import (
    KnownMarks,
    asked,
    formations,
    message,
    trigger,
    watermark,
)

BAD, GOOD = "s.bad", "s.good"


class FailingStore(MemoryStore):
    """A store that cannot read some sessions and cannot store others; it notes how often they are tried."""

    def __init__(self, *, unreadable: str = "", unstorable: str = "") -> None:
        super().__init__(Limits())
        self.unreadable, self.unstorable = unreadable, unstorable
        self.tries = 0

    async def sessions(self, ids: Iterable[str], partition: int) -> dict[str, Session]:
        found = await super().sessions(ids, partition)
        self.tries += found.pop(self.unreadable, None) is not None
        return found

    async def put(self, write: BatchWrite) -> int | None:
        named = {write.session.session_id for write in write.closing}
        named |= {session.session_id for session in write.sessions}
        if self.unstorable in named:
            self.tries += 1
            write.failed.append(self.unstorable)
            write.closing = [part for part in write.closing if part.session.session_id != self.unstorable]
            write.sessions = [session for session in write.sessions if session.session_id != self.unstorable]
            write.messages = [message for message in write.messages if message.session_id != self.unstorable]
        return await super().put(write)


def mixed(number: int, minutes: float = 0) -> list[Delivery]:
    """Records of both sessions; those of each end with a request to form what waits."""
    texts = [
        message(f"{session}-{number + n}", session, number + n, minutes)
        for n in range(4)
        for session in (BAD, GOOD)
    ]
    return [*texts, asked(BAD, number + 4, minutes), asked(GOOD, number + 5, minutes)]


async def decided(stage: FormationTrigger, batch: Sequence[Delivery]) -> Decision:
    decision = await stage(batch)
    assert isinstance(decision, Decision)
    if decision.published is not None:
        decision.published()
    return decision


def formed(decision: Decision) -> list[str]:
    emitted = [event for event in decision.events if isinstance(event, Emit)]
    return [request.session_id for request in formations(emitted)]


def of(session: str, batch: Sequence[Delivery]) -> set[str]:
    return {record.id for record in batch if record.envelope.ordering_key == session}


async def _holds_up_nobody(store: FailingStore, why: str) -> None:
    stage = trigger(store)
    for first in (10, 20, 30):
        batch = mixed(first)
        decision = await decided(stage, batch)
        assert set(decision.refused) == of(BAD, batch)
        assert set(decision.refused.values()) == {f"session {BAD} cannot be {why}: the log says why"}
        assert formed(decision) == [GOOD]
    assert (await decided(stage, [watermark(40, 60)])).refused == {}
    assert store.tries == 1, "tried once, however many records name it"


async def test_a_session_that_cannot_be_stored_is_tried_once_and_the_others_of_its_batch_go_on() -> None:
    await _holds_up_nobody(FailingStore(unstorable=BAD), "stored")


async def test_a_session_that_cannot_be_read_is_tried_once_and_the_others_of_its_batch_go_on() -> None:
    await _holds_up_nobody(FailingStore(unreadable=BAD), "read")


async def test_a_dead_letter_that_is_sent_again_tries_its_session_again() -> None:
    store = FailingStore(unstorable=BAD)
    stage, batch = trigger(store), mixed(10)
    await decided(stage, batch)
    again = next(record for record in batch if record.id in of(BAD, batch))._replace(sent_again=1)
    assert set((await decided(stage, [asked(BAD, 20, 0)])).refused) != set()
    store.unstorable = ""
    assert (await decided(stage, [again])).refused == {}
    decision = await decided(stage, mixed(30))
    assert (decision.refused, set(formed(decision))) == ({}, {BAD, GOOD})


def test_a_session_is_set_aside_for_a_while() -> None:
    seconds = [0.0]
    aside = SessionsAside(lambda: seconds[0])
    aside.add([BAD], "stored")
    assert (aside.reason(GOOD), aside.reason(None)) == (None, None)
    seconds[0] = ASIDE_SECONDS - 1
    assert aside.reason(BAD) is not None
    seconds[0] = ASIDE_SECONDS
    assert aside.reason(BAD) is None
    assert not aside


def crowded() -> MemoryStore:
    """A session with as many users as it can have."""
    store = MemoryStore(Limits())
    users = tuple(f"i.{number}" for number in range(MOST_SESSION_USERS))
    store.stored_sessions[BAD] = Session(BAD, 0, Limits(), stored=True, users=users)
    return store


async def test_a_session_takes_no_further_users_and_forms_what_those_it_has_write() -> None:
    store, refused = crowded(), Grown(TRIGGER_REFUSED)
    stage = trigger(store)
    batch = [
        message("s.1", BAD, 1, 0, user="s.stranger"),
        message("s.2", BAD, 2, 0, user="i.7"),
        message("s.3", BAD, 3, 0, user="s.stranger", role="assistant"),
        asked(BAD, 4, 0),
        *mixed(10)[1::2],
    ]
    decision = await decided(stage, batch)
    (reason,) = decision.refused.values()
    assert list(decision.refused) == [batch[0].id]
    assert reason.startswith(f"session {BAD} has {MOST_SESSION_USERS} users")
    assert set(formed(decision)) == {BAD, GOOD}
    assert sum(refused().values()) == 1
    assert "s.1" not in store.stored_messages
    assert len(store.stored_sessions[BAD].users) == MOST_SESSION_USERS


async def test_a_forgotten_message_of_a_further_user_stays_forgotten() -> None:
    store = crowded()
    marks = KnownMarks([Mark("message", "s.1", "for_ever")])
    decision = await decided(trigger(store, forgotten=marks), [message("s.1", BAD, 1, 0, user="s.stranger")])
    assert decision.refused == {}
    assert store.stored_messages["s.1"].forgotten
    assert len(store.stored_sessions[BAD].users) == MOST_SESSION_USERS
