"""fact-dedup over the decisions of the own set, with a model that decides each of them right."""

from importlib.util import find_spec
from typing import Any

import pytest

from eden_memory.evals.dataset import DecisionLine, EvalLine, EvalSet, Outcome, eval_set, read_set
from eden_memory.evals.evaluation import decision_figures, key_of
from eden_memory.evals.own_memory import outcome
from eden_memory.evals.recording import SystemRecord
from eden_memory.formation.prompt_material import DecisionMaterial
from eden_memory.schemas.answers import FactDecision
from tests.evals.decision_forms import decision_lines
from tests.evals.held import KnownVectors
from tests.unit.formation.dedup.dedup_kit import Bench, Memory, Script, ScriptedModel, proposal, said


def perfect(case: DecisionLine) -> Script:
    """Decides as the line expects, if it is shown the fact that the line is about."""

    def script(material: DecisionMaterial) -> list[FactDecision]:
        texts = [known.text for known in material.known]
        if case.expected == "ADD" or case.known[0] not in texts:
            return []
        merged = f"{case.known[0]} {case.new}" if case.expected == "UPDATE" else None
        return [said(1, case.expected, f"K{texts.index(case.known[0]) + 1}", merged)]

    return script


async def decided(case: DecisionLine, vectors: KnownVectors) -> Outcome:
    """Return what becomes of the known facts, stated in windows of their own, and of the new one."""
    embedder: Any = vectors
    bench = Bench(Memory(vectors.model, vectors.dimensions), embedder=embedder)
    for number, text in enumerate(case.known):
        await bench.decide(proposal(f"known-{number}", text, minutes=number))
        bench.memory.apply()
    bench.model = ScriptedModel(perfect(case))
    await bench.decide(proposal("new", case.new, minutes=60))
    facts = bench.memory.newest().values()
    rows: list[dict[str, Any]] = [
        {"content": fact.text, "active": fact.retired_at is None, "retired_because": fact.retired_because}
        for fact in facts
    ]
    return outcome(case, rows)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="needs the extra local-models")
async def test_a_perfect_model_merges_nothing_false_and_misses_few_duplicates_and_updates() -> None:
    dataset, vectors = all_decisions(), KnownVectors()
    record = SystemRecord(system="eden", digest="", retrieved={})
    cases = [(where, case) for where in dataset.conversations for case in where.decisions]
    await vectors.learn([text for _, case in cases for text in (*case.known, case.new)])
    for where, case in cases:
        record.decisions[key_of(where, case.id)] = await decided(case, vectors)
    figures = decision_figures(dataset, record)
    assert figures.false_merges.high <= 0.01
    assert figures.missed_duplicates.high <= 0.05
    assert (
        figures.missed_updates.high <= 0.06
    )  # two changes in German share no word, and the vectors know English


def test_every_decision_of_the_set_is_another() -> None:
    lines = list(decision_lines())
    assert len({(line.known[0], line.new) for line in lines}) == len(lines)
    assert all(line.new not in line.known for line in lines)


def all_decisions() -> EvalSet:
    """The own set's, and those that are made from forms."""
    lines = [case for where in read_set().conversations for case in where.decisions]
    return eval_set("decisions", map(EvalLine, (*lines, *decision_lines())))
