"""Findings of the doctor, as a table."""

from rich.table import Table
from rich.text import Text

from eden_memory.doctor.finding import Finding

MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


def table(findings: list[Finding]) -> Table:
    """One row for each; what to do stands under what was found."""
    rows = Table(box=None, pad_edge=False, show_header=False)
    rows.add_column(width=1)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for finding in findings:
        mark, colour = MARKS[finding.state]
        said = Text(finding.what)
        if finding.hint and finding.state != "ok":
            said.append(f"\n→ {finding.hint}", style="dim")
        rows.add_row(Text(mark, style=colour), finding.check, said)
    return rows
