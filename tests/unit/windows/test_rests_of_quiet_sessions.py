"""What a session said last forms when it has been quiet for a day, and never with what is written after that.

The records are the tailer's own, of documents of an application: written while it runs, or read in by their times.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.mongo.changes import DocumentPage, version_of
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import FormationRequested, decode
from eden_memory.settings import Settings, WindowsSettings
from eden_memory.source.source_mapping import Mapped
from eden_memory.stages.stage import Delivery
from eden_memory.windows.window_rule import window_limits
from tests.unit.source.mappings import BEGAN, change, mapped, message, source_mapping
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import formations, names, run, trigger

DAY = timedelta(days=1)
BY_DEFAULT = window_limits(Settings())
SOURCE = source_mapping()
hours = st.lists(st.floats(0, 60, allow_nan=False), min_size=1, max_size=30)


def written(*times: datetime) -> list[Delivery]:
    """Messages m0, m1, … that an application writes at these times, as the stream gives them."""
    changes = [
        change(number, "insert", message(f"m{number}"))._replace(time=time)
        for number, time in enumerate(times)
    ]
    return delivered(mapped(*changes))


def read_in(*times: datetime) -> list[Delivery]:
    """The same messages, found in the collection at the first start long after."""
    documents = [message(f"m{number}", created_at=time) for number, time in enumerate(times)]
    read = BEGAN + timedelta(days=1_000)
    version = version_of(int(read.timestamp()), 1)
    return delivered(SOURCE.map_page(DocumentPage(documents, None, version, read), "backfill"))


def watermark(time: datetime) -> Delivery:
    record = SOURCE.watermark(0, version_of(int(time.timestamp()), 1), time)
    return delivered(Mapped(records=[record]))[0]


def delivered(mapped: Mapped) -> list[Delivery]:
    found: list[Delivery] = []
    for record in mapped.records:
        envelope = Envelope.of_headers(record.headers)
        assert record.value is not None
        event = decode(envelope.name, envelope.version, record.value)
        found.append(Delivery(envelope, event, record.topic, record.key.decode()))
    return found


async def windows(*batches: Sequence[Delivery]) -> list[FormationRequested]:
    return formations(await run(trigger(MemoryStore(BY_DEFAULT)), *batches))


def after(*days: float) -> list[datetime]:
    return [BEGAN + timedelta(days=one) for one in days]


async def test_a_rest_of_one_message_forms_after_a_quiet_day_and_not_sooner() -> None:
    stage = trigger(MemoryStore(BY_DEFAULT))
    assert not await run(stage, written(BEGAN), [watermark(BEGAN + DAY - timedelta(seconds=1))])
    (one,) = formations(await run(stage, [watermark(BEGAN + DAY)]))
    assert (names(one), one.closed_because) == (["s.m0"], "stale")


async def test_who_writes_again_months_later_begins_another_window() -> None:
    for records in (written(*after(0, 0.01, 90, 90.01)), read_in(*after(0, 0.01, 90, 90.01))):
        (first,) = await windows(records)
        assert (names(first), first.closed_because) == (["s.m0", "s.m1"], "stale")
        assert first.closed_at == BEGAN + timedelta(days=90), "the record that closed it says when"


async def test_who_writes_again_within_the_day_goes_on() -> None:
    (one,) = await windows(read_in(*after(0, 0.5, 1.4, 1.41)), [watermark(BEGAN + 3 * DAY)])
    assert (len(one.messages), one.closed_because) == (4, "cold")


async def test_a_session_that_is_quiet_for_ever_waits_where_0_hours_are_set() -> None:
    off = window_limits(Settings(windows=WindowsSettings(stale_hours=0)))
    assert not await run(
        trigger(MemoryStore(off)), read_in(*after(0, 90)), [watermark(BEGAN + timedelta(days=900))]
    )


def times(gaps: Iterable[float]) -> list[datetime]:
    moments = [BEGAN]
    for gap in gaps:
        moments.append(moments[-1] + timedelta(hours=round(gap, 2)))
    return moments


@given(gaps=hours, cuts=st.sets(st.integers(0, 30)), marked=st.booleans())
async def test_a_quiet_day_parts_windows_whatever_the_batches_and_whether_a_watermark_tells_of_it(
    gaps: list[float], cuts: set[int], marked: bool
) -> None:
    moments = times(gaps)
    records = read_in(*moments)
    batches: list[list[Delivery]] = [[]]
    for number, (record, moment) in enumerate(zip(records, moments, strict=True)):
        batches[-1].append(record)
        if marked and number + 1 < len(moments) and moments[number + 1] - moment > DAY:
            batches[-1].append(watermark(moment + DAY))
        if number in cuts:
            batches.append([])
    batches.append([watermark(moments[-1] + DAY)])
    found = await windows(*filter(None, batches))
    assert [name for one in found for name in names(one)] == [f"s.m{n}" for n in range(len(moments))]
    window_of = {name: one.formation_id for one in found for name in names(one)}
    for number, (earlier, later) in enumerate(pairwise(moments)):
        if later - earlier >= DAY:
            assert window_of[f"s.m{number}"] != window_of[f"s.m{number + 1}"]
