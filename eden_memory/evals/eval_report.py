"""The tables, the JSON and the figure of an evaluation."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any

import orjson

from eden_memory.evals.evaluation import (
    BudgetFigures,
    EvalReport,
    QuestionResult,
    SystemResult,
    budget_figures,
)
from eden_memory.evals.judging import accuracy
from eden_memory.evals.spending import Spent
from eden_memory.evals.systems import ALL, MeasuredShare, bootstrapped, mean
from eden_memory.files.mirror_folder import write_text

Row = Sequence[str]
FIGURE, MARKERS = "accuracy.svg", "os^Dv"
FEWEST = 10
"""Questions that an interval is shown for: resampling fewer says too little."""
READERS = ("eval-reader/", "eval-assistant/", "eval-chooser/")
SCORES = ("exact", "f1", "contains", "choice", "absent", "judge")


def answer_table(report: EvalReport) -> tuple[list[str], list[Row]]:
    """Return header and rows: each system at each budget."""
    scored = _scores(report)
    header = [
        "system",
        "budget",
        "tokens shown",
        "evidence in memory",
        "answer in memory",
        "accuracy",
        *scored,
    ]
    header += ["tokens/question", "USD/question", "USD/judging", "s/question"]
    header += ["failed"] if unanswered(report) else []
    rows: list[Row] = []
    for system in report.systems:
        for budget, results in system.at.items():
            of = budget_figures(results)
            scores = (_number(of.scores.get(name)) for name in scored)
            rows.append(
                (
                    system.system,
                    _budget(budget),
                    f"{of.memory_tokens:,.0f}",
                    _number(of.evidence),
                    _number(of.in_memory),
                    _number(of.accuracy),
                    *scores,
                    *_each(of),
                    *((f"{of.failed} of {len(results)}",) if unanswered(report) else ()),
                )
            )
    return header, rows


def unanswered(report: EvalReport) -> int:
    """Return how many questions, at all budgets, got no valid answer or verdict."""
    return sum(
        result.failed is not None
        for system in report.systems
        for results in system.at.values()
        for result in results
    )


def _scores(report: EvalReport) -> list[str]:
    used = {
        name
        for system in report.systems
        for results in system.at.values()
        for result in results
        for name in result.scores
    }
    return [name for name in SCORES if name in used]


def _each(of: BudgetFigures) -> tuple[str, ...]:
    return f"{of.tokens:,.0f}", f"{of.usd:.6f}", f"{of.judging_usd:.6f}", f"{of.seconds:.3f}"


def _budget(tokens: int) -> str:
    return "all" if tokens == ALL else f"{tokens:,}"


def curve_table(report: EvalReport, *, categories: bool = True) -> tuple[list[str], list[Row]]:
    """Return header and rows: the score of each system by budget with its interval, of all and each category."""
    budgets = list(dict.fromkeys(budget for system in report.systems for budget in system.at))
    results = [result for system in report.systems for part in system.at.values() for result in part]
    found = sorted({result.category for result in results}) if categories else []
    _, score = shown_score(report)
    rows: list[Row] = []
    for category in [None, *found] if len(found) > 1 else [None]:
        for system in report.systems:
            values = [
                [
                    value
                    for result in system.at.get(budget, ())
                    if category in (None, result.category) and (value := score(result)) is not None
                ]
                for budget in budgets
            ]
            if most := max(map(len, values), default=0):
                rows.append((category or "all", system.system, str(most), *map(_interval, values)))
    return ["questions", "system", "of", *map(_budget, budgets)], rows


def shown_score(report: EvalReport) -> tuple[str, Callable[[QuestionResult], float | None]]:
    """Return the score that the curve shows, in words and of a question: accuracy; without a reader what is shown."""
    results = [result for system in report.systems for part in system.at.values() for result in part]
    if any(result.scores for result in results):
        return "accuracy", lambda result: accuracy(result.scores) if result.scores else None
    if any(result.evidence is not None for result in results):
        return "evidence in memory", lambda result: result.evidence
    return "answer in memory", lambda result: result.in_memory


def _interval(values: Sequence[float]) -> str:
    if not values:
        return ""
    found = bootstrapped(values)
    return f"{found.mean:.3f}" + (f" [{found.low:.2f}, {found.high:.2f}]" if found.of >= FEWEST else "")


def retrieval_table(report: EvalReport) -> tuple[list[str], list[Row]]:
    """Return header and rows: each system, all languages and each."""
    languages = sorted({language for system in report.systems for language in system.by_language})
    header = ["system", f"R@{report.k}", f"nDCG@{report.k}", "newer first", "s/search", "p95"]
    header += [f"R@{report.k} {language}" for language in languages]
    rows: list[Row] = [
        (
            system.system,
            _number(system.quality.recall if system.quality else None),
            _number(system.quality.ndcg if system.quality else None),
            _share(system.newer_first),
            f"{system.search_seconds:.3f}",
            f"{system.search_p95:.3f}",
            *(
                _number(system.by_language[language].recall if language in system.by_language else None)
                for language in languages
            ),
        )
        for system in report.systems
    ]
    return header, rows


def formation_table(report: EvalReport) -> tuple[list[str], list[Row]]:
    """Return header and rows: each system that formed memory."""
    header = [
        "system",
        "expected found",
        "kept though forbidden",
        "clean",
        "false merges",
        "missed duplicates",
    ]
    header += ["missed updates", "tokens", "USD", "s"]
    formed = [system for system in report.systems if system.formed is not None]
    return header, [
        (system.system, *_extraction(system), *_decisions(system), *_cost(system)) for system in formed
    ]


def _extraction(system: SystemResult) -> tuple[str, str, str]:
    found = system.extraction
    if found is None:
        return "", "", ""
    expected = len(found.found) + len(found.missed)
    return f"{len(found.found)} of {expected}", str(len(found.violated)), _number(found.clean)


def _decisions(system: SystemResult) -> tuple[str, ...]:
    found = system.decisions
    shares = (found.false_merges, found.missed_duplicates, found.missed_updates) if found else ()
    return tuple(_share(each) for each in shares) or ("", "", "")


def _cost(system: SystemResult) -> tuple[str, str, str]:
    spent = system.formed or Spent()
    return f"{spent.tokens:,}", f"{spent.usd:.4f}", f"{spent.seconds:.0f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _share(of: MeasuredShare) -> str:
    return f"{of.value:.3f} [{of.low:.2f}, {of.high:.2f}] of {of.of}" if of.of else ""


def markdown(report: EvalReport) -> str:
    """Return the whole report as a page."""
    reader, judge = report.reader or "none", report.judge or "none"
    parts = [
        f"# {report.dataset}",
        f"Reader: {reader}. Judge: {judge}. Embedder: {report.embedder}. Paid in this run: {report.paid:.4f} USD"
        + (f", and {report.unpriced} calls of unknown price." if report.unpriced else "."),
    ]
    if report.capped:
        parts.append("**Incomplete: the run ended at the cap.**")
    if report.judge and (judges := [name for name in report.prompts if not name.startswith(READERS)]):
        parts.append(f"Judging prompts: {', '.join(judges)}.")
    parts.append("## Answers by budget of memory tokens\n\n" + _markdown(*answer_table(report)))
    note = "Means by budget of memory tokens, with bootstrapped 95 % intervals over the questions (of ten or more)."
    curve = _markdown(*curve_table(report))
    parts.append(f"## Curve: {shown_score(report)[0]} by budget\n\n{note}\n\n{curve}")
    parts.append("## Retrieval\n\n" + _markdown(*retrieval_table(report)))
    header, rows = formation_table(report)
    if rows:
        parts.append("## Formation\n\n" + _markdown(header, rows))
    shown = "\n\n".join(f"`{name}`:\n\n```\n{prompt}\n```" for name, prompt in report.prompts.items())
    return "\n\n".join([*parts, f"## Prompts\n\n{shown}"]) + "\n"


def _markdown(header: Sequence[str], rows: Sequence[Row]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_report(report: EvalReport, out: Path) -> list[Path]:
    """Write report.md, report.json and, where matplotlib is installed, the figure; return what was written.

    report.json holds answers and memory: only its owner may read it.
    """
    out.mkdir(parents=True, exist_ok=True)
    page, data = out / "report.md", out / "report.json"
    page.write_text(markdown(report), encoding="utf-8")
    texts = orjson.dumps(_plain(asdict(report)), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    write_text(data, texts.decode())
    figure = draw(report, out / FIGURE)
    return [page, data, *([figure] if figure else [])]


def _plain(value: Any) -> Any:
    """Return JSON values; pydantic models and decimals as text or objects."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def draw(report: EvalReport, path: Path) -> Path | None:
    """Draw accuracy (without a reader: what is shown) over the tokens shown; None without the extra `eval`."""
    try:
        backend: Any = import_module("matplotlib.backends.backend_svg")
        figures: Any = import_module("matplotlib.figure")
    except ImportError:
        return None
    figure = figures.Figure(figsize=(7, 4.5), layout="constrained")
    backend.FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    name, score = shown_score(report)
    for system, marker in zip(report.systems, cycle(MARKERS)):
        points = [_point(results, score) for results in system.at.values()]
        axes.plot(*zip(*points, strict=True), marker=marker, label=system.system)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel(f"{name}, mean of the questions")
    axes.set_title(f"Dataset: {report.dataset}")
    _label_tokens(axes)
    axes.legend(frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})
    return path


def _label_tokens(axes: Any) -> None:
    ticker: Any = import_module("matplotlib.ticker")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_xlabel("tokens of memory shown, mean of the questions")
    axes.grid(visible=True, alpha=0.3)


def _point(
    results: Sequence[QuestionResult], score: Callable[[QuestionResult], float | None]
) -> tuple[float, float]:
    values = [value for result in results if (value := score(result)) is not None]
    return max(1.0, budget_figures(results).memory_tokens), mean(values)
