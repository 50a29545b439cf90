"""The messages before a window: named with their versions, of the same audience, as they still stand."""

import pytest

from eden_memory.directory.participants import SessionFacts, own_session
from eden_memory.forgotten import Mark
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.ids import encode
from eden_memory.schemas.provenance import MessageRef
from eden_memory.stages.stage import Delivery
from eden_memory.windows.formation_requests import BatchWrite
from eden_memory.windows.window_rule import Limits
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import (
    KnownMarks,
    Sessions,
    asked,
    formations,
    gone,
    message,
    run,
    trigger,
    version,
)

S, MARA, TOM = "s.s", "i.1", "i.2"
ANSWER = [message("s.m9", S, 90, 30, "yes"), asked(S, 91, 31)]


def first_window(*texts: str) -> list[Delivery]:
    said = [message(f"s.m{number}", S, number, number, text) for number, text in enumerate(texts, 1)]
    return [*said, asked(S, 10, 10)]


async def second(*between: list[Delivery], store: MemoryStore | None = None) -> FormationRequested:
    stage = trigger(store or MemoryStore(Limits()))
    *_, last = formations(await run(stage, first_window("one", "two", "a dog?"), *between, ANSWER))
    return last


def named(window: FormationRequested) -> list[str]:
    return [ref.message_id for ref in window.before]


async def test_the_last_messages_before_a_window_are_named_and_their_texts_stay_with_it() -> None:
    store = MemoryStore(Limits())
    window = await second(store=store)
    assert window.before == (
        MessageRef(message_id="s.m2", version=version(2)),
        MessageRef(message_id="s.m3", version=version(3)),
    )
    stored = store.stored_windows[window.formation_id]
    assert [one.text for one in stored.before] == ["two", "a dog?"]
    assert stored.value == window.json_bytes()


async def test_windows_that_close_together_explain_one_another() -> None:
    published = await run(trigger(MemoryStore(Limits())), [*first_window("one", "a dog?"), *ANSWER])
    assert [named(one) for one in formations(published)] == [[], ["s.m1", "s.m2"]]


@pytest.mark.parametrize(
    "change",
    [gone("s.m3", S, 20, 20), gone("s.m3", S, 20, 20, "missing"), message("s.m3", S, 20, 20, "a cat?")],
    ids=["deleted", "missing", "edited"],
)
async def test_one_that_no_longer_stands_as_it_was_formed_is_left_out(change: Delivery) -> None:
    assert named(await second([change])) == ["s.m2"]
    published = await run(
        trigger(MemoryStore(Limits())), first_window("one", "a dog?", "?"), [change, *ANSWER]
    )
    assert named(formations(published)[-1]) == ["s.m2"], "in the same batch, too"


async def test_somebody_who_joins_is_not_told_what_was_said_before() -> None:
    joined = message("s.m8", S, 80, 29, "hello", user=TOM)
    published = await run(trigger(MemoryStore(Limits())), first_window("one"), [joined, *ANSWER])
    assert [named(one) for one in formations(published)] == [[], []]


async def test_of_somebody_who_was_switched_off_since_nothing_is_shown_again() -> None:
    sessions = Sessions({S: SessionFacts("s.default", (MARA, TOM), sharing="team")})
    stage = trigger(MemoryStore(Limits()), sessions)
    await run(
        stage, [message("s.m1", S, 1, 1, "a dog?"), message("s.m2", S, 2, 2, user=TOM), asked(S, 10, 10)]
    )
    sessions.off_users.add(MARA)
    (window,) = formations(await run(stage, [message("s.m9", S, 90, 30, "yes", user=TOM), asked(S, 91, 31)]))
    assert named(window) == ["s.m2"]


@pytest.mark.parametrize(
    "then",
    [
        SessionFacts("s.other", None, sharing="team"),
        SessionFacts("s.default", None, sharing="private"),
        SessionFacts("s.default", None, sharing="team", private_users=(MARA,)),
    ],
    ids=["another agent", "private", "a private user"],
)
async def test_what_was_said_under_other_rules_explains_nothing(then: SessionFacts) -> None:
    sessions = Sessions()
    stage = trigger(MemoryStore(Limits()), sessions)
    await run(stage, first_window("one", "a dog?"))
    sessions.said[S] = then
    (window,) = formations(await run(stage, ANSWER))
    assert named(window) == []


async def test_texts_added_to_a_scope_explain_nothing() -> None:
    added = encode(own_session("s.default", MARA))
    batches = [[message(f"s.m{n}", added, n, n, "a text"), asked(added, n + 10, n + 1)] for n in (1, 3)]
    published = await run(trigger(MemoryStore(Limits())), *batches)
    assert [named(one) for one in formations(published)] == [[], []]


class ForgottenMeanwhile(MemoryStore):
    """Forgets a message while the window that it explains is stored, before its text could be found there."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.marks = KnownMarks()

    async def put(self, write: BatchWrite) -> int | None:
        if any(window.before for part in write.closing for window in part.new):
            self.marks.marks.append(Mark("message", "s.m3", "for_ever"))
        return await super().put(write)


async def test_what_is_forgotten_while_the_window_is_stored_leaves_no_text_behind() -> None:
    store = ForgottenMeanwhile(Limits())
    stage = trigger(store, forgotten=store.marks)
    (window, _) = reversed(formations(await run(stage, first_window("one", "two", "a dog?"), ANSWER)))
    texts = {one.message_id: one.text for one in store.stored_windows[window.formation_id].before}
    assert texts == {"s.m2": "two", "s.m3": None}
