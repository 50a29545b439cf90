"""What was forgotten while it was decided is ended behind its own record, whoever else forgets meanwhile."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from eden_memory.processors import pipeline
from eden_memory.schemas.events import REGISTRY, Event, FactsProposed
from eden_memory.schemas.provenance import Statement
from eden_memory.stages.codec import Encoder
from eden_memory.stages.outcome import StageOutcome, StoredRecord
from eden_memory.stages.outcome_publishing import OutcomePublishing
from eden_memory.stages.stage import Delivery, Emit, Emitted, Erase, Stage
from tests.unit.memory.memory_histories import NOON, USER, delivered, fact, source


async def handled(deliveries: Sequence[Delivery]) -> Sequence[Emitted]:
    return ()


STAGE = Stage(pipeline.FACT_EXTRACTION, handled, reads=())
ASKED = delivered(fact("asked"))
UNIT: Any = SimpleNamespace(home=SimpleNamespace(revoked=False), items=[SimpleNamespace(retry=0)])


def proposed(*messages: int) -> FactsProposed:
    said = (
        Statement(number=number, text=f"Said {number}.", formation_id="w", sources=(source(number),))
        for number in messages
    )
    return FactsProposed(
        cause="c",
        formation_id="w",
        session_id="s.one",
        scope=USER,
        facts=tuple(said),
        formed_at=NOON,
        settings_version="1",
    )


class Servers:
    """Records what is published; after each look, another message is forgotten: the first, then the second."""

    def __init__(self) -> None:
        self.published: list[StoredRecord] = []
        self.looked: list[list[Event]] = []

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        self.published += records

    async def end(self, key: str, events: Sequence[Event], decided: Sequence[Delivery]) -> Sequence[Emitted]:
        assert (key, decided) == ("outcome", [ASKED, ASKED])
        cause = decided[-1]
        self.looked.append(list(events))
        left: list[Emitted] = [
            Emit(proposed(2), cause, identity="e"),
            Erase(FactsProposed, proposed(2).key(), USER.key, "w", "forgotten", cause=cause),
        ]
        return left[len(self.looked) - 1 :][:1]


async def decided(servers: Servers, *events: Event, redelivered: bool) -> None:
    around: Any = SimpleNamespace(
        publisher=servers,
        clock=lambda: NOON,
        registry=REGISTRY,
        letters=None,
        end_published=servers.end,
    )
    encoder = Encoder(STAGE.name, lambda of: of.NAME)
    records = encoder.records(events, [ASKED])
    outcome = StageOutcome("outcome", STAGE.name, ("m",), (), records, "t", 0, 1, NOON)
    publishing = OutcomePublishing(STAGE, encoder, around)
    await publishing.decided(UNIT, [ASKED, ASKED], outcome, None if redelivered else events)


@pytest.mark.parametrize("redelivered", [True, False])
async def test_the_last_record_of_a_key_holds_nothing_that_is_forgotten(redelivered: bool) -> None:
    servers, first = Servers(), proposed(1, 2)
    await decided(servers, first, redelivered=redelivered)
    assert [record.value and b"Said 1" in record.value for record in servers.published] == [True, False, None]
    assert servers.looked == [[first], [proposed(2)]], "once more for what was published meanwhile"


@pytest.mark.parametrize("redelivered", [True, False])
async def test_a_decision_without_events_is_looked_at_once_with_all_that_was_decided(
    redelivered: bool,
) -> None:
    servers = Servers()
    servers.looked.append([])
    servers.looked.append([])  # nothing is behind
    await decided(servers, redelivered=redelivered)
    assert (servers.published, servers.looked[2:]) == ([], [[]])
