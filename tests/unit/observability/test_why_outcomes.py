"""The outcome that a message is said to have, from what is stored of it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from eden_memory.context.written_message_store import WrittenMessage
from eden_memory.observability.why_store import BECAUSE, MessageFate, explained_message
from eden_memory.schemas.events import FactsExtracted
from eden_memory.stages.outcome import StageOutcome
from tests.unit.formation.extraction.windows import talk

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SAID = WrittenMessage("s.m", "s.1", "user", "Pixel barks.", NOW, NOW)
ROW: dict[str, Any] = {
    **{"formation_id": None, "place": 1},
    **dict.fromkeys(("deleted", "opted_out", "forgotten"), False),
}
FORMED = ROW | {"formation_id": "f"}
WINDOW: dict[str, Any] = {"_id": "f", "closed": {"because": "cold", "at": NOW}, "messages": [{}]}
NOTHING = FactsExtracted(cause="e0", window=talk("Pixel barks.").requested.window(), outcome="empty")
FACT = {"_id": "x", "active": True, "formed_at": NOW, "scope": "user", "content": "Pixel barks."}


def outcome(dead: str | None = None) -> StageOutcome:
    return StageOutcome("k", "fact-extraction", (), (), (), "t", 0, 0, NOW, dead=dead)


def fate(**known: Any) -> MessageFate:
    return MessageFate(SAID, **known)


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        (fate(), "not_recorded"),
        (fate(row=ROW), "waiting"),
        (fate(row=ROW, forgotten=True), "forgotten"),
        (fate(row=ROW | {"forgotten": True}), "forgotten"),
        (fate(row=ROW | {"opted_out": True}), "switched_off"),
        (fate(row=ROW, switched_off=True), "switched_off"),
        (fate(switched_off=True), "switched_off"),
        (fate(row=ROW | {"place": None}), "not_recorded"),
        (fate(row=FORMED, window=WINDOW), "being_formed"),
        (fate(row=FORMED, window=WINDOW | {"waits_for": "budget */*/day"}), "over_budget"),
        (fate(row=FORMED, window=WINDOW | {"waits_for": "no document s.1"}), "waits_for_document"),
        (fate(row=FORMED, outcomes=[outcome()], events=[NOTHING]), "nothing_proposed"),
        (fate(row=FORMED, outcomes=[outcome("reason")]), "dead"),
        (fate(row=FORMED, outcomes=[outcome("reason")], facts=[FACT]), "remembered"),
        (fate(row=FORMED, facts=[FACT | {"active": False, "retired_because": "limit"}]), "retired"),
    ],
)
def test_each_outcome_has_a_reason(known: MessageFate, wanted: str) -> None:
    found = explained_message(known)
    assert found.outcome == wanted
    assert found.because.startswith(BECAUSE[found.outcome])
    assert (found.content is None) == (wanted in ("forgotten", "switched_off"))


def test_a_reason_that_is_no_longer_stored_is_not_made_up() -> None:
    assert "not known" in explained_message(fate(row=FORMED, outcomes=[outcome()])).because
