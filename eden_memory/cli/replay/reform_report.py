"""A reform for people: its estimate, progress and result; and how a namespace differs from live memory."""

import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.padding import Padding
from rich.progress import TextColumn
from rich.table import Table
from rich.text import Text

from eden_memory.cli.replay.progress import BarOrLines
from eden_memory.cli.structured_logs import warnings_only
from eden_memory.cli.tables import console, line
from eden_memory.cli.terminal import moment, plain
from eden_memory.errors import describe
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.replay.comparing.comparing import ReportRequest, compared
from eden_memory.replay.comparing.report import (
    KINDS,
    ChangedText,
    Kind,
    MemoryReport,
    MemoryText,
    Run,
    ScopeDiffers,
    TextCounts,
)
from eden_memory.replay.namespaces.switching import Switchover
from eden_memory.replay.reform.reform_plan import ReformPlan, total
from eden_memory.replay.reform.reform_run import ReformProgress
from eden_memory.replay.reform.reform_settings import selected
from eden_memory.replay.user_edits.user_edits import AppliedAdditions, AppliedEdits, SettledEdit
from eden_memory.schemas.documents import Reform, ReformAsked, ReformCalls
from eden_memory.settings import Settings
from eden_memory.usage.usage_store import UsageSum

if TYPE_CHECKING:
    from eden_memory.evals.trial import TrialReport


MOST_LISTED = 20


MOST = 10
Name = Annotated[str, typer.Argument(help="the namespace")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
Scopes = Annotated[
    list[str] | None,
    typer.Option("--scope", help="only scopes whose key begins so: user:, user:s.bot:s.ana; may be repeated"),
]
Most = Annotated[
    int, typer.Option("--most", min=0, help="scopes, and differences of each kind, that are listed; 0: all")
]
Against = Annotated[
    str | None,
    typer.Option(help="compare with this namespace (`original` is the first); else with what is live"),
]
Similar = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="(1 + cosine) / 2 from which a fact is another's new wording"),
]
ExitCode = Annotated[bool, typer.Option("--exit-code", help="exit code 1 if anything differs")]
NAMES: dict[Kind, str] = {"facts": "fact", "reflections": "reflection", "blobs": "blob"}
STYLES = {"same": "", "gone": "red strike", "new": "green", "left_out": "dim"}


def estimated(name: str, asked: ReformAsked, plan: ReformPlan, cap: Decimal | None) -> list[str | Table]:
    """Return the estimate of a reform, for people."""
    about = "about " if asked.rewindow else ""
    head = f"{name}: {selected(asked)}: {plan.messages:,} messages in {about}{plan.windows:,} windows"
    own = ", ".join(f"{override.name}={override.value}" for override in asked.overrides)
    lines: list[str | Table] = [head, *([f"with {own}"] if own else [])]
    lines += ["with streams of its own"] if asked.streams else []
    return [*lines, _calls_table(plan.rows), _sum(plan.rows, cap)]


def evaluated(trial: "TrialReport") -> list[str | Table]:
    """Return how both memories answer, measure by measure, and the verdict."""
    from eden_memory.evals.eval_report import answer_table, retrieval_table  # noqa: PLC0415 - numpy and models

    found: list[str | Table] = []
    for header, rows in (answer_table(trial.report), retrieval_table(trial.report)):
        table = Table(*header, box=None, pad_edge=False, header_style="dim")
        for row in rows:
            table.add_row(*row)
        found.append(table)
    return [*found, *trial.verdicts, trial.verdict]


