"""`eden eval`: compare memory systems on conversations with questions, at equal budgets of tokens."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from eden_memory.cli.structured_logs import warnings_only
from eden_memory.cli.tables import console as plain_console
from eden_memory.cli.terminal import confirm, sigterm_as_interrupt
from eden_memory.errors import Invalid
from eden_memory.evals.dataset import OWN_SET, EvalSet, eval_set, read_set
from eden_memory.evals.eval_report import (
    answer_table,
    curve_table,
    formation_table,
    retrieval_table,
    shown_score,
    unanswered,
    write_report,
)
from eden_memory.evals.evaluation import BUDGETS, SYSTEMS, EvalPlan, EvalReport, evaluate
from eden_memory.evals.published_sets import CONVERTERS, Format, converted, write_lines
from eden_memory.models.catalogue import asked_for, provider_name
from eden_memory.models.model_servers import with_only_model
from eden_memory.settings import Settings
from eden_memory.tasks import heeding

AT_CAP, STOPPED = 3, 130


def eval_(
    file: Annotated[
        Path,
        typer.Argument(
            help="conversations and questions, JSON lines, or what --format reads; unset: a small set of our own",
            show_default=False,
        ),
    ] = OWN_SET,
    format_: Annotated[
        Format, typer.Option("--format", help="lines, or the dataset whose files to convert")
    ] = "lines",
    convert_to: Annotated[
        Path | None, typer.Option(help="write the converted lines to this file, and evaluate nothing")
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(
            help="eden, eden+memory.similar=0.8, offline, bm25, dense, rrf, whole (the newest messages that "
            "fit), history (all messages, whatever the budget), mem0 or package.module:function; "
            f"may be repeated; unset: {', '.join(SYSTEMS)}; with a model also eden"
        ),
    ] = None,
    llm: Annotated[
        str | None,
        typer.Option(help="openai, anthropic, google or a URL, for memory and answers; unset: EDEN_LLM"),
    ] = None,
    reader: Annotated[
        str | None,
        typer.Option(help="the model that answers: openai:gpt-5-mini, URL#model; unset: that of facts"),
    ] = None,
    judge: Annotated[
        str | None, typer.Option(help="the model that judges free answers; unset: the reader")
    ] = None,
    answers: Annotated[bool, typer.Option(help="--no-answers measures only formation and retrieval")] = True,
    budget: Annotated[
        list[int] | None,
        typer.Option(min=1, help="tokens of memory; may be repeated; unset: 1000, 2000, 4000, 7000"),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=50, help="the k of R@k and nDCG@k")] = 10,
    limit: Annotated[int | None, typer.Option(min=1, help="read only this many conversations")] = None,
    out: Annotated[Path, typer.Option(help="folder of the report, answers and records")] = Path("eden-eval"),
    cap: Annotated[float, typer.Option(min=0.0, help="US dollars that this run may cost at most")] = 1.0,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask before texts are sent")] = False,
    clear: Annotated[
        bool, typer.Option("--clear", help="drop what evaluations have left in MongoDB and Kafka, and exit")
    ] = False,
) -> None:
    """Compare memory systems on questions about conversations: accuracy over tokens, errors of each step.

    Run the same command again to continue after a stop; a second run pays only for what changed.

    Exit code 3: the run ended at the cap.

    Examples:

    eden eval

    eden eval longmemeval_s.json --format longmemeval --llm openai --system eden --system bm25 --cap 5

    eden eval own.jsonl --system eden --system eden+memory.similar=0.8
    """
    if clear:
        _clear()
        return
    dataset = _dataset(file, format_, convert_to, limit)
    if dataset is None:
        return
    settings = with_only_model(Settings() if llm is None else Settings(llm=llm))
    names = tuple(system or (*SYSTEMS, *(("eden",) if asked_for(settings) else ())))
    plan = EvalPlan(
        dataset,
        names,
        out,
        tuple(sorted(set(budget or BUDGETS))),
        reader,
        judge,
        answers,
        k,
        Decimal(str(cap)),
    )
    console = Console(highlight=False, stderr=True)
    _agree(console, settings, plan, yes=yes)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    sigterm_as_interrupt()
    try:
        with warnings_only():
            report = asyncio.run(heeding(evaluate(settings, plan, lambda text: console.print(f"· {text}"))))
    except KeyboardInterrupt:
        typer.echo("stopped; run the same command again to continue", err=True)
        sys.exit(STOPPED)
    show(report, out)
    if report.capped:
        typer.echo(
            f"the run ended at the cap of {cap:g} USD; run it with a higher --cap to continue", err=True
        )
        sys.exit(AT_CAP)


def _clear() -> None:
    from eden_memory.demo.play import running_servers  # noqa: PLC0415 - loads the whole system
    from eden_memory.evals.own_memory import clear  # noqa: PLC0415 - as above

    settings = Settings()
    with running_servers(settings, keep=False) as found:
        typer.echo(f"dropped {asyncio.run(clear(settings, found))} databases of evaluations")


def _dataset(file: Path, form: Format, convert_to: Path | None, limit: int | None) -> EvalSet | None:
    if form == "lines":
        if convert_to is not None:
            raise Invalid("--convert-to needs --format", f"Name one of {', '.join(CONVERTERS)}.")
        return read_set(file, limit)
    lines = converted(file, form)
    if convert_to is None:
        return eval_set(file.stem, lines, limit)
    typer.echo(f"{write_lines(convert_to, lines):,} lines are in {convert_to}")
    return None


def _agree(console: Console, settings: Settings, plan: EvalPlan, *, yes: bool) -> None:
    """Say where texts go and what they may cost, and ask before others' texts leave this machine."""
    named = (plan.reader, plan.judge)
    where = [*map(provider_name, asked_for(settings)), *(model for model in named if model is not None)]
    if not where:
        return
    to = " and ".join(dict.fromkeys(where))
    console.print(
        f"conversations and questions go to {to}; the run stops at {plan.cap.normalize():f} USD (--cap)",
        markup=False,
    )
    if not yes and plan.dataset.name != OWN_SET.stem:
        confirm(f"Send them to {to}?")


def show(report: EvalReport, out: Path) -> None:
    """Print the tables, and where the report is."""
    console = plain_console()
    for title, (header, rows) in (
        ("answers by budget of memory tokens", answer_table(report)),
        (f"{shown_score(report)[0]} by budget, with 95 % intervals", curve_table(report, categories=False)),
        ("retrieval", retrieval_table(report)),
        ("formation", formation_table(report)),
    ):
        if rows:
            console.print(_table(title, header, rows))
    written = write_report(report, out)
    typer.echo(f"paid: {report.paid:.4f} USD; {', '.join(map(str, written))}", err=True)
    if failed := unanswered(report):
        typer.echo(
            f"{failed} questions got no valid answer (column failed); they do not count in accuracy. "
            "Run the same command again to ask them anew",
            err=True,
        )
    if len(written) < 3:
        typer.echo("the figure needs matplotlib: pip install 'eden-memory[eval]'", err=True)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*header, title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for row in rows:
        table.add_row(*row)
    return table
