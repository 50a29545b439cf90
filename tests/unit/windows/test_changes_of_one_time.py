"""Changes of one transaction, from the tailer's mapping through the stage's reader into windows: none is lost.

Every case also runs with the changes at times of their own, cut into batches anywhere, and delivered again.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.forgetting.forgetting_rules import mark_of
from eden_memory.forgotten import Marks
from eden_memory.kafka.record import Outgoing, Record
from eden_memory.mongo.changes import ChangeEvent, version_of
from eden_memory.processors.pipeline import FORMATION_TRIGGER, stages
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import REGISTRY, Forgotten
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.stages.codec import Reader, wanted
from eden_memory.stages.lanes import Queued, Unit
from eden_memory.stages.publishing import partition_for
from eden_memory.stages.stage import Delivery, Emit
from eden_memory.windows.window_rule import Limits
from tests.unit.source.mappings import mapped, source_mapping
from tests.unit.source.table import PARTITIONS, Table, places
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import NOON, asked, formations, names, run, trigger

Step = tuple[str, str, str]
TRANSACTIONS: dict[str, list[Step]] = {
    "insert, update": [("placeholder", "x", "1"), ("text", "x", "the text")],
    "delete, insert": [("delete", "a", ""), ("text", "a", "1 again")],
    "delete, insert elsewhere": [("delete", "a", ""), ("text", "a", "2 again")],
    "move": [("move", "a", "2")],
    "move there and back": [("move", "a", "2"), ("move", "a", "1")],
    "move, edit": [("move", "a", "2"), ("text", "a", "edited")],
    "move, delete": [("move", "a", "2"), ("delete", "a", "")],
    "move, delete, insert": [("move", "a", "2"), ("delete", "a", ""), ("text", "a", "1 again")],
    "replace, move, replace": [("replace", "a", "1 new"), ("move", "a", "2"), ("replace", "a", "1 last")],
}


class Heard:
    """A stage's watching that watches nothing."""

    epoch = 0

    def was_outage(self, epoch: int) -> bool:
        del epoch
        return False

    attempt_failed = attempt_succeeded = finished = was_outage


async def never(*_: Any) -> Any:
    raise AssertionError


READER = Reader(stages({FORMATION_TRIGGER: never})[0], REGISTRY, Heard())  # pyright: ignore[reportArgumentType]


def read(records: Iterable[Outgoing], partition: int) -> list[Delivery]:
    """A unit of records as the stage is given it."""
    home: Any = None
    items = [
        Queued(Record(one.topic, partition, offset, one.key, one.value, tuple(one.headers), 0), home, 0)
        for offset, one in enumerate(records)
    ]
    found = READER.unit(Unit(items)) if items else []
    assert isinstance(found, list)
    return wanted(found)


def table_after(steps: Sequence[Step], *, pre_images: bool, together: bool) -> Table:
    table = Table(pre_images=pre_images)
    for name in "ab":
        table.step("text", name, f"1 {name}")
    with table.transaction() if together else nullcontext():
        for step in steps:
            table.step(*step)
    return table


def in_batches(events: list[ChangeEvent], sizes: Iterable[int]) -> Iterator[list[Outgoing]]:
    """The tailer's records, of batches of these sizes; what is left comes as one."""
    rest = iter(sizes)
    while events:
        size = next(rest, len(events))
        yield list(mapped(*events[:size]).records)
        events = events[size:]


async def follow(store: MemoryStore, batches: Iterable[list[Outgoing]], *, apart: bool) -> list[Emit]:
    """Work the batches off: all sessions in one partition, or each partition's records by a worker of its own."""
    published: list[Emit] = []
    batches = list(batches)
    for number in reversed(range(PARTITIONS if apart else 1)):
        stage = trigger(store)
        for batch in batches:
            if given := read([one for one in batch if not apart or number in places(one)], number):
                published += await run(stage, given)
    return published