def _calls_table(rows: Sequence[ReformCalls]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("stage", "calls", "tokens in", "tokens out", "USD", "answers kept"):
        table.add_column(name, justify="left" if name == "stage" else "right", overflow="fold")
    for row in rows:
        tokens = f"{row.input_tokens:,}", f"{row.output_tokens:,}"
        table.add_row(row.stage, f"{row.calls:,}", *tokens, money(row.usd), f"{row.reused:,}")
    return table


def _sum(rows: Sequence[ReformCalls], cap: Decimal | None) -> str:
    usd, calls = total(rows), sum(row.calls for row in rows)
    kept = sum(row.reused for row in rows)
    share = f", {kept / calls:.0%} of the calls have their answers already" if calls else ""
    limit = f"; it pauses at {money(cap)} USD" if cap is not None else ""
    if usd is None:
        unknown = ", ".join(row.stage for row in rows if row.usd is None)
        return f"expected: no price is known of what {unknown} asks{share}"
    return f"expected: {money(usd)} USD{share}{limit}"


def money(usd: Decimal | None) -> str:
    """Format it for people."""
    if usd is None:
        return "unknown"
    return f"{usd:.2f}" if usd >= 100 else f"{usd:.4f}"


class ReformBar(BarOrLines):
    """Shows the progress of a reform, in windows."""

    def __init__(self, console: Console, name: str) -> None:
        super().__init__(console, name, TextColumn("windows, {task.fields[said]}", markup=False), said="")

    def reading(self, read: int, whole: int) -> None:
        """Show how many records are read while formation-trigger's state is restored."""
        self.show(read, whole, said="reading chat and windows")

    def progress(self, progress: ReformProgress) -> None:
        """Show the newest figures."""
        formed, total = progress.formed, progress.total
        first, seconds = self.since(formed)
        rate = (formed - first) / seconds if seconds else 0.0
        left = f", {(total - formed) / rate:,.0f} s left" if rate and total > formed else ""
        said = (
            f"{rate * 60:,.1f}/min{left}, {money(progress.spent)} USD, {progress.paid:,} calls paid, "
            f"{progress.reused:,} answers reused"
        )
        said += f" [{progress.waits_for}]" if progress.waits_for else ""
        self.show(formed, total, said=said)
        self.say(f"{formed:,} of {total:,} windows, {said}")


def formed(reform: Reform, missing: int = 0, dead: int = 0) -> list[str]:
    """Return the result of a reform, for people."""
    expected = total(reform.estimate)
    calls = reform.paid + reform.reused
    share = f", {reform.reused / calls:.0%} of {calls:,} answers were kept already" if calls else ""
    lines = [
        f"{reform.id}: {reform.formed:,} windows formed, {money(reform.spent_usd)} USD spent "
        f"({money(expected)} expected), {reform.paid:,} calls paid{share}"
    ]
    lines += [f"{missing:,} windows were left out: their texts are gone"] if missing else []
    return [*lines, *([f"{dead:,} steps were given up: dead letters of its topics"] if dead else [])]


def user_edits(found: AppliedEdits, most: int | None = MOST_LISTED) -> list[str]:
    """Return what became, or would become, of people's edits, for people; `most`: edits listed, None: all."""
    additions = [additions_line(found.additions)] if found.additions else []
    if not found.settled:
        return additions
    rest = [*found.of("unmatched"), *found.of("outdated")]
    head = (
        f"people's own changes: {len(found.of('applied')):,} applied again, "
        f"{len(found.of('already')):,} there already, {len(found.of('unmatched')):,} match nothing, "
        f"{len(found.of('outdated')):,} were overtaken"
    )
    listed = rest[:most]
    more = [f"and {len(rest) - len(listed):,} more"] if len(rest) > len(listed) else []
    return [head, *map(_edit_line, listed), *more, *additions]


def carried(done: Switchover) -> list[str]:
    """Return what became of edits made just before a switch; nothing where the namespace had them all."""
    if done.failed is not None:
        return not_carried(done)
    return [] if done.edits is None else user_edits(done.edits)


def not_carried(done: Switchover) -> list[str]:
    """Return why user edits of the former memory were not applied, and the command that does it."""
    was, why = done.was.memory, "" if done.failed is None else describe(done.failed)
    return [
        f"what people changed in {was} meanwhile was not applied again: {why}",
        f"once that is put right: eden namespace carry {was}",
    ]


def additions_line(found: AppliedAdditions) -> str:
    """Return what became of reflections that people added, sentences that they pinned, and their other edits."""
    marked = f"{found.marked:,} marked as private; " if found.marked else ""
    if found.unmatched_marks:
        marked += f"{found.unmatched_marks:,} private marks match nothing; "
    return (
        f"people's own reflections and pins: {found.applied:,} applied again, {found.already:,} there already; "
        f"{marked}{found.not_applied:,} edits of formed reflections and blobs are not applied"
    )


def _edit_line(settled: SettledEdit) -> str:
    change = settled.change
    texts = [*change.before[:1], *([] if change.after is None else [change.after])]
    said = " → ".join(line(text).plain for text in texts)
    why = f"; {settled.why}" if settled.why is not None else ""
    if settled.text is not None:
        why = f"; nearest {settled.similarity:.2f}: {line(settled.text).plain}"
    asked = f"{change.command.by}, {moment(change.at)}, {plain(change.scope.key)}{why}"
    return f"  {settled.outcome}: {change.kind} {said} ({asked})"


def report(
    name: Name,
    as_json: AsJson = False,
    scope: Scopes = None,
    most: Most = MOST,
    against: Against = None,
    similar: Similar = None,
    exit_code: ExitCode = False,
) -> None:
    """Show what a namespace remembers that live memory does not, and the other way round: the largest first."""
    wanted = ReportRequest(against, tuple(scope or ()), most or None, similar)
    with warnings_only():
        found = asyncio.run(_report(Settings(), name, wanted))
    if as_json:
        typer.echo(json.dumps(found.json_object(), indent=2))
    else:
        show(console(), found)
    if exit_code and not found.equal:
        sys.exit(1)


async def _report(settings: Settings, name: str, wanted: ReportRequest) -> MemoryReport:
    async with connect(endpoints(settings).mongodb) as client:
        return await compared(settings, client[settings.mongodb.database], name, wanted)


def show(console: Console, report: MemoryReport) -> None:
    """Print the whole report."""
    console.print(_answer(report))
    if not report.complete:
        console.print(
            Text(f"{report.shadow} is not complete: what is not formed yet counts as lost", style="yellow")
        )
    console.print(Padding(_counts(report), (1, 0, 0, 2), expand=False))
    if report.spent:
        console.print(Padding(_cost(report), (1, 0, 0, 2), expand=False))
    if report.own is not None:
        for told in ("", *user_edits(report.own, report.most)):
            console.print(Text(told))
    for scope in report.scopes:
        console.print(Padding(_scope(scope), (1, 0, 0, 0), expand=False))
    if (more := report.scopes_different - len(report.scopes)) > 0:
        scopes = "scope" if more == 1 else "scopes"
        console.print(Text(f"\nand {more:,} {scopes} more that differ less (--most, --scope)", style="dim"))


def _answer(report: MemoryReport) -> Text:
    """Return a sentence."""
    if report.equal:
        return Text(f"{report.shadow} says what {report.live} says, in all {report.scopes_compared:,} scopes")
    parts = [said for kind in KINDS if (said := _differ(kind, report.counts[kind]))]
    where = f"in {report.scopes_different:,} of {report.scopes_compared:,} scopes"
    return Text(f"{report.shadow} differs from {report.live} {where}: {'; '.join(parts)}", style="bold")


def _differ(kind: str, counts: TextCounts) -> str:
    numbers = {"in other words": counts.changed, "added": counts.added, "lost": counts.lost}
    told = ", ".join(f"{number:,} {how}" for how, number in numbers.items() if number)
    return f"{kind} {told}" if told else ""


def _counts(report: MemoryReport) -> Table:
    table = _table("", "same", "in other words", "added", "lost")
    for kind in KINDS:
        of = report.counts[kind]
        table.add_row(kind, *(f"{count:,}" for count in (of.same, of.changed, of.added, of.lost)))
    if report.matched_by:
        table.caption = f"matched by {', '.join(sorted(report.matched_by))}"
        table.caption_justify = "left"
    return table


def _cost(report: MemoryReport) -> Group:
    table = _table("", "memory", "calls", "tokens", "USD")
    for stage, spent in [*sorted(report.spent.items()), ("together", report.together)]:
        style = "bold" if stage == "together" else ""
        table.add_row(stage, report.live, *_money(spent[0]), style=style)
        table.add_row("", report.shadow, *_money(spent[1]), style=style)
    reused = Text(f"{report.reused_answers:,} answers were found paid for already", style="dim")
    return Group(table, reused) if report.reused_answers else Group(table)


def _money(spent: UsageSum) -> tuple[str, str, str]:
    usd = "unknown" if spent.known_usd is None else f"{spent.known_usd:.4f}"
    counts = spent.counts
    more = " + unknown" if spent.known_usd is not None and counts["unpriced_calls"] else ""
    return f"{counts['calls']:,}", f"{counts['input_tokens'] + counts['output_tokens']:,}", usd + more


def _scope(scope: ScopeDiffers) -> Group:
    words = f"  {scope.words:,} words differ"
    heading = Text(plain(scope.scope_key), style="bold").append_text(Text(words, style="dim"))
    parts = (part for kind in KINDS for part in _kind(scope, kind))
    return Group(heading, *(Padding(part, (0, 0, 0, 2), expand=False) for part in parts))


def _kind(scope: ScopeDiffers, kind: Kind) -> Iterator[Text]:
    of, name = scope.of(kind), NAMES[kind]
    for changed in of.changed:
        yield _changed(name, changed)
    yield from _told("+", "green", name, of.added)
    yield from _told("-", "red", name, of.lost)
    if (more := of.counts.differing - len(of.changed) - len(of.added) - len(of.lost)) > 0:
        yield Text(f"  and {more:,} {kind} more that differ less", style="dim")


def _told(sign: str, style: str, name: str, told: Iterable[MemoryText]) -> Iterator[Text]:
    for text in told:
        yield Text(f"{sign} {name}  ", style=style).append_text(Text(line(text.text).plain, style=""))


def _changed(name: str, changed: ChangedText) -> Text:
    near = "" if changed.similarity is None else f"{changed.similarity:.2f} "
    said = Text(f"~ {name}  ", style="yellow").append_text(Text(near, style="dim"))
    return said.append_text(Text(" ").join(_run(run) for run in changed.runs))


def _run(run: Run) -> Text:
    """Return a coloured line that is readable without colours."""
    words = line(run.text).plain
    marks = {"gone": f"[-{words}-]", "new": f"{{+{words}+}}", "left_out": f"… {words} words …"}
    return Text(marks.get(run.said, words), style=STYLES[run.said])


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="left" if column == "memory" else "right", overflow="fold")
    return table
