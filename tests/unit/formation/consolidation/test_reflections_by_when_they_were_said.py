"""Blobs go by when things were said: in whatever order windows close, records come and scopes consolidate."""

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.formation.consolidation_rules import change_of
from eden_memory.formation.prompt_material import ConsolidationMaterial
from eden_memory.limits import DEFAULTS
from eden_memory.memory.snapshot_projection import newest_buffered
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.events import ReflectionFormed, ScopeConsolidated
from eden_memory.stages.stage import Decision
from tests.unit.formation.consolidation.kit import Around, Model, at, delivery, reflection, snapshot
from tests.unit.memory.memory_histories import SESSION, closed, delivered, minute
from tests.unit.memory.memory_histories import reflection as formed
from tests.unit.memory.memory_in_mind import Mind

chances = st.randoms(use_true_random=False)
JANUARY = [reflection(number, said=-1_000 + number) for number in (4, 5, 6)]


async def merged(stored: Snapshot, model: Model | None = None) -> tuple[ScopeConsolidated, Any]:
    """The next version, and the material that it was asked for with."""
    around = Around(stored, model or Model(["text"]))
    result = await around.run()
    assert isinstance(result, Decision)
    (event,) = result.events
    assert isinstance(event, ScopeConsolidated)
    return event, around.model.asked[-1][0].material


async def test_reflections_are_merged_in_the_order_in_which_they_were_said() -> None:
    event, material = await merged(snapshot(reflection(1), *JANUARY))
    assert event.absorbed == ("r4", "r5", "r6", "r1")
    assert [one.said_at for one in material.buffer] == [at(-996), at(-995), at(-994), at(60)]


async def test_an_older_reflection_leaves_the_blob_as_new_as_it_was() -> None:
    fields: dict[str, Any] = {"blob": "of May", "blob_version": 1, "highest_blob_version": 1}
    stored = snapshot(
        reflection(3, said=-1_000), *JANUARY, **fields, consolidated_at=at(9), blob_said_at=at(5)
    )
    event, material = await merged(stored)
    assert (event.said_at, material.blob_said_at) == (at(5), at(5))
    assert event.consolidated_at == at(360)


async def test_a_blob_is_as_new_as_the_newest_that_it_holds() -> None:
    event, material = await merged(snapshot(reflection(1), *JANUARY))
    assert (event.said_at, material.blob_said_at) == (at(60), None)


async def test_of_more_than_two_hundred_those_said_first_are_absorbed_first() -> None:
    many = [reflection(number, said=-number) for number in range(1, 251)]
    event, _ = await merged(snapshot(*many))
    assert event.absorbed == tuple(f"r{number}" for number in range(250, 50, -1))


async def test_an_answer_that_had_arrived_stands_though_something_older_came_since() -> None:
    around = Around(snapshot(*(reflection(number) for number in (1, 2, 3, 4))), Model(["text"]))
    first = await around.run()
    around.change(buffer=(reflection(5, said=-1_000), *around.snapshot.buffer))
    assert await around.run() == first
    assert around.model.paid == 1


class Lived:
    """A session's scope: reflections come in batches, and it consolidates when it is due."""

    def __init__(self) -> None:
        self.mind, self.around = Mind(), Around(snapshot(scope=SESSION), Model(["text"] * 100))
        self.versions: list[ScopeConsolidated] = []

    async def take(self, *events: Any) -> None:
        self.mind.take([delivered(one) for one in events])
        while self.mind.snapshot is not None and self.mind.snapshot.buffer:
            self.around.snapshot = self.mind.snapshot
            result = await self.around.run(delivery(change_of(self.mind.snapshot)))
            if not isinstance(result, Decision):
                return
            (event,) = result.events
            assert isinstance(event, ScopeConsolidated)
            self.versions.append(event)
            self.mind.take([delivered(event)])


def history(chance: Random) -> list[ReflectionFormed]:
    """Formed in one order, said in another."""
    return [
        formed(f"r{number}", at=number, said=chance.randint(-9, number), scope=SESSION)
        for number in range(chance.randint(1, 15))
    ]


@given(chance=chances)
async def test_any_order_of_arrival_shows_and_dates_alike(chance: Random) -> None:
    events = history(chance)
    said = {one.reflection_id: one.said_at for one in events}
    shown: set[tuple[str, ...]] = set()
    for _ in range(3):
        chance.shuffle(events)
        mind, lived = Mind(), Lived()
        for one in events:
            mind.take([delivered(one)])
            await lived.take(one)
        assert mind.snapshot is not None
        shown.add(
            tuple(one.content for one in newest_buffered(mind.snapshot.buffer, DEFAULTS["session"].threshold))
        )
        await lived.take(closed(30))
        assert {name for one in lived.versions for name in one.absorbed} == set(said)
        assert lived.versions[-1].said_at == max(said.values())
        _dated(lived, said)
    assert len(shown) == 1


def _dated(lived: Lived, said: dict[str, Any]) -> None:
    """Every request lists by time, and names the newest of all that the blob before it holds."""
    held: list[Any] = []
    for (prompt, _), version in zip(lived.around.model.asked, lived.versions, strict=True):
        assert isinstance(prompt.material, ConsolidationMaterial)
        times = [one.said_at for one in prompt.material.buffer]
        assert times == sorted(times) == [said[name] for name in version.absorbed]
        assert prompt.material.blob_said_at == max(held, default=None)
        held += times
        assert version.said_at == max(held)
        assert version.consolidated_at <= minute(15)