async def judge(table: Table, store: MemoryStore, published: list[Emit], *, apart: bool) -> None:
    """Every message that is left waits once, where it is and as it is, and no mark drops it; then it is formed."""
    expected = {
        (f"s.{one['session_id']}", f"s.{name}"): one["content"] for name, one in table.documents.items()
    }
    waiting = {
        (session, name): store.stored_messages[name].text
        for session in ("s.1", "s.2", "s.3")
        for name in store.waiting_in(session)
    }
    assert waiting == expected
    marks = Marks(mark_of(one.event) for one in published if isinstance(one.event, Forgotten))
    asks = [asked(f"s.{number}", 10_000 + number, 100) for number in (1, 2, 3)]
    if apart:
        asks = [
            one._replace(partition=partition_for(one.envelope.ordering_key.encode(), PARTITIONS))
            for one in asks
        ]
    windows = formations(await run(trigger(store), *([one] for one in asks)))
    formed = [(window.session_id, ref) for window in windows for ref in window.messages]
    assert {(session, ref.message_id) for session, ref in formed} == set(expected)
    for session, ref in formed:
        source = SourceMessage(message_id=ref.message_id, version=ref.version, session_id=session, time=NOON)
        assert not marks.source_gone(source)


@pytest.mark.parametrize("together", [True, False], ids=["one transaction", "separate changes"])
@pytest.mark.parametrize("pre_images", [True, False], ids=["pre-images", "none"])
@pytest.mark.parametrize("apart", [True, False], ids=["partitions apart", "one partition"])
@pytest.mark.parametrize("name", TRANSACTIONS)
async def test_what_a_transaction_leaves_is_formed(
    name: str, together: bool, pre_images: bool, apart: bool
) -> None:
    table = table_after(TRANSACTIONS[name], pre_images=pre_images, together=together)
    events = table.events()
    for cut in range(len(events) + 1):
        for again in range(cut + 1):
            store = MemoryStore(Limits())
            published = await follow(store, in_batches(events[:cut], []), apart=apart)
            published += await follow(store, in_batches(events[again:], [1] * again), apart=apart)
            await judge(table, store, published, apart=apart)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["text", "placeholder", "move", "replace", "delete"]),
        st.sampled_from("abc"),
        st.sampled_from(["1", "2", "3", "1 long", "2 long"]),
    ).map(lambda one: (one[0], one[1], one[2][0]) if one[0] == "move" else one),
    max_size=7,
)


@given(st.lists(STEPS, max_size=3), st.booleans(), st.booleans(), st.data())
async def test_whatever_transactions_do_the_last_state_is_what_waits(
    transactions: list[list[Step]], pre_images: bool, apart: bool, data: st.DataObject
) -> None:
    table = table_after([], pre_images=pre_images, together=False)
    for steps in transactions:
        with table.transaction():
            for step in steps:
                table.step(*step)
    events, store, published = table.events(), MemoryStore(Limits()), list[Emit]()
    for last in data.draw(st.lists(st.integers(0, len(events)), max_size=3)):
        published += await follow(store, in_batches(events[:last], []), apart=apart)
    sizes = data.draw(st.lists(st.integers(1, 4), max_size=10))
    published += await follow(store, in_batches(events, sizes), apart=apart)
    for name in [name for name, one in table.documents.items() if not one["content"]]:
        del table.documents[name]
    await judge(table, store, published, apart=apart)


@pytest.mark.parametrize("name", TRANSACTIONS)
def test_no_two_records_of_a_stream_share_an_id(name: str) -> None:
    table = table_after(TRANSACTIONS[name], pre_images=True, together=True)
    (records,) = in_batches(table.events(), [])
    ids = [Envelope.of_headers(one.headers).id for one in records]
    assert len(ids) == len(set(ids))


async def test_a_deletion_that_comes_again_leaves_what_was_inserted_after_it_in_its_transaction() -> None:
    table = table_after(TRANSACTIONS["delete, insert"], pre_images=True, together=True)
    store, events = MemoryStore(Limits()), table.events()
    published = await follow(store, in_batches(events, []), apart=False)
    published += await follow(store, in_batches(events[-2:-1], []), apart=False)
    await judge(table, store, published, apart=False)


def marked(change: ChangeEvent, *, complete: bool) -> list[Outgoing]:
    """The tailer's Watermark behind a change: in the midst of its transaction it names the time before."""
    version = version_of(int(change.time.timestamp()), 1 if complete else 0)
    return [source_mapping().watermark(0, version, change.time)]


