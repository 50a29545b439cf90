"""The arithmetic of `eden eval`: ranks, answers, budgets, intervals, decisions, and answers kept in a file."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eden_memory.errors import EdenError
from eden_memory.evals.dataset import DecisionLine
from eden_memory.evals.judging import order_score
from eden_memory.evals.own_memory import outcome
from eden_memory.evals.spending import AnswerFile
from eden_memory.evals.systems import (
    ALL,
    MemoryItem,
    bootstrapped,
    contains,
    difference,
    exact,
    f1,
    found_quality,
    fused,
    newer_above,
    packed,
    share,
    tokens,
)
from eden_memory.schemas.documents import Answer

NEW, OLD, OTHER = frozenset("n"), frozenset("o"), frozenset("x")


def test_recall_counts_messages_and_gain_counts_places() -> None:
    assert found_quality([NEW, OTHER, OLD], frozenset("no")) == pytest.approx((1.0, 0.9197), abs=1e-4)
    assert found_quality([NEW | OLD], frozenset("no")) == (1.0, 1.0)
    assert found_quality([OTHER, NEW], NEW, k=1) == (0.0, 0.0)
    assert found_quality([NEW, NEW], NEW) == (1.0, 1.0), "a message counts once"


def test_the_newer_has_to_be_found_and_to_stand_above() -> None:
    assert newer_above([NEW, OLD], NEW, OLD)
    assert newer_above([NEW | OLD], NEW, OLD), "one fact that bears both is the newer one"
    assert not newer_above([OLD, NEW], NEW, OLD)
    assert not newer_above([OTHER], NEW, OLD)


def test_an_order_is_scored_by_ranks() -> None:
    assert order_score([1, 2, 3], 3) == 1
    assert order_score([3, 2, 1], 3) == 0
    assert order_score([], 3) == 0
    assert order_score([1, 3, 2], 3) == pytest.approx(2 / 3)
    assert order_score([1, 2], 3) > order_score([1, 0, 2], 3) > order_score([0, 0, 0], 3), "strangers cost"
    assert order_score([1, 1, 2], 2) < order_score([1, 2], 2), "a repeated item is a stranger"


def test_an_interval_is_bootstrapped_over_questions_and_the_same_each_time() -> None:
    found = bootstrapped([1.0] * 60 + [0.0] * 40)
    assert found == bootstrapped([1.0] * 60 + [0.0] * 40)
    assert found.mean == pytest.approx(0.6)
    assert (found.low, found.high) == pytest.approx((0.5, 0.7), abs=0.03)
    narrow = bootstrapped([1.0] * 600 + [0.0] * 400)
    assert narrow.high - narrow.low < found.high - found.low


def test_answers_are_compared_in_any_script() -> None:
    assert exact("The Bracken Hill!", ["bracken hill"])
    assert contains("[2026] 他住在重庆。", ["重庆"])
    assert not contains("a scarf", ["car"])
    assert f1("on 8 August 2026", ["8 August"]) == pytest.approx(2 * 2 / 6)
    assert f1("東京に住む", ["東京"]) > 0


def test_a_budget_takes_the_best_that_fit_and_shows_them_by_time() -> None:
    def item(text: str, day: int) -> MemoryItem:
        return MemoryItem(text=text, at=datetime(2026, 1, day, tzinfo=UTC))

    best, long, second = item("best", 9), item("long " * 100, 1), item("second", 2)
    assert packed([best, long, second], 30) == [second, best]
    assert packed([best, long, second], ALL) == [long, second, best]
    assert tokens("重庆") == 2 > tokens("word")


def test_reciprocal_ranks_are_added() -> None:
    assert fused([1, 2, 3], [3, 1]) == [1, 3, 2]


def test_intervals_say_how_sure_a_share_is() -> None:
    assert share(0, 30).high == pytest.approx(0.1135, abs=1e-3)
    assert share(0, 0) == (0, 0, 0.0, 1.0)
    assert difference([0.0] * 20, [1.0] * 19 + [0.0]).verdict == "better"
    assert difference([0.0, 1.0], [1.0, 0.0]).verdict.startswith("too close to tell")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("Lives in Leeds.", True), ("Lives in York.", True)], "ADD"),
        ([("Lives in Leeds.", True)], "NONE"),
        ([("Lives in York, once in Leeds.", True)], "UPDATE"),
        ([("Lives in Leeds.", False), ("Lives in York.", True)], "DELETE"),
    ],
)
def test_what_is_stored_says_what_was_decided(rows: list[tuple[str, bool]], expected: str) -> None:
    line = {"kind": "decision", "id": "1", "known": ["Lives in Leeds."], "new": "Lives in York."}
    case = DecisionLine.model_validate({**line, "expected": "DELETE"})
    stored: list[dict[str, Any]] = [
        {"content": text, "active": active, "retired_because": None if active else "contradicted"}
        for text, active in rows
    ]
    assert outcome(case, stored) == expected


def answer(key: str) -> Answer:
    fields: dict[str, Any] = {"_id": key * 64, "call_id": key * 40, "operation": "chat", "model": "m"}
    return Answer.model_validate({**fields, "text": "{}", "answered_at": datetime(2026, 1, 1, tzinfo=UTC)})


async def test_answers_outlive_a_process_that_was_killed_while_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "answers.jsonl"
    file = AnswerFile(path)
    await file.keep(answer("a"))
    file.close()
    with path.open("ab") as cut:
        cut.write(b'{"_id": "bbb')
    again = AnswerFile(path)
    assert list(await again.find([key * 64 for key in "ab"])) == ["a" * 64]
    await again.keep(answer("b"))
    await again.judged_invalid("b" * 64, "empty")
    again.close()
    last = AnswerFile(path)
    assert (await last.of_unit("", "b" * 64))["b" * 64].invalid == "empty"
    last.close()


def test_a_file_of_anything_else_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text("precious\n")
    with pytest.raises(EdenError, match="not an answer"):
        AnswerFile(path)
    assert path.read_text() == "precious\n"
