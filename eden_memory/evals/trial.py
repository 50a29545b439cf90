"""`eden reform NAME --eval FILE`: whether a re-formed memory is better than live memory, before a switch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.demo.judgement import formed_memory
from eden_memory.errors import CapReached
from eden_memory.evals.compared_systems import NamespaceReading
from eden_memory.evals.dataset import EvalSet
from eden_memory.evals.evaluation import (
    EvalPlan,
    EvalReport,
    QuestionResult,
    SystemResult,
    measured,
    report_of,
)
from eden_memory.evals.judging import accuracy
from eden_memory.evals.recording import RetrievedMemory, SystemRecord, key_of
from eden_memory.evals.spending import EvalCap, EvalModels, Timer
from eden_memory.evals.systems import Difference, difference, found_quality
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.mongo.ids import typed_or_text
from eden_memory.settings import Settings

LIVE, BUDGET = "live", 2_000
UNCAPPED = Decimal("Infinity")


@dataclass(frozen=True, slots=True)
class TrialReport:
    """Two memories over the same questions, and how the second differs."""

    report: EvalReport
    differences: dict[str, Difference]
    """By measure."""

    @property
    def verdicts(self) -> list[str]:
        """The measures in words."""
        return [
            f"{name}: {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}] of {found.of}: {found.verdict}"
            for name, found in self.differences.items()
        ]

    @property
    def worse(self) -> list[str]:
        """The measures in which the second is worse."""
        return [name for name, found in self.differences.items() if found.verdict == "worse"]

    @property
    def verdict(self) -> str:
        """Return the result as one sentence."""
        if self.worse:
            return f"it is worse: {', '.join(self.worse)}"
        better = [name for name, found in self.differences.items() if found.verdict == "better"]
        return f"it is better: {', '.join(better)}" if better else "too close to tell with these questions"


async def tried(
    live: Settings, name: str, own: Settings, dataset: EvalSet, cap: Decimal | None
) -> TrialReport:
    """Ask both memories every question; one reader, that of `live`. CapReached leaves answers out, not retrieval.

    Answers about live users are not kept: forgetting would not reach them.
    """
    with TemporaryDirectory(prefix="eden-eval-") as folder:
        return await _tried(live, name, own, dataset, cap, Path(folder))


async def _tried(
    live: Settings, name: str, own: Settings, dataset: EvalSet, cap: Decimal | None, folder: Path
) -> TrialReport:
    models = EvalModels(live, folder / "answers.jsonl", EvalCap(UNCAPPED if cap is None else cap))
    plan = EvalPlan(dataset, (LIVE, name), folder, budgets=(BUDGET,))
    report = report_of(plan, models)
    try:
        records = [await _record(LIVE, live, dataset), await _record(name, own, dataset)]
        try:
            report.systems = [await measured(plan, record, models) for record in records]
        except CapReached:
            report.capped = True
            bare = EvalPlan(dataset, plan.systems, folder, budgets=plan.budgets, answers=False)
            report.systems = [await measured(bare, record, models) for record in records]
    finally:
        report.paid, report.unpriced = models.cap.paid, models.cap.unpriced
        await models.close()
    return TrialReport(report, dict(_differences(dataset, records, report.systems)))


async def _record(name: str, settings: Settings, dataset: EvalSet) -> SystemRecord:
    retrieved: dict[str, RetrievedMemory] = {}
    async with NamespaceReading(settings, prefixed=False) as reading:
        for where, question in dataset.questions:
            timer = Timer()
            items = tuple(await reading.retrieve(where, question))
            key = key_of(where, question.id)
            retrieved[key] = RetrievedMemory(items=items, seconds=timer.seconds)
    async with connect(endpoints(settings).mongodb) as client:
        database: AsyncDatabase[dict[str, Any]] = client[settings.mongodb.database]
        memory = {
            where.id: await formed_memory(database, settings.names, agent_id=typed_or_text(where.id))
            for where in dataset.conversations
        }
    return SystemRecord(system=name, digest="", retrieved=retrieved, memory=memory, formed=True)


def _differences(
    dataset: EvalSet, records: Sequence[SystemRecord], systems: Sequence[SystemResult]
) -> Iterator[tuple[str, Difference]]:
    """Yield what can be measured of both, question by question or item by item."""
    asked = [(where, question) for where, question in dataset.questions if question.evidence]
    recalls = [
        [
            found_quality(
                [item.bears for item in record.retrieved[key_of(where, question.id)].items],
                frozenset(question.evidence),
            ).recall
            for where, question in asked
        ]
        for record in records
    ]
    if asked:
        yield "retrieval (R@10)", difference(*recalls)
    results = [system.at[BUDGET] for system in systems]
    held = [[result.in_memory for result in part if result.in_memory is not None] for part in results]
    if held[0]:
        yield f"answer in {BUDGET:,} tokens of memory", difference(*held)
    scored = list(zip(*results, strict=True))
    both = [pair for pair in scored if all(result.scores for result in pair)]
    if both:
        yield "answers", difference(*([_accuracy(pair[at]) for pair in both] for at in (0, 1)))
    found = [_expected(system) for system in systems]
    if found[0]:
        yield "extraction", difference(*found)
    bans = [line.id for where in dataset.conversations for line in where.forbidden]
    if bans:
        yield "nothing forbidden kept", difference(*([_clean(system, bans) for system in systems]))


def _accuracy(result: QuestionResult) -> float:
    return accuracy(result.scores)


def _clean(system: SystemResult, bans: Sequence[str]) -> list[float]:
    violated = {ban.id for ban, _ in system.extraction.violated} if system.extraction else set[str]()
    return [float(name not in violated) for name in bans]


def _expected(system: SystemResult) -> list[float]:
    verdict = system.extraction
    if verdict is None:
        return []
    held = {item.id: 1.0 for item, _ in verdict.found} | {item.id: 0.0 for item in verdict.missed}
    return [held[name] for name in sorted(held)]
