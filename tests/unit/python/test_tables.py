"""Tables on a terminal of 80 columns, and piped."""

import io
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from rich.console import Console

from eden_memory.cli import keys, sessions, topic_commands
from eden_memory.cli.replay.reform_report import estimated, show
from eden_memory.cli.tables import console, show_table, width
from eden_memory.kafka.topics import Topics, load_topics
from eden_memory.replay.comparing.report import MemoryReport
from eden_memory.replay.reform.reform_plan import ReformPlan
from eden_memory.schemas.documents import ApiKey, ReformAsked, ReformCalls
from eden_memory.settings import Settings
from eden_memory.usage.usage_store import UsageSum, together

MODEL = "openai gpt-4.1-mini-2025-04-14"
ROW = ("✓", MODEL, "facts, decisions, reflections", "structured output, caching", "0.41 s", "0.4 in, 1.6 out")
COLUMNS = ("", "model", "used for", "supports", "latency", "$ per million tokens")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_no_header_and_no_whole_cell_breaks_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", shown := Terminal())
    show_table(COLUMNS, [ROW], "", whole=("model", "latency"))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert all(
        any(word in line for line in lines) for word in (MODEL, "0.41 s", "million", "supports", "latency")
    )


def test_piped_a_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(COLUMNS, [ROW], "")
    assert len(capsys.readouterr().out.splitlines()) == 2


def shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, show: Callable[[], None]) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", shown := Terminal())
    show()
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()).splitlines()


def test_a_table_too_wide_for_the_terminal_becomes_a_line_for_each_cell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [(name, "-".join(["scope"] * 6), "") for name in ("a" * 40, "b" * 40)]
    lines = shown_on_a_terminal(
        monkeypatch, 60, lambda: show_table(("window", "scopes", "why"), rows, "", whole=("window", "scopes"))
    )
    assert lines == [
        f"window  {'a' * 40}",
        "scopes  scope-scope-scope-scope-scope-scope",
        "",
        f"window  {'b' * 40}",
        "scopes  scope-scope-scope-scope-scope-scope",
    ]


USER = "user 3f2a7c1e-9b4d-4e8a-a1c2-5d6e7f809a1b"
FACT = ("0.482", USER, "Rui owns a red boat that lies in Cascais.", "2026-03-04 12:00", "v1", "0" * 32)
FACTS = ("score", "scope", "fact", "since", "version", "id")


@pytest.mark.parametrize("columns", [80, 99])
def test_ids_are_whole_and_a_table_stays_one_where_users_are_uuids(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    lines = shown_on_a_terminal(monkeypatch, columns, lambda: show_table(FACTS, [FACT], ""))
    assert all(len(line) <= columns for line in lines)
    assert lines[0].split() == ["score", "fact", "since", "version"]
    assert any(USER in line for line in lines)
    assert any("0" * 32 in line for line in lines)


def test_dates_are_broken_between_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = (
        "scope",
        "blob words",
        "version",
        "reflections",
        "buffered",
        "facts",
        "consolidated",
        "changed",
    )
    row = ("user", 0, "", 1, 1, 4, "", "2026-11-23 03:39")
    lines = shown_on_a_terminal(monkeypatch, 80, lambda: show_table(columns, [row], ""))
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[-1] for line in lines[-2:]] == ["2026-11-23", "03:39"]


def differing() -> MemoryReport:
    report = MemoryReport(live="original", shadow="trial-with-another-prompt", most=None)
    none = together(())
    counts = {**none.counts, "calls": 12_345, "input_tokens": 123_456_789, "output_tokens": 9_876_543}
    spent = UsageSum(None, Decimal("1234.5678"), counts)
    report.spent = {"reflection-extraction": (spent, spent), "fact-dedup": (spent, none)}
    return report


def test_a_comparison_is_not_cut_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown_on_a_terminal(monkeypatch, 80, lambda: show(console(), differing()))
    assert all(len(line) <= 80 for line in lines)
    assert not any("…" in line for line in lines)
    figures = " ".join(lines)
    assert all(one in figures for one in ("trial-with-another-prompt", "133,333,332", "1234.5678", "24,690"))


def test_an_estimate_is_not_cut_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = ReformCalls(
        stage="reflection-extraction",
        calls=12_345,
        input_tokens=123_456_789,
        output_tokens=9_876_543,
        usd=Decimal("1234.56"),
        reused=1_234,
    )
    (table,) = (
        one
        for one in estimated("trial", ReformAsked(), ReformPlan(0, 0, (calls,)), None)
        if not isinstance(one, str)
    )
    lines = shown_on_a_terminal(
        monkeypatch, 80, lambda: Console(highlight=False, soft_wrap=True, width=width()).print(table)
    )
    assert all(len(line) <= 80 for line in lines)
    assert all(
        one in lines[1] for one in ("reflection-extraction", "123,456,789", "9,876,543", "1234.56", "1,234")
    )


