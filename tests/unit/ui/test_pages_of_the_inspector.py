"""Parts of the inspector's pages: plots, amounts, ids, and where a sign-in may lead."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest

from eden_memory.access.visible import Asker
from eden_memory.api.ui.inspector_route import own_page
from eden_memory.api.ui.pages import SMALL, WIDTH, ago, bar_plot, brief, budget_plot, percent, plain_id, usd
from eden_memory.api.ui.story_routes import changes_of
from eden_memory.memory.memory_views import BlobVersionView, BlobView, FactHistory, fact_view, versions_of
from eden_memory.schemas.documents import FactVersion
from eden_memory.usage.budget_rules import Spending
from tests.integration.python.stored import ADA, AT, fact


def test_the_largest_bar_has_the_whole_height_and_none_leaves_the_plot() -> None:
    plot = bar_plot([(f"2026-01-{day:02}", Decimal(day % 5)) for day in range(1, 32)])
    assert max(bar.height for bar in plot.bars) == plot.base - plot.top
    assert all(plot.left <= bar.x and bar.x + bar.width <= plot.width for bar in plot.bars)
    assert all(bar.y + bar.height == pytest.approx(plot.base) for bar in plot.bars)
    assert 5 <= sum(bar.shown for bar in plot.bars) <= 8


@pytest.mark.parametrize("amounts", [[], [("2026-01-01", Decimal(0))]])
def test_a_plot_of_nothing_is_flat(amounts: list[tuple[str, Decimal]]) -> None:
    assert [bar.height for bar in bar_plot(amounts).bars] == [0.0] * len(amounts)


@pytest.mark.parametrize(("spent", "reserved"), [("1", "1"), ("3", "3"), ("9", "0"), ("0", "9"), ("2", "5")])
def test_a_budget_never_exceeds_its_bar(spent: str, reserved: str) -> None:
    for limit in ("4", "0"):
        spending = Spending("*/*/day", "day", Decimal(limit), "2026-01-01", Decimal(spent), Decimal(reserved))
        plot = budget_plot(spending)
        assert 0 <= plot.spent + plot.in_flight <= WIDTH
        assert min(plot.spent, plot.in_flight) >= 0


@pytest.mark.parametrize(
    "path",
    ["https://evil.example", "//evil.example", "/uix", "/v1", "", "/ui/\\evil", "/ui/\r\nSet-Cookie: a=b"],
)
def test_signing_in_leads_to_our_own_pages_only(path: str) -> None:
    assert own_page(path) == "/ui"
    assert own_page("/ui/fact?agent=a&id=x%2F1") == "/ui/fact?agent=a&id=x%2F1"


def test_amounts_and_ids_are_short_and_never_ambiguous() -> None:
    assert [usd(amount) for amount in (None, Decimal(0), Decimal("0.00123"), Decimal("1234.5"))] == [
        "unknown",
        "$0.00",
        "$0.0012",
        "$1,234.50",
    ]
    ids = ("s.ada", "s.ada%40example.com", "i.5", "s.i.5", "nobody", None)
    shown = ["ada", "ada@example.com", "i.5", "s.i.5", "nobody", ""]
    assert [plain_id(name) for name in ids] == shown
    assert [percent(1, 4), percent(1, 0)] == ["25%", "-"]


def test_a_small_plot_stays_within_its_size_and_its_labels_apart() -> None:
    plot = bar_plot([(f"2026-01-{day:02}", Decimal(day)) for day in range(1, 31)], SMALL)
    assert (plot.width, plot.height) == SMALL
    assert max(bar.height for bar in plot.bars) == plot.base - plot.top
    assert all(plot.left <= bar.x and bar.x + bar.width <= plot.width for bar in plot.bars)
    labels = [bar.x for bar in plot.bars if bar.shown]
    assert min(after - before for before, after in pairwise(labels)) > 40


@pytest.mark.parametrize(
    ("passed", "shown"),
    [
        (timedelta(seconds=5), "just now"),
        (timedelta(seconds=-5), "just now"),
        (timedelta(hours=25), "1 day ago"),
        (timedelta(days=-3, seconds=-9), "in 3 days"),
        (timedelta(days=70), "2 months ago"),
        (timedelta(days=900), "2 years ago"),
    ],
)
def test_times_are_told_in_their_largest_unit(passed: timedelta, shown: str) -> None:
    assert ago(datetime.now(UTC) - passed) == shown


def test_only_long_texts_are_folded_and_not_within_a_word() -> None:
    assert brief("word " * 100) == ""
    short = brief("word " * 300)
    assert short.endswith("word …")
    assert len(short) < 330
    assert len(brief("x" * 1_500)) < 330


def test_a_timeline_tells_what_was_learned_changed_and_retired_in_order() -> None:
    earlier = FactVersion(version=1, content="Ada lives in Porto.", decision="ADD", valid_from=AT)
    moved = fact("f1", ADA, "Ada lives in Faro.", 5, version=2, decision="UPDATE", history=(earlier,))
    left = fact("f2", ADA, "Ada rents.", 1, active=False, retired_at=AT + timedelta(minutes=9))
    asker = Asker("s.a", None, "s.ada")
    histories = [FactHistory(fact_view(of, ADA, asker), versions_of(of)) for of in (moved, left)]
    before = BlobVersionView(1, "Ada is in Porto.", AT + timedelta(minutes=2))
    blob = BlobView(ADA, "Ada is in Faro.", 2, 4, 300, AT + timedelta(minutes=7), AT, (before,))
    changes = changes_of(histories, (), blob)
    assert [(change.what, change.id) for change in changes] == [
        ("retired", "f2"),
        ("summed up", 2),
        ("changed", "f1"),
        ("summed up", 1),
        ("learned", "f2"),
        ("learned", "f1"),
    ]
    assert [(run.said, run.text) for run in changes[1].runs] == [
        ("same", "Ada is in"),
        ("gone", "Porto."),
        ("new", "Faro."),
    ]
    assert [change.before for change in changes if change.what == "learned"] == [None, None]
