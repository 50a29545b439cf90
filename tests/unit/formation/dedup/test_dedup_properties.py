"""What holds however proposals come together, whatever a model says, and however far the writer lags."""

import asyncio
import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.formation.decision_plan import DecisionPlan, NumberedFact
from eden_memory.formation.prompt_material import DecisionMaterial
from eden_memory.memory.memory_batch import fact_hash, fact_id
from eden_memory.schemas.answers import FactDecision
from eden_memory.schemas.events import FactChanged
from eden_memory.stages.stage import Delivery
from tests.unit.formation.dedup.dedup_kit import Bench, ScriptedModel, command, proposal, said

WORDS = ("ana", "lives", "in", "lyon", "porto", "rome", "with", "cat", "dog", "since", "may")
TEXT = st.lists(st.sampled_from(WORDS), min_size=2, max_size=5).map(" ".join)
PROPOSALS = st.lists(st.lists(TEXT, min_size=1, max_size=4), min_size=1, max_size=8)


def groups(items: Sequence[Delivery], cuts: Sequence[int]) -> list[list[Delivery]]:
    """The items in order, cut into units."""
    units: list[list[Delivery]] = []
    left, sizes = list(items), list(cuts)
    while left:
        size = sizes.pop() if sizes else 1
        units.append(left[:size])
        left = left[size:]
    return units


@given(PROPOSALS, st.lists(st.integers(1, 5), max_size=8), st.lists(st.booleans(), max_size=8))
def test_any_grouping_gives_one_active_fact_of_each_text_with_all_its_sources(
    texts: list[list[str]], cuts: list[int], applies: list[bool]
) -> None:
    kit = Bench()
    units = groups([proposal(f"p{number}", *one) for number, one in enumerate(texts)], cuts)

    async def run() -> None:
        for number, unit in enumerate(units):
            await kit.decide(*unit)
            if number < len(applies) and applies[number]:
                kit.memory.apply()

    asyncio.run(run())
    active = kit.memory.active()
    said_by: dict[str, set[str]] = {}
    for number, one in enumerate(texts):
        for place, text in enumerate(one, 1):
            said_by.setdefault(fact_hash(text), set()).add(f"s.p{number}-{place}")
    assert {one.hash: {source.message_id for source in one.sources} for one in active} == said_by
    assert len(active) == len(said_by)


def any_answer(dice: random.Random) -> ScriptedModel:
    """A model that says anything at all, also about numbers that it was never shown."""

    def script(material: DecisionMaterial) -> list[FactDecision]:
        count = len(material.new) + len(material.known) + 2
        return [
            said(
                dice.randint(-1, count),
                dice.choice(("ADD", "UPDATE", "DELETE", "NONE")),
                dice.choice((None, dice.randint(-1, count))),
                dice.choice((None, "", " ".join(dice.choices(WORDS, k=dice.randint(1, 6))))),
            )
            for _ in range(dice.randint(0, 2 * count))
        ]

    return ScriptedModel(script)


@given(PROPOSALS, st.lists(st.integers(1, 5), max_size=8), st.integers(0, 10_000))
def test_whatever_a_model_says_it_touches_only_what_was_shown_and_no_statement_is_lost(
    texts: list[list[str]], cuts: list[int], seed: int
) -> None:
    dice = random.Random(seed)
    kit = Bench(model=any_answer(dice))
    units = groups([proposal(f"p{number}", *one) for number, one in enumerate(texts)], cuts)

    async def run() -> None:
        for unit in units:
            before = {one.fact_id: one for one in kit.memory.active()}
            known = set(before)
            asked = len(kit.model.asked)
            changes = await kit.decide(*unit)
            reach = [reach_of(asking.shown) for _, asking in kit.model.asked[asked:]]
            for one in changes:
                if one.fact_id in known and rewritten(one, before):
                    assert any(one.fact_id in names.get(stated_as(one), ()) for names in reach)
                before[one.fact_id] = one  # the same statement once more in a unit changes nothing else
            if dice.random() < 0.5:
                kit.memory.apply()
            if (active := kit.memory.active()) and dice.random() < 0.3:
                name = dice.choice(active).fact_id
                await kit.decide(
                    command(f"c{len(kit.memory.writes)}", "edit", fact_id=name, text=texts[0][0])
                )

    asyncio.run(run())
    active = kit.memory.active()
    assert len({one.hash for one in active}) == len(active)
    stated = {
        one.statement.sources[0].message_id
        for decision in kit.memory.decisions["user:s.agent:s.ana"]
        for one in decision
        if one.statement is not None
    }
    assert stated == {
        f"s.p{number}-{place}" for number, one in enumerate(texts) for place in range(1, len(one) + 1)
    }


def rewritten(change: FactChanged, before: dict[str, FactChanged]) -> bool:
    return change.retired_at is not None or change.text != before[change.fact_id].text


def stated_as(change: FactChanged) -> str:
    """The id under which the statement behind a change would have been added."""
    assert change.statement is not None
    assert change.statement.formation_id is not None
    return fact_id(change.statement.formation_id, change.scope.key, change.statement.number)


def reach_of(shown: Sequence[str]) -> dict[str, set[str]]:
    """What each new fact was compared with, also by way of an earlier new one that became a part of a known one."""
    plan = DecisionPlan.of(shown)
    assert plan is not None
    names = [name for name, _ in plan.known] + [one.fact_id for one in plan.new]
    reach: dict[str, set[str]] = {}
    for one in plan.new:
        near = {names[number - 1] for number in one.candidates}
        reach[one.fact_id] = near.union(*(reach.get(name, set()) for name in near))
    return reach


IDS = st.text("abcdef0123456789", min_size=1, max_size=32)


def shown_as(name: str, pairs: list[tuple[int, float]]) -> NumberedFact:
    return NumberedFact(
        name, tuple(number for number, _ in pairs), tuple(similarity for _, similarity in pairs)
    )


SHOWN = st.builds(shown_as, IDS, st.lists(st.tuples(st.integers(1, 99), st.floats(0, 1)), max_size=5))


@given(
    st.lists(IDS, max_size=5).map(tuple),
    st.lists(st.tuples(IDS, st.integers(1, 999)), max_size=5).map(tuple),
    st.lists(SHOWN, max_size=5).map(tuple),
)
def test_what_was_shown_is_read_back_as_it_was(
    members: tuple[str, ...], known: tuple[tuple[str, int], ...], new: tuple[NumberedFact, ...]
) -> None:
    plan = DecisionPlan(members, known, new)
    assert DecisionPlan.of(plan.shown()) == plan


def test_what_is_no_plan_is_not_read_as_one() -> None:
    assert DecisionPlan.of(["known abc"]) is None
    assert DecisionPlan.of(["nonsense"]) is None