def key(name: str, **more: Any) -> ApiKey:
    return ApiKey.model_validate(
        {
            "_id": "0123456789abcdef" * 4,
            "name": name,
            "rights": ("read", "write"),
            "users": ("s.ada-lovelace-of-london", "s.bob"),
            "requests_per_minute": 600,
            "created_at": datetime(2026, 3, 4, 12, tzinfo=UTC),
            "last_used_at": datetime(2026, 5, 6, 13, tzinfo=UTC),
            **more,
        }
    )


@pytest.fixture
def two_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    async def given(work: Any) -> list[ApiKey]:
        return [key("support-application"), key("mine", agents=("s.default",))]

    monkeypatch.setattr(keys, "_with_keys", given)


WHOLE = ("01234567", "support-application", "s.ada-lovelace-of-london", "600", "2026-03-04", "2026-05-06")


@pytest.mark.usefixtures("two_keys")
@pytest.mark.parametrize("everything", [False, True])
def test_keys_are_whole_at_80_columns(monkeypatch: pytest.MonkeyPatch, everything: bool) -> None:
    lines = shown_on_a_terminal(monkeypatch, 80, lambda: keys.list_(everything=everything))
    assert all(len(line) <= 80 for line in lines)
    assert [word for word in WHOLE if not any(word in line for line in lines)] == []


@pytest.mark.usefixtures("two_keys")
def test_piped_a_key_is_one_line_and_every_cell_stands_under_its_header(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keys.list_()
    head, first, _ = capsys.readouterr().out.splitlines()
    starts = {name: head.index(name) for name in ("hash", "name", "per minute", "created", "last used")}
    stands = {name: first[at:].split("  ")[0] for name, at in starts.items()}
    assert stands == {
        "hash": "0123456789abcdef"[: len(stands["hash"])],
        "name": "support-application",
        "per minute": "600",
        "created": "2026-03-04 12:00",
        "last used": "2026-05-06 13:00",
    }


@pytest.fixture
def one_window(monkeypatch: pytest.MonkeyPatch) -> str:
    formation = f"s.session-{'7' * 24}:00000000000000000042"
    window = {
        "formation_id": formation,
        "messages": 45,
        "because": "messages",
        "at": datetime(2026, 3, 4, 12, tzinfo=UTC),
        "requested": False,
    }

    async def found(settings: Settings, session: str) -> dict[str, Any]:
        return {"session_id": session, "pending": 3, "waits_for": None, "windows": [window]}

    monkeypatch.setattr(sessions, "_windows", found)
    return formation


def test_windows_are_whole_at_80_columns(monkeypatch: pytest.MonkeyPatch, one_window: str) -> None:
    lines = shown_on_a_terminal(monkeypatch, 80, lambda: sessions.windows("s"))
    assert all(len(line) <= 80 for line in lines)
    assert any(one_window in line for line in lines)
    assert any("waits" in line for line in lines)
    assert lines[-1] == "3 messages wait for their window"


def test_piped_a_window_is_one_line(capsys: pytest.CaptureFixture[str], one_window: str) -> None:
    sessions.windows("s")
    head, row, waiting = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "window"
    assert row.split() == [one_window, "45", "messages", "2026-03-04", "12:00", "waits"]
    assert waiting.startswith("3 messages")


class NoTopics:
    """A broker that holds none of ours."""

    def found(self, asked: Topics) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("prefix", ["", "production-eu-west-1."])
@pytest.mark.parametrize("columns", [80, None])
def test_topics_and_their_groups_are_never_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], prefix: str, columns: int | None
) -> None:
    declared = load_topics(Settings().kafka.model_copy(update={"topic_prefix": prefix}))
    monkeypatch.setattr(topic_commands, "_connected", lambda: (declared, NoTopics()))
    if columns is None:
        topic_commands.describe()
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1 + len(list(declared))
    else:
        lines = shown_on_a_terminal(monkeypatch, columns, topic_commands.describe)
        assert all(len(line.rstrip()) <= columns for line in lines)
    ours = list(declared)
    names = {one.name for one in ours} | {
        name for one in ours for name in (*one.declaration.events, *one.declaration.groups)
    }
    assert {name for name in names if not any(name in line for line in lines)} == set()


def test_one_topic_is_described_within_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = load_topics(Settings().kafka)
    monkeypatch.setattr(topic_commands, "_connected", lambda: (declared, NoTopics()))
    for one in declared:
        lines = shown_on_a_terminal(monkeypatch, 80, lambda name=one.name: topic_commands.describe(name))
        assert all(len(line) <= 80 for line in lines)
        assert lines[0] == f"{one.name}:"
        assert all(any(name in line for line in lines) for name in one.config)
