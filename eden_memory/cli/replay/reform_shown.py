"""Format a reform for people: its estimate, progress and result."""

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import TextColumn
from rich.table import Table

from eden_memory.cli.replay.progress import BarOrLines
from eden_memory.cli.tables import line
from eden_memory.cli.terminal import plain
from eden_memory.errors import describe
from eden_memory.replay.namespaces.switching import Switchover
from eden_memory.replay.reform.reform_plan import ReformPlan, total
from eden_memory.replay.reform.reform_run import ReformProgress
from eden_memory.replay.reform.reform_settings import selected
from eden_memory.replay.user_edits.user_edits import AppliedAdditions, AppliedEdits, SettledEdit
from eden_memory.schemas.documents import Reform, ReformAsked, ReformCalls

if TYPE_CHECKING:
    from eden_memory.evals.trial import TrialReport

MOST_LISTED = 20


def estimated(name: str, asked: ReformAsked, plan: ReformPlan, cap: Decimal | None) -> list[str | Table]:
    """Return the estimate of a reform, for people."""
    about = "about " if asked.rewindow else ""
    head = f"{name}: {selected(asked)}: {plan.messages:,} messages in {about}{plan.windows:,} windows"
    own = ", ".join(f"{override.name}={override.value}" for override in asked.overrides)
    lines: list[str | Table] = [head, *([f"with {own}"] if own else [])]
    lines += ["with streams of its own"] if asked.streams else []
    return [*lines, _table(plan.rows), _sum(plan.rows, cap)]


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


def _table(rows: Sequence[ReformCalls]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("stage", "calls", "tokens in", "tokens out", "USD", "answers kept"):
        table.add_column(name, justify="left" if name == "stage" else "right", overflow="fold")
    for row in rows:
        kept = "some" if row.reused is None else f"{row.reused:,}"
        tokens = f"{row.input_tokens:,}", f"{row.output_tokens:,}"
        table.add_row(row.stage, f"{row.calls:,}", *tokens, money(row.usd), kept)
    return table


def _sum(rows: Sequence[ReformCalls], cap: Decimal | None) -> str:
    usd, calls = total(rows), sum(row.calls for row in rows)
    kept = sum(row.reused or 0 for row in rows)
    most = "at most " if any(row.reused is None for row in rows) else ""
    share = f", {kept / calls:.0%} of the calls have their answers already" if calls else ""
    limit = f"; it pauses at {money(cap)} USD" if cap is not None else ""
    if usd is None:
        unknown = ", ".join(row.stage for row in rows if row.usd is None)
        return f"expected: no price is known of what {unknown} asks{share}"
    return f"expected: {most}{money(usd)} USD{share}{limit}"


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


def user_edits(found: AppliedEdits) -> list[str]:
    """Return what became of people's edits, for people."""
    additions = [additions_line(found.additions)] if found.additions else []
    if not found.settled:
        return additions
    rest = [*found.of("unmatched"), *found.of("outdated")]
    head = (
        f"people's own changes: {len(found.of('applied')):,} applied again, "
        f"{len(found.of('already')):,} there already, {len(found.of('unmatched')):,} match nothing, "
        f"{len(found.of('outdated')):,} were overtaken"
    )
    more = [f"and {len(rest) - MOST_LISTED:,} more"] if len(rest) > MOST_LISTED else []
    return [head, *(_settled(settled) for settled in rest[:MOST_LISTED]), *more, *additions]


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


def _settled(settled: SettledEdit) -> str:
    change = settled.change
    text = change.after or next(iter(change.before), "")
    return f"  {settled.outcome}: {change.kind} in {plain(change.scope.key)}: {line(text).plain}"
