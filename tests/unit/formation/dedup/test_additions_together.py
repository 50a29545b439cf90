"""Additions that wait together are decided together, by a model only if they ask for it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.processors.pipeline import statements_together
from eden_memory.stages.stage import Delivery
from tests.unit.formation.dedup.dedup_kit import Bench, ScriptedModel, command, proposal, said, source

LYON, OSLO = "Ana lives in Lyon", "Ana lives in Lyon now and works there"
TEXTS = ("Ana has a dog", "ana has a dog!", "Ana has a cat", "Ana has two boats")


def adding(name: str, text: str, **fields: Any) -> Delivery:
    return command(name, "add", text=text, by="import", sources=(source(name),), **fields)


async def test_additions_of_one_scope_are_one_decision_and_one_call_for_vectors() -> None:
    kit = Bench()
    facts = await kit.decide(*(adding(f"c{number}", text) for number, text in enumerate(TEXTS)))
    assert kit.memory.texts() == ["Ana has a cat", "Ana has a dog", "Ana has two boats"]
    assert len(kit.memory.decisions) == 1
    assert (len(kit.embedder.calls), kit.model.asked, kit.memory.nearest_asked) == (1, [], 0)
    assert {fact.command.command_id for fact in facts if fact.command} == {f"s.c{n}" for n in range(4)}


async def test_an_addition_that_asks_for_it_is_decided_by_a_model() -> None:
    kit = Bench(model=ScriptedModel(lambda _: [said(1, "UPDATE", 1, OSLO)]))
    await kit.decide(adding("one", LYON))
    kit.memory.apply()
    await kit.decide(adding("two", OSLO, decide=True))
    assert kit.memory.texts() == [OSLO]
    assert len(kit.model.asked) == 1


def test_only_what_is_decided_alike_is_taken_together() -> None:
    plain, asking = [adding(f"p{n}", LYON) for n in range(3)], adding("a", LYON, decide=True)
    edit = command("e", "edit", fact_id="f", text=LYON)
    assert statements_together([*plain, asking]) == 3
    assert statements_together([asking, *plain]) == 1
    assert statements_together([*plain[:2], edit, *plain]) == 2
    assert statements_together([*plain, proposal("one", LYON)]) == 3
    assert statements_together([edit, *plain]) == 1
    assert statements_together([proposal("one", LYON), *plain]) == 1
    assert statements_together([adding(f"m{n}", LYON) for n in range(100)]) == 64


@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=8), st.integers(1, 8))
async def test_decided_together_or_one_by_one_the_facts_are_the_same(texts: list[str], together: int) -> None:
    kits = Bench(), Bench()
    waiting = [adding(f"c{number}", text, minutes=number) for number, text in enumerate(texts)]
    for kit, size in zip(kits, (together, 1), strict=True):
        for start in range(0, len(waiting), size):
            await kit.decide(*waiting[start : start + size])
            kit.memory.apply()
    one, other = (
        {
            (fact.fact_id, fact.text, fact.version, fact.sources, fact.valid_from)
            for fact in kit.memory.active()
        }
        for kit in kits
    )
    assert one == other
