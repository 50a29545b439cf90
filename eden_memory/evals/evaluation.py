"""`eden eval`: every system over the same conversations, questions and budgets; answers, judgements and figures."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path

from eden_memory.demo.judgement import Expectations, MemoryVerdict, judged
from eden_memory.errors import CapReached, PermanentError, ProviderError
from eden_memory.evals.dataset import EvalConversation, EvalSet, QuestionLine
from eden_memory.evals.judging import accuracy, by_words, is_asked, judge, judge_name, prompts_of, read
from eden_memory.evals.recording import SystemRecord, key_of, recorded
from eden_memory.evals.spending import NOTHING_SPENT, EvalCap, EvalModels, Spent
from eden_memory.evals.systems import (
    ALL,
    HISTORY,
    EvalSetup,
    K,
    MeasuredShare,
    Quality,
    contains,
    found_quality,
    mean,
    mean_quality,
    newer_above,
    packed,
    share,
    tokens,
)
from eden_memory.settings import Settings

BUDGETS = (1_000, 2_000, 4_000, 7_000)

SYSTEMS = ("offline", "bm25", "dense", "rrf", "whole")


@dataclass(frozen=True, slots=True)
class EvalPlan:
    """The systems to compare, the budgets, and the models."""

    dataset: EvalSet
    systems: tuple[str, ...]
    out: Path
    budgets: tuple[int, ...] = BUDGETS
    reader: str | None = None
    """A chat model in place of the settings'."""
    judge: str | None = None
    answers: bool = True
    """False: retrieval and formation alone."""
    k: int = K
    cap: Decimal = Decimal(1)


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """One question at one budget."""

    conversation: str
    question: str
    category: str
    language: str | None
    memory_tokens: int
    in_memory: float | None
    """Whether the memory shown holds an accepted answer word for word; None where there is none to look for."""
    evidence: float | None
    """Whether it comes from all messages that answer the question; None where they are not named."""
    answer: str | None
    scores: dict[str, float]
    spent: Spent
    """The cost of reading, with the seconds of the search."""
    judging: Spent
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class DecisionFigures:
    """How often decisions about new facts were wrong."""

    false_merges: MeasuredShare
    missed_duplicates: MeasuredShare
    missed_updates: MeasuredShare


@dataclass(frozen=True, slots=True)
class SystemResult:
    """The figures of one system."""

    system: str
    quality: Quality | None
    """Over questions with evidence."""
    newer_first: MeasuredShare
    by_language: dict[str, Quality]
    extraction: MemoryVerdict | None
    decisions: DecisionFigures | None
    decisions_by_language: dict[str, tuple[int, int]]
    """Right, of so many."""
    formed: Spent | None
    at: dict[int, list[QuestionResult]]
    """By budget; `ALL` for the whole history."""
    search_seconds: float
    search_p95: float


@dataclass(slots=True)
class EvalReport:
    """All that was measured."""

    dataset: str
    k: int
    reader: str | None
    judge: str | None
    embedder: str
    prompts: dict[str, str] = field(default_factory=dict[str, str])
    """Those that the questions are answered and judged by: name and version, text."""
    systems: list[SystemResult] = field(default_factory=list[SystemResult])
    capped: bool = False
    """Whether it ended at the cap; the same command with a higher one continues."""
    paid: Decimal = Decimal(0)
    unpriced: int = 0


async def evaluate(settings: Settings, plan: EvalPlan, note: Callable[[str], None]) -> EvalReport:
    """Evaluate every system, as far as the cap allows; EdenError."""
    kept, cap = plan.out / "kept", EvalCap(plan.cap)
    models = EvalModels(settings, kept / "answers.jsonl", cap)
    report = report_of(plan, models)
    setup = EvalSetup(settings, models, kept, plan.dataset, note)
    try:
        for name in plan.systems:
            record = await recorded(name, setup, _budgets(plan, name))
            report.systems.append(await measured(plan, record, models))
    except CapReached:
        report.capped = True
    finally:
        report.paid, report.unpriced = cap.paid, cap.unpriced
        await models.close()
    return report


