"""What the offline rules decide of a new fact beside the known ones."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.formation.prompt_material import DecisionMaterial, KnownLine, NewFact, fact_label
from eden_memory.schemas.answers import FactDecision, FactDecisions
from tests.unit.formation.dedup.dedup_kit import WordEmbedder
from tests.unit.formation.offline.formed_memory import Memory, answered, lines

SAME = [
    ("Ann Berg is allergic to peanuts.", "Ann Berg has a peanut allergy.", 0.97),
    ("The office opens at 8:30 on Mondays.", "On Mondays the office opens at 8:30.", 0.98),
    ("Ann Berg's brother Tim, a cook, lives in Oslo.", "Ann Berg's brother Tim lives in Oslo.", 0.9),
]
CHANGED = [
    ("The release is planned for 12 June 2026.", "The release is moved to 19 June 2026.", 0.91),
    ("The meeting room holds 12 people.", "The meeting room holds 20 people.", 0.91),
    ("The weekly meeting is on Tuesdays.", "The weekly meeting is on Wednesdays.", 0.97),
    ("Ann Berg lives in Lisbon.", "Ann Berg lives in Porto now.", 0.94),
    ("Ann Berg lives in Graz.", "Ann Berg has moved to Linz.", 0.9),
    ("Ann Berg works at Siemens.", "Ann Berg now works at Bosch.", 0.93),
    ("Ann Berg's rent is 900 euros.", "Ann Berg's rent increased to 1,050 euros.", 0.93),
    ("Ann Berg's salary is 50,000 euros.", "Ann Berg's salary went up to 55,000 euros.", 0.93),
    ("Ann Berg's appointment is on 3 May.", "Ann Berg's appointment was rescheduled to 9 May.", 0.93),
    ("The rent is 900 euros a month.", "Starting in June, the rent is 1,050 euros a month.", 0.93),
    ("Ann Berg pays 900 euros in rent.", "From July on Ann Berg pays 1,000 euros in rent.", 0.93),
    ("The team meeting is on Mondays.", "The team meeting is on Wednesdays starting next week.", 0.93),
]
ENDED = [
    ("Ann Berg eats meat.", "Ann Berg no longer eats meat.", 0.93),
    ("Ann Berg likes heavy metal.", "Ann Berg dislikes heavy metal.", 0.96),
    ("Ann Berg dislikes heavy metal.", "Ann Berg likes heavy metal.", 0.96),
    ("Ann Berg is allergic to peanuts.", "Ann Berg is not allergic to peanuts.", 0.97),
    ("The supplier delivers resin to the yard.", "The supplier no longer delivers resin to the yard.", 0.89),
]
OTHER = [
    ("Ann Berg's brother Tim lives in Oslo.", "Ann Berg's brother Carl lives in Bergen.", 0.88),
    ("Ann Berg has a nut allergy.", "Ann Berg has a dog called Skip.", 0.77),
    ("Ann Berg visited Rome in May 2024.", "Ann Berg visited Paris in June 2025.", 0.91),
    ("Ann Berg bought a Volvo in 1998.", "Ann Berg bought a house in 2004.", 0.85),
    ("Ann Berg's mother turns 80 on 21 June 2026.", "Ann Berg's father turns 85 on 2 May 2026.", 0.96),
    ("Nine bolts are 310 mm long.", "The planks are 22 mm thick.", 0.71),
    ("Ann Berg's aunt's phone number is 555-0147.", "Ann Berg's uncle's phone number is 555-0148.", 0.97),
    ("Ann Berg's favourite colour is blue.", "Ann Berg's favourite colour is green.", 0.97),
    ("Lena plays the piano.", "Lena plays the violin now.", 0.93),
    ("The release is planned for 12 June 2026.", "The release date is 12 June 2026.", 0.97),
    ("Ann Berg has two brothers, Tim and Carl.", "Tim and Carl are Ann Berg's brothers.", 0.97),
    ("Ann Berg's sister Lea lives in Lund.", "Ann Berg lives in Lund.", 0.93),
    ("Ann Berg moved from Lund to Oslo.", "Ann Berg moved from Oslo to Lund.", 0.99),
    ("Ann Berg worked in Oslo.", "Ann Berg works in Oslo.", 0.98),
    ("Ann Berg wants to work in Oslo.", "Ann Berg works in Oslo.", 0.95),
    ("Ann Berg has a dog called Skip.", "Ann Berg has a new dog called Rex.", 0.93),
    ("Ann Berg pays 900 euros for rent.", "Ann Berg pays 90 euros for insurance.", 0.9),
    ("Ann Berg meets Carl on Monday.", "Ann Berg meets Tim on Tuesday.", 0.95),
    ("Ann Berg likes coffee and hates tea.", "Ann Berg likes coffee.", 0.95),
    ("Ann Berg lives in Lund.", "Ann Berg no longer lives in Oslo.", 0.93),
    ("Ann Berg drinks coffee.", "Ann Berg no longer drinks coffee on Mondays.", 0.93),
    ("User lives in Linz now.", "User works at Bosch now.", 0.8),
    ("Ann Berg's team has 3 offices.", "Ann Berg's team grew to 12 people.", 0.93),
    ("Ann Berg lives in Lund.", "Ann Berg moved to Oslo in May 2024.", 0.93),
    ("Ann Berg's desk is on the first floor.", "Ann Berg's desk moved to Friday.", 0.93),
    ("User lives in Oslo.", "User moved to Marketing.", 0.73),
    ("Ann Berg lives in Oslo.", "Ann Berg has moved to Customer Support.", 0.9),
]


async def decided(known: str, new: str, similarity: float) -> FactDecision | None:
    material = DecisionMaterial((KnownLine(known, similarity),), (NewFact(new, (1,), (similarity,)),), 30)
    decisions = (await answered(material, FactDecisions)).decisions
    return decisions[0] if decisions else None


async def test_another_value_that_was_said_before_overrules_nothing() -> None:
    may, june = (datetime(2026, month, 2, tzinfo=UTC) for month in (5, 6))
    texts = ("Ann Berg's boat is due on 9 May.", "Ann Berg's boat is due on 3 May.")
    found: list[str] = []
    for known_at, new_at in ((may, june), (june, may)):
        known, new = KnownLine(texts[0], 0.95, known_at), NewFact(texts[1], (1,), (0.95,), new_at)
        (one,) = (await answered(DecisionMaterial((known,), (new,), 30), FactDecisions)).decisions
        found.append(one.decision)
    assert found == ["UPDATE", "DELETE"]


@pytest.mark.parametrize(("older", "newer", "similarity"), [*CHANGED, *ENDED])
async def test_an_older_statement_that_comes_later_is_overruled(
    older: str, newer: str, similarity: float
) -> None:
    may, june = (datetime(2026, month, 2, tzinfo=UTC) for month in (5, 6))
    known, late = KnownLine(newer, similarity, june), NewFact(older, (1,), (similarity,), may)
    (one,) = (await answered(DecisionMaterial((known,), (late,), 30), FactDecisions)).decisions
    assert (one.decision, one.existing) == ("DELETE", "K1")


@pytest.mark.parametrize(("older", "newer", "similarity"), OTHER)
async def test_an_older_statement_of_something_else_is_added(
    older: str, newer: str, similarity: float
) -> None:
    may, june = (datetime(2026, month, 2, tzinfo=UTC) for month in (5, 6))
    known, late = KnownLine(newer, similarity, june), NewFact(older, (1,), (similarity,), may)
    decisions = (await answered(DecisionMaterial((known,), (late,), 30), FactDecisions)).decisions
    assert [one.decision for one in decisions] in ([], ["NONE"])


@pytest.mark.parametrize(("known", "new", "similarity"), SAME)
async def test_the_same_in_other_words_is_known_already(known: str, new: str, similarity: float) -> None:
    decision = await decided(known, new, similarity)
    assert decision
    assert (decision.decision, decision.existing, decision.text) == ("NONE", "K1", None)


@pytest.mark.parametrize(("known", "new", "similarity"), CHANGED)
async def test_another_value_of_the_same_updates(known: str, new: str, similarity: float) -> None:
    decision = await decided(known, new, similarity)
    assert decision
    assert (decision.decision, decision.existing, decision.text) == ("UPDATE", "K1", new)


@pytest.mark.parametrize(("known", "new", "similarity"), ENDED)
async def test_what_no_longer_holds_retires_what_is_known(known: str, new: str, similarity: float) -> None:
    decision = await decided(known, new, similarity)
    assert decision
    assert (decision.decision, decision.existing, decision.text) == ("DELETE", "K1", None)


@pytest.mark.parametrize(("known", "new", "similarity"), OTHER)
async def test_another_statement_is_added_however_near(known: str, new: str, similarity: float) -> None:
    assert await decided(known, new, similarity) is None


@pytest.mark.parametrize(
    ("said", "active"),
    [
        (
            ("My aunt's phone number is 555-0147.", "My uncle's phone number is 555-0148."),
            {"Ann Berg's aunt's phone number is 555-0147.", "Ann Berg's uncle's phone number is 555-0148."},
        ),
        (
            ("My sister Lena plays the piano.", "My sister Lena plays the violin now."),
            {"Ann Berg's sister Lena plays the piano.", "Ann Berg's sister Lena plays the violin now."},
        ),
        (
            ("I am allergic to peanuts.", "I am not allergic to peanuts."),
            {"Ann Berg is not allergic to peanuts."},
        ),
        (
            ("I live in Lund.", "My sister Lea lives in Lund."),
            {"Ann Berg lives in Lund.", "Ann Berg's sister Lea lives in Lund."},
        ),
        (("I live in Lund.", "I live in Lund!"), {"Ann Berg lives in Lund."}),
    ],
)
@pytest.mark.parametrize("windows", [1, 2])
async def test_what_changed_is_never_taken_for_known(
    said: tuple[str, str], active: set[str], windows: int
) -> None:
    embedder: Any = WordEmbedder()
    memory = Memory(embedder)
    messages = lines(*(("Ann Berg", text) for text in said))
    for window in [messages] if windows == 1 else [messages[:1], messages[1:]]:
        await memory.form(window, {"user": "user:ann"})
    assert {text for text, _ in memory.facts["user:ann"]} == active


@pytest.mark.parametrize(
    ("said", "blob"),
    [
        (
            ("My favourite colour is blue.", "My favourite colour is green."),
            "Ann Berg's favourite colour is blue.\nAnn Berg's favourite colour is green.",
        ),
        (("I like heavy metal.", "I dislike heavy metal."), "Ann Berg dislikes heavy metal."),
    ],
)
async def test_another_preference_is_kept_in_the_blob(said: tuple[str, str], blob: str) -> None:
    memory = Memory()
    for text in said:
        await memory.form(lines(("Ann Berg", text)), {"user": "user:ann", "session": "session:s"})
    assert [one.text for one in await memory.formed() if (one.kind, one.scope) == ("blob", "user:ann")] == [
        blob
    ]


async def test_numbers_behind_the_known_facts_mean_earlier_new_ones() -> None:
    new = ("Ann Berg lives in Oslo.", "Tim sells boats.", "Ann Berg lives in Oslo now.")
    facts = tuple(NewFact(text, (1, *range(2, 2 + at)), (0.7, *[0.95] * at)) for at, text in enumerate(new))
    material = DecisionMaterial((KnownLine("The office opens at 8:30.", 0.7),), facts, 30)
    (decision,) = (await answered(material, FactDecisions)).decisions
    assert (decision.fact, decision.decision, decision.existing) == ("N3", "NONE", "N1")


async def test_twenty_sessions_that_state_one_fact_leave_one() -> None:
    said = (
        "Ann Berg is allergic to peanuts.",
        "Ann Berg has a peanut allergy.",
        "Ann Berg has an allergy to peanuts.",
    )
    facts = tuple(NewFact(said[at % 3], tuple(range(1, at + 1)), (0.95,) * at) for at in range(20))
    decisions = (await answered(DecisionMaterial((), facts, 30), FactDecisions)).decisions
    assert [one.fact for one in decisions] == [f"N{number}" for number in range(2, 21)]
    assert {one.decision for one in decisions} == {"NONE"}


WORDS = ["Ann", "Oslo", "never", "not", "lives", "12", "20", "May", "Friday", "now", "moved", "boats"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8)


@given(
    known=st.lists(TEXTS, max_size=3),
    new=st.lists(TEXTS, max_size=3),
    words=st.integers(1, 6),
    data=st.data(),
)
async def test_only_facts_that_were_shown_are_named_and_texts_keep_the_limit(
    known: list[list[str]], new: list[list[str]], words: int, data: st.DataObject
) -> None:
    facts: list[NewFact] = []
    for at, text in enumerate(new):
        numbers = st.integers(1, max(len(known) + at, 1))
        shown = data.draw(st.lists(numbers, unique=True, max_size=5)) if len(known) + at else []
        facts.append(NewFact(" ".join(text), tuple(shown), (0.9,) * len(shown)))
    lines = tuple(KnownLine(" ".join(text), 0.9) for text in known)
    for one in (await answered(DecisionMaterial(lines, tuple(facts), words), FactDecisions)).decisions:
        candidates = facts[int(one.fact.removeprefix("N")) - 1].candidates
        assert one.existing in [fact_label(number, len(lines)) for number in candidates]
        assert (one.decision == "UPDATE") == (one.text is not None)
        assert len((one.text or "").split()) <= words
