"""A cost that nobody knows is not 0."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import cast

from eden_memory.cli.following_commands import _figures  # pyright: ignore[reportPrivateUsage]
from eden_memory.memory.memory_views import FactHistory, FactView, VersionView
from eden_memory.metrics import known_cost
from eden_memory.observability.watching import FormationProgress
from tests.calls import called


def test_a_sum_is_unknown_where_no_price_in_it_is_known() -> None:
    assert known_cost(Decimal(0), 2, 2, 100) is None
    assert known_cost(Decimal(0), 0, 0, 100) is None, "a share of a request that another sum counts"
    assert known_cost(Decimal(0), 2, 0, 0) == 0, "both were refused"
    assert known_cost(Decimal("0.5"), 2, 1, 100) == Decimal("0.5")


def test_progress_says_unknown_and_counts_a_shared_request_once() -> None:
    progress = FormationProgress()
    progress.called(called("a", input_tokens=5))
    progress.called(called("b", input_tokens=5, requests=0))
    progress.called(called("c", outcome="rate_limited"))
    assert _figures(progress.total) == ("2", "1", "10", "0", "unknown")
    progress.called(called("d", input_tokens=5, cost_usd=Decimal("0.25")))
    assert _figures(progress.total) == ("3", "1", "15", "0", "0.2500 + 1 unknown")


def test_a_facts_history_has_an_unknown_cost_where_a_model_decided_at_an_unknown_price() -> None:
    assert history(None, None).cost_usd == 0, "no model was asked"
    assert history("m", None).cost_usd is None
    assert history("m", Decimal("0.1")).cost_usd == Decimal("0.1")


def history(model: str | None, cost: Decimal | None) -> FactHistory:
    at = datetime(2026, 3, 2, tzinfo=UTC)
    version = VersionView(1, "text", "ADD", None, at, None, None, None, model, None, cost)
    return FactHistory(cast("FactView", None), (version,))