def _budgets(plan: EvalPlan, system: str) -> tuple[int, ...]:
    return (ALL,) if system == HISTORY else plan.budgets


def report_of(plan: EvalPlan, models: EvalModels) -> EvalReport:
    """Return an empty report that names the models."""
    reader = models.named(plan.reader) if plan.answers else None
    judging = models.named(plan.judge or plan.reader) if reader else None
    prompts = prompts_of(question for _, question in plan.dataset.questions)
    return EvalReport(plan.dataset.name, plan.k, reader, judging, models.embedder_name, prompts)


async def measured(plan: EvalPlan, record: SystemRecord, models: EvalModels) -> SystemResult:
    """Return the figures of a system from its record; CapReached."""
    questions = plan.dataset.questions
    ranked = {
        key_of(where, question.id): [
            item.bears for item in record.retrieved[key_of(where, question.id)].items
        ]
        for where, question in questions
    }
    found = [
        (question, found_quality(ranked[key_of(where, question.id)], frozenset(question.evidence), plan.k))
        for where, question in questions
        if question.evidence
    ]
    languages = {question.language for question, _ in found if question.language}
    right = _right_decisions(plan.dataset, record)
    searches = sorted(each.seconds for each in record.retrieved.values())
    return SystemResult(
        system=record.system,
        quality=mean_quality([each for _, each in found]) if found else None,
        newer_first=_newer_first(questions, ranked),
        by_language={
            language: mean_quality([each for question, each in found if question.language == language])
            for language in sorted(languages)
        },
        extraction=extraction(plan.dataset, record) if record.formed and _expects(plan.dataset) else None,
        decisions=decision_figures(plan.dataset, record) if record.decisions else None,
        decisions_by_language=right,
        formed=record.spent if record.formed or record.spent.calls else None,
        at={budget: await _at(plan, record, models, budget) for budget in _budgets(plan, record.system)},
        search_seconds=mean(searches),
        search_p95=searches[int(0.95 * len(searches))] if searches else 0.0,
    )


def _newer_first(
    questions: Iterable[tuple[EvalConversation, QuestionLine]], ranked: dict[str, list[frozenset[str]]]
) -> MeasuredShare:
    asked = [(where, question) for where, question in questions if question.outdated and question.evidence]
    first = sum(
        newer_above(
            ranked[key_of(where, question.id)], frozenset(question.evidence), frozenset(question.outdated)
        )
        for where, question in asked
    )
    return share(first, len(asked))


def _expects(dataset: EvalSet) -> bool:
    return any(where.expected or where.forbidden for where in dataset.conversations)


def extraction(dataset: EvalSet, record: SystemRecord) -> MemoryVerdict:
    """Return what was expected and found, or forbidden and kept, over all conversations together."""
    verdicts = [
        judged(
            Expectations(
                version=1,
                facts=tuple(where.expected),
                reflections=(),
                must_not=tuple(where.forbidden),
            ),
            record.memory.get(where.id, []),
        )
        for where in dataset.conversations
        if where.expected or where.forbidden
    ]
    return MemoryVerdict(
        found=tuple(each for verdict in verdicts for each in verdict.found),
        missed=tuple(each for verdict in verdicts for each in verdict.missed),
        violated=tuple(each for verdict in verdicts for each in verdict.violated),
        wanted=tuple(each for verdict in verdicts for each in verdict.wanted),
        unlisted=tuple(each for verdict in verdicts for each in verdict.unlisted),
        forbidden=sum(verdict.forbidden for verdict in verdicts),
    )


def decision_figures(dataset: EvalSet, record: SystemRecord) -> DecisionFigures:
    """Return the shares of wrong decisions; outcomes that `or` names are right, too."""
    cases = [
        (case.expected, record.decisions[key_of(where, case.id)], (case.expected, *case.or_))
        for where in dataset.conversations
        for case in where.decisions
        if key_of(where, case.id) in record.decisions
    ]
    distinct = [found not in right for wanted, found, right in cases if wanted == "ADD"]
    same = [found not in right for wanted, found, right in cases if wanted == "NONE"]
    changed = [
        found not in right and found in ("ADD", "NONE")
        for wanted, found, right in cases
        if wanted in ("UPDATE", "DELETE")
    ]
    return DecisionFigures(*(share(sum(wrong), len(wrong)) for wrong in (distinct, same, changed)))