@pytest.mark.parametrize("closes", ["watermark", "next message"])
@pytest.mark.parametrize("pre_images", [True, False], ids=["pre-images", "none"])
@pytest.mark.parametrize(
    "steps",
    [
        [("text", "c", "1 draft"), ("delete", "c", ""), ("text", "c", "1 last")],
        [("text", "c", "1 draft"), ("text", "c", "last")],
        [("text", "c", "1 draft"), ("replace", "c", "1 more"), ("text", "c", "last")],
        [("text", "b", "draft"), ("text", "c", "1 c"), ("text", "b", "last")],
    ],
    ids=["insert, delete, insert", "insert, update", "insert, replace, update", "edit, insert, edit"],
)
async def test_no_window_closes_over_a_state_between_two_changes_of_a_transaction(
    steps: list[Step], pre_images: bool, closes: str
) -> None:
    table = table_after(steps, pre_images=pre_images, together=True)
    events = table.events()
    if closes == "watermark":
        closing = marked(events[-1], complete=True)
    else:
        table.step("text", "d", "1 later")
        closing = next(in_batches(table.events()[-1:], []))
    for cut in range(2, len(events) + 1):
        for again in range(cut + 1):
            store = MemoryStore(Limits(messages=3, least=1))
            published = await follow(store, in_batches(events[:cut], []), apart=False)
            published += await follow(store, [marked(events[cut - 1], complete=False)], apart=False)
            rest = [*in_batches(events[again:], [1] * again), closing]
            published += await follow(store, rest, apart=False)
            await judge_window(store, published)


async def judge_window(store: MemoryStore, published: list[Emit]) -> None:
    """One window holds what the transaction left."""
    (window,) = formations(published)
    assert names(window) == ["s.a", "s.b", "s.c"]
    marks = Marks(mark_of(one.event) for one in published if isinstance(one.event, Forgotten))
    for ref in window.messages:
        source = SourceMessage(message_id=ref.message_id, version=ref.version, session_id="s.1", time=NOON)
        assert not marks.source_gone(source)
        assert ref.version == store.stored_messages[ref.message_id].version
        assert not store.stored_messages[ref.message_id].changed_after_formation


async def test_a_transaction_of_many_messages_is_cut_into_windows_of_the_usual_size() -> None:
    table = Table(pre_images=False)
    with table.transaction():
        for number in range(10):
            table.step("text", f"m{number}", "1 said")
    events = table.events()
    for cut in range(len(events) + 1):
        store = MemoryStore(Limits(messages=3, least=1))
        batches = [*in_batches(events, [cut] if cut else []), marked(events[-1], complete=True)]
        windows = formations(await follow(store, batches, apart=False))
        assert [names(one) for one in windows] == [
            [f"s.m{number}" for number in range(first, first + 3)] for first in (0, 3, 6)
        ]
        assert store.waiting_in("s.1") == ["s.m9"]


@pytest.mark.parametrize("together", [True, False], ids=["one transaction", "separate changes"])
@pytest.mark.parametrize("pre_images", [True, False], ids=["pre-images", "none"])
async def test_what_is_inserted_under_the_id_of_a_deleted_message_is_formed_as_a_new_one(
    pre_images: bool, together: bool
) -> None:
    table = table_after([("text", "c", "1 c")], pre_images=pre_images, together=False)
    with table.transaction() if together else nullcontext():
        table.step("delete", "a", "")
        table.step("text", "a", "1 again")
    for name in "def":
        table.step("text", name, f"1 {name}")
    events = table.events()
    for cut in range(len(events) + 1):
        for again in range(cut + 1):
            store = MemoryStore(Limits(messages=3, least=1))
            published = await follow(store, in_batches(events[:cut], []), apart=False)
            published += await follow(store, in_batches(events[again:], [1] * again), apart=False)
            found = {one.formation_id: one for one in formations(published)}.values()
            assert [names(one) for one in found] == [["s.a", "s.b", "s.c"], ["s.a", "s.d", "s.e"]]
            versions = [one.messages[0].version for one in found]
            assert versions[1] == store.stored_messages["s.a"].version
            marks = Marks(mark_of(one.event) for one in published if isinstance(one.event, Forgotten))
            sources = [
                SourceMessage(message_id="s.a", version=one, session_id="s.1", time=NOON) for one in versions
            ]
            assert [marks.source_gone(one) for one in sources] == [True, False]
            assert store.waiting_in("s.1") == ["s.f"]
