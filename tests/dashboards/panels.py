"""A panel as its author writes it: a question, queries that answer it, and what to do when the answer is red."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eden_memory.kafka.topics import read_topics, topics_path

OF = 'namespace=~"$namespace"'
"""On every series of this program."""
STAGE = f'{OF},stage=~"$stage"'
GROUPS = sorted(
    name
    for name, program in read_topics(topics_path()).programs.items()
    if not program.later and name != "tailer"
)
OUR_GROUPS = f".*({'|'.join(GROUPS)})([.].+)?"
"""The consumer groups of this program, whatever their prefix and namespace (`atlas-writer.trial`)."""
OURS, FOREIGN = f'{OF},consumergroup=~"{OUR_GROUPS}"', f'{OF},consumergroup!~"{OUR_GROUPS}"'
GROUP = f'{OURS},consumergroup=~".*($stage)([.].+)?"'
AGENT = f'{STAGE},agent=~"$agent"'
RATE = "$__rate_interval"
GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"
Unit = Literal["s", "short", "currencyUSD", "percentunit", "bytes", "ops"]
Kind = Literal["stat", "lines", "bars"]


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL with Grafana's variables, and the legend of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """`orange` and `red` are where the answer turns (`red` below `orange`: less is worse); 24 columns a row."""

    title: str
    queries: Sequence[Query]
    when_red: str
    kind: Kind = "lines"
    unit: Unit = "short"
    orange: float | None = None
    red: float | None = None
    wide: int | None = None
    decimals: int | None = None
    runbook: str | None = None

    @property
    def span(self) -> int:
        """Columns."""
        return self.wide or (4 if self.kind == "stat" else 8)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading; the first row of a dashboard has none: it is the answer."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    about: str
    rows: Sequence[Row]

    @property
    def panels(self) -> list[Panel]:
        """Of all rows."""
        return [panel for row in self.rows for panel in row.panels]


def one(expr: str, legend: str = "") -> tuple[Query]:
    """A single query."""
    return (Query(expr, legend),)


def quantile(q: float, histogram: str, where: str, by: str = "", span: str = RATE) -> str:
    """A quantile of a histogram over all processes."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) (rate({histogram}_bucket{{{where}}}[{span}])))"


def so_far(q: float, histogram: str, where: str, by: str) -> str:
    """A quantile since the processes began: for what is so rare that a rate sees little of it."""
    return f"histogram_quantile({q}, sum by (le, {by}) ({histogram}_bucket{{{where}}}))"


def total(metric: str, where: str, by: str = "") -> str:
    """A sum over all processes."""
    return f"sum by ({by}) ({metric}{{{where}}})" if by else f"sum({metric}{{{where}}})"


def per_second(counter: str, where: str, by: str = "") -> str:
    """Events a second."""
    inner = f"rate({counter}_total{{{where}}}[{RATE}])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def unsettled() -> str:
    """Dead letters that nobody has settled."""
    return f"sum(max by (stage) (eden_dead_letters_unsettled{{{OF}}})) or vector(0)"


def lately(counter: str, where: str, span: str, by: str = "") -> str:
    """How often within a span; 0 where it never happened."""
    inner = f"increase({counter}_total{{{where}}}[{span}])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner}) or vector(0)"
