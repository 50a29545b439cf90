"""Whatever the order, the repeats and the batches: the same documents."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery
from tests.unit.memory.memory_histories import (
    SESSION,
    USER,
    batches,
    delivered,
    forgotten_of,
    history,
    tombstone,
)
from tests.unit.memory.memory_in_mind import Mind

chances = st.randoms(use_true_random=False)
SCOPES = pytest.mark.parametrize("scope", [USER, SESSION], ids=["user", "session"])


def told(deliveries: Sequence[Delivery], chance: Random) -> Mind:
    mind = Mind()
    for batch in batches(chance, deliveries):
        mind.take(batch)
    return mind


def shuffled(deliveries: Sequence[Delivery], chance: Random) -> list[Delivery]:
    repeated = [*deliveries, *chance.choices(deliveries, k=chance.randint(0, len(deliveries)))]
    chance.shuffle(repeated)
    return repeated


@SCOPES
@given(chance=chances)
def test_any_order_with_repeats_gives_the_same_documents(scope: Scope, chance: Random) -> None:
    lived = [delivered(one) for one in history(chance, scope)]
    if lived:
        assert told(shuffled(lived, chance), chance).documents() == told(lived, chance).documents()


@SCOPES
@given(chance=chances)
def test_what_compaction_leaves_of_a_forgotten_past_gives_the_same_documents(
    scope: Scope, chance: Random
) -> None:
    events = history(chance, scope)
    gone = forgotten_of(chance, events)
    lived = [delivered(one) for one in events] + [tombstone(one) for one in gone]
    ended = {one.key() for one in gone}
    left = [delivered(one) for one in events if one.key() not in ended] + [tombstone(one) for one in gone]
    if left:
        assert told(shuffled(left, chance), chance).without_marks() == told(lived, chance).without_marks()


@SCOPES
@given(chance=chances)
@settings(max_examples=30)
def test_a_repeated_batch_changes_nothing(scope: Scope, chance: Random) -> None:
    lived = [delivered(one) for one in history(chance, scope)]
    mind = told(lived, chance)
    before = mind.snapshot
    for batch in batches(chance, lived):
        assert mind.take(batch).parts == ()
    assert mind.snapshot == before


@SCOPES
@given(chance=chances)
def test_a_snapshot_says_what_the_documents_say(scope: Scope, chance: Random) -> None:
    events = history(chance, scope)
    lived = [delivered(one) for one in events] + [tombstone(one) for one in forgotten_of(chance, events)]
    mind = told(lived, chance)
    if mind.snapshot is None:
        assert (mind.facts, mind.reflections, mind.blob) == ({}, {}, None)
        return
    active = [one for one in mind.facts.values() if one.active]
    assert mind.snapshot.active_facts == len(active)
    assert {one.fact_id for one in mind.snapshot.recent_facts} == {one.id for one in active}
    assert len({one.hash for one in active}) == len(active)
    waiting = {one.id for one in mind.reflections.values() if not (one.absorbed or one.retired_at)}
    assert {one.reflection_id for one in mind.snapshot.buffer} == waiting
    said = [one.said_at for one in mind.snapshot.buffer]
    assert said == sorted(said)
    stored = [one for one in mind.blobs.values() if not one.gone]
    for one in mind.reflections.values():
        listing = [blob.version for blob in stored if one.id in blob.absorbed]
        assert one.absorbed_into == min(listing, default=None)
    newest = max(stored, key=lambda one: one.version, default=None)
    assert mind.snapshot.blob_version == (newest.version if newest else 0)
    assert mind.snapshot.blob_said_at == (newest.said_at if newest else None)
    assert mind.snapshot.pins == (newest.pins if newest else ())
    assert mind.snapshot.highest_blob_version == max(mind.blobs, default=0)


@SCOPES
@given(chance=chances)
def test_documents_hold_what_a_reader_accepts(scope: Scope, chance: Random) -> None:
    lived = [delivered(one) for one in history(chance, scope)]
    if not lived:
        return
    mind = told(lived, chance)
    for document in (*mind.facts.values(), *mind.reflections.values()):
        assert type(document).model_validate(document.stored()) == document
