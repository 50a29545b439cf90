"""When something happened: only as a fact's own text says, whatever a model answers."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.formation.scope_assignment import occurrence, still_said
from tests.unit.formation.extraction.windows import Bench, fact, stating, talk

MOVED = "Ana moved to Graz on 3 March 2026."


def on(*day: int) -> datetime:
    return datetime(*day, tzinfo=UTC)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("answer", "text", "moment"),
    [
        ("2026-03-03", MOVED, on(2026, 3, 3)),
        ("2026-03", MOVED, on(2026, 3, 1)),
        ("2026", MOVED, on(2026, 1, 1)),
        ("2026-03-03T14:05:00+01:00", MOVED, on(2026, 3, 3, 14, 5)),
        ("2026-01-01T00:30+02:00", "Ana moved in 2026.", on(2026, 1, 1, 0, 30)),
        ("2026-03-03/2026-03-09", MOVED, on(2026, 3, 3)),
        ("2019", "安娜从２０１９年起住在格拉茨。", on(2019, 1, 1)),
        ("2026-02-30", MOVED, None),
        ("3 March 2026", MOVED, None),
        ("yesterday", MOVED, None),
        ("", MOVED, None),
        (None, MOVED, None),
        ("2025-03-03", MOVED, None),
        ("2026-03-03", "Ana moved to Graz.", None),
        ("2026", "Ana's number is 120266.", None),
        ("0001-01-01T00:00:00+05:00", "In 0001.", on(1, 1, 1)),
    ],
)
def test_it_is_a_date_month_year_or_beginning_that_the_text_names(
    answer: str | None, text: str, moment: datetime | None
) -> None:
    assert occurrence(answer, text) == moment


@given(st.text(), st.text())
def test_no_answer_of_a_model_fails(answer: str, text: str) -> None:
    assert occurrence(answer, text) is None or any(character.isdecimal() for character in text)


def test_a_changed_text_keeps_the_first_moment_whose_year_it_names() -> None:
    assert still_said("Moved in 2025, then in 2026.", None, on(2024, 1, 1), on(2026, 3, 3)) == on(2026, 3, 3)
    assert still_said("Moved.", on(2026, 3, 3)) is None


async def test_a_fact_bears_it_and_one_that_invents_it_does_not() -> None:
    stated = (
        fact(MOVED, "user", 1).model_copy(update={"occurred_at": "2026-03-03"}),
        fact("Ana likes Graz.", "user", 1).model_copy(update={"occurred_at": "2026-03-02"}),
    )
    extracted, (proposed,) = await Bench(talk("a"), stating(*stated)).facts()
    assert [fact.occurred_at for fact in extracted.facts] == [on(2026, 3, 3), None]
    assert [fact.occurred_at for fact in proposed.facts] == [on(2026, 3, 3), None]
