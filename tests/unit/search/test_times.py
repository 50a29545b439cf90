"""Times that a question names: English phrases and ISO dates, resolved against the moment of asking."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.search.question_times import boost_dates, spans_of
from tests.unit.search.candidate_facts import NOW, fact, ids, scored


@pytest.mark.parametrize(
    ("question", "start", "end"),
    [
        ("What happened on 2025-11-02?", "2025-11-02", "2025-11-03"),
        ("plans of 2025-11", "2025-11-01", "2025-12-01"),
        ("Who came on May 23, 2025?", "2025-05-23", "2025-05-24"),
        ("Who came on the 23rd of May?", "2025-05-23", "2025-05-24"),
        ("Who came on 2 March?", "2026-03-02", "2026-03-03"),
        ("What did I buy in December?", "2025-12-01", "2026-01-01"),
        ("Where was she in July 2024?", "2024-07-01", "2024-08-01"),
        ("What did we decide in 2024?", "2024-01-01", "2025-01-01"),
        ("What did I say yesterday?", "2026-03-17", "2026-03-18"),
        ("the day before yesterday", "2026-03-16", "2026-03-17"),
        ("What did he do last week?", "2026-03-09", "2026-03-16"),
        ("this month's budget", "2026-03-01", "2026-04-01"),
        ("last month's budget", "2026-02-01", "2026-03-01"),
        ("last year", "2025-01-01", "2026-01-01"),
        ("Whom did I meet last weekend?", "2026-03-14", "2026-03-16"),
        ("on Monday", "2026-03-16", "2026-03-17"),
        ("last Wednesday", "2026-03-11", "2026-03-12"),
        ("three days ago", "2026-03-15", "2026-03-16"),
        ("last summer", "2025-06-01", "2025-09-01"),
        ("in the winter of 2024", "2024-12-01", "2025-03-01"),
    ],
)
def test_a_phrase_names_a_span(question: str, start: str, end: str) -> None:
    (span,) = spans_of(question, NOW)
    assert (span.start.date(), span.end.date()) == (date.fromisoformat(start), date.fromisoformat(end))


@pytest.mark.parametrize(
    "question",
    [
        "May I ask something?",
        "You may march.",
        "Who is Mark?",
        "on second thought",
        "31 February",
    ],
)
def test_words_that_name_no_time_name_none(question: str) -> None:
    assert not spans_of(question, NOW)


def test_weeks_ago_are_meant_roughly() -> None:
    (span,) = spans_of("two weeks ago", NOW)
    assert span.start < datetime(2026, 3, 4, 12, tzinfo=UTC) < span.end
    assert 6 <= (span.end - span.start).days <= 9


def test_facts_of_the_time_come_first_then_what_was_told_soon_after() -> None:
    spans = spans_of("What happened last week?", NOW)
    found = scored(
        (fact("long before", days=40), 0.5),
        (fact("that week", days=5), 0.5),
        (fact("today", days=0), 0.5),
        (fact("relevant", days=40), 0.9),
    )
    assert ids(boost_dates(found, spans, 0.2)) == ["relevant", "that week", "today", "long before"]
    assert boost_dates(found, (), 0.2) == found


@given(st.text(max_size=200), st.datetimes(timezones=st.just(UTC)))
def test_any_text_at_any_time_is_read_without_an_error(text: str, asked_at: datetime) -> None:
    assert all(span.start < span.end for span in spans_of(text, asked_at))