def _right_decisions(dataset: EvalSet, record: SystemRecord) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for where in dataset.conversations:
        for case in where.decisions:
            right, of = found.get(case.language or "", (0, 0))
            outcome = record.decisions.get(key_of(where, case.id))
            found[case.language or ""] = right + (outcome in (case.expected, *case.or_)), of + 1
    return dict(sorted(found.items())) if record.decisions else {}


async def _at(plan: EvalPlan, record: SystemRecord, models: EvalModels, budget: int) -> list[QuestionResult]:
    """Every question that can be scored, a few at once; CapReached once those under way have ended."""
    asked = [(where, question) for where, question in plan.dataset.questions if is_asked(question)]
    results = await asyncio.gather(
        *(_question(plan, record, models, budget, where, question) for where, question in asked),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if isinstance(result, QuestionResult)]


async def _question(
    plan: EvalPlan,
    record: SystemRecord,
    models: EvalModels,
    budget: int,
    where: EvalConversation,
    question: QuestionLine,
) -> QuestionResult:
    retrieved = record.retrieved[key_of(where, question.id)]
    memory = packed(retrieved.items, budget)
    text = "\n".join(item.line for item in memory)
    borne = frozenset[str]().union(*(item.bears for item in memory))
    answer, scores, spent, judging, failed = None, dict[str, float](), NOTHING_SPENT, NOTHING_SPENT, None
    if plan.answers and models.named(plan.reader) is not None:
        try:
            answer, spent = await read(models, question, memory, plan.reader)
            scores = by_words(question, answer)
            if judge_name(question) is not None:
                scores["judge"], judging = await judge(models, question, answer, plan.judge or plan.reader)
        except (ProviderError, PermanentError) as error:
            scores, failed = {}, type(error).__name__
    return QuestionResult(
        conversation=where.id,
        question=question.id,
        category=question.category,
        language=question.language,
        memory_tokens=tokens(text),
        in_memory=float(contains(text, question.answers)) if question.answers else None,
        evidence=float(borne.issuperset(question.evidence)) if question.evidence else None,
        answer=answer,
        scores=scores,
        spent=replace(spent, seconds=spent.seconds + retrieved.seconds),
        judging=judging,
        failed=failed,
    )


@dataclass(frozen=True, slots=True)
class BudgetFigures:
    """Means over the questions at one budget; None where nothing was scored so."""

    memory_tokens: float
    in_memory: float | None
    evidence: float | None
    accuracy: float | None
    scores: dict[str, float]
    judging_usd: Decimal
    """Of judging, for each question."""
    tokens: float
    """Of reading, for each question."""
    usd: Decimal
    """Of reading, for each question; judging apart."""
    seconds: float
    failed: int


def budget_figures(results: Sequence[QuestionResult]) -> BudgetFigures:
    """Return the means."""
    held = [result.in_memory for result in results if result.in_memory is not None]
    borne = [result.evidence for result in results if result.evidence is not None]
    read_ones = [result for result in results if result.scores]
    names = dict.fromkeys(name for result in read_ones for name in result.scores)
    number = max(1, len(results))
    return BudgetFigures(
        memory_tokens=mean([result.memory_tokens for result in results]),
        in_memory=mean(held) if held else None,
        evidence=mean(borne) if borne else None,
        accuracy=mean([accuracy(result.scores) for result in read_ones]) if read_ones else None,
        scores={
            name: mean([result.scores[name] for result in read_ones if name in result.scores])
            for name in names
        },
        judging_usd=sum((result.judging.usd for result in results), Decimal(0)) / number,
        tokens=mean([result.spent.tokens for result in results]),
        usd=sum((result.spent.usd for result in results), Decimal(0)) / number,
        seconds=mean([result.spent.seconds for result in results]),
        failed=sum(result.failed is not None for result in results),
    )
