"""Writes dashboards/grafana/*.json; `python -m tests.dashboards.export --check` says whether they are in step."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import bargauge, dashboard, prometheus, stat, text, timeseries
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.text import TextMode

from tests.dashboards.llm_and_cost import LLM_AND_COST
from tests.dashboards.memory import MEMORY
from tests.dashboards.overview import OVERVIEW
from tests.dashboards.panels import BLUE, GREEN, ORANGE, RED, Board, Panel
from tests.dashboards.pipeline import PIPELINE

BOARDS = (OVERVIEW, PIPELINE, LLM_AND_COST, MEMORY)
FOLDER = Path(__file__).parents[2] / "dashboards" / "grafana"
SOURCE = common.DataSourceRef(type_val="prometheus", uid="eden-prometheus")
RUNBOOKS, PAGE = "eden-runbooks", Path(__file__).parents[2] / "docs" / "runbooks.md"
"""The runbooks are a dashboard too: links lead to their panels, wherever Grafana runs."""
TALL, SHORT, WIDE = 8, 4, 24
VARIABLES = {
    "namespace": "label_values(eden_build_info, namespace)",
    "stage": 'label_values(eden_stage_partitions{namespace=~"$namespace"}, stage)',
    "agent": 'label_values(eden_llm_calls_total{namespace=~"$namespace"}, agent)',
}


def generated() -> dict[str, str]:
    """File name → JSON."""
    made = {board.uid: _built(board) for board in BOARDS}
    return {f"{uid}.json": _json(one) for uid, one in {**made, RUNBOOKS: _runbooks()}.items()}


def _json(made: Any) -> str:
    return json.dumps(made, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _dashboard(uid: str, title: str, about: str) -> Any:
    made = dashboard.Dashboard(title).uid(uid).description(about).tags(["eden"])
    return made.refresh("10s").time("now-6h", "now").timezone("browser").readonly()


def _runbooks() -> Any:
    """docs/runbooks.md, a panel for each runbook, in the order of their names."""
    made = _dashboard(RUNBOOKS, "Eden: runbooks", "What each alert means, where to look, what to do.")
    for number, (name, content) in enumerate(runbooks().items()):
        panel = text.Panel().mode(TextMode.MARKDOWN).content(content).title(name).id(number + 1)
        made.with_panel(panel.grid_pos(_place(0, number * 10, WIDE, 10)))
    return made.build()


@cache
def runbooks() -> Mapping[str, str]:
    """Name of each runbook → its text, by name."""
    _, *parts = re.split(r"^## ([a-z-]+)\n+", PAGE.read_text(), flags=re.MULTILINE)
    return dict(sorted(zip(parts[::2], parts[1::2], strict=True)))


def runbook(name: str) -> str:
    """Where a runbook is in Grafana."""
    return f"/d/{RUNBOOKS}?viewPanel={list(runbooks()).index(name) + 1}"


def _built(board: Board) -> Any:
    made = _dashboard(board.uid, board.title, board.about)
    for name, query in VARIABLES.items():
        made = made.with_variable(_variable(name, query))
    for other in BOARDS:
        if other is not board:
            made = made.link(_link(other.title, f"/d/{other.uid}"))
    made = made.link(_link("Runbooks", f"/d/{RUNBOOKS}"))
    _fill(made, board)
    return made.build()


def _fill(made: Any, board: Board) -> None:
    """Panels from left to right, row by row; ids in that order."""
    number, top = 1, 0
    for row in board.rows:
        if row.title:
            made.with_row(dashboard.Row(row.title).id(number).grid_pos(_place(0, top, WIDE, 1)))
            number, top = number + 1, top + 1
        left, height = 0, 0
        for panel in row.panels:
            if left + panel.span > WIDE:
                left, top = 0, top + height
            height = SHORT if panel.kind == "stat" else TALL
            made.with_panel(_panel(panel).id(number).grid_pos(_place(left, top, panel.span, height)))
            number, left = number + 1, left + panel.span
        top += height


def _place(x: int, y: int, w: int, h: int) -> models.GridPos:
    return models.GridPos(x=x, y=y, w=w, h=h)


def _panel(panel: Panel) -> Any:
    made: Any = {"stat": _stat, "lines": _lines, "bars": _bars}[panel.kind](panel)
    made = made.title(panel.title).description(described(panel)).datasource(SOURCE).unit(panel.unit)
    made = made.thresholds(_thresholds(panel)).min(0)
    if panel.decimals is not None:
        made = made.decimals(panel.decimals)
    if panel.runbook is not None:
        made = made.links([_link("Runbook", runbook(panel.runbook))])
    for index, query in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(chr(65 + index))
        made = made.with_target(target.range() if panel.kind == "lines" else target.instant())
    return made


def described(panel: Panel) -> str:
    """What a panel says under its question."""
    limits = "" if panel.red is None else f" Red at {panel.red:g}."
    return f"When red or odd: {panel.when_red}{limits}"


def _stat(panel: Panel) -> Any:
    colour = models.FieldColorModeId.THRESHOLDS
    return (
        stat.Panel()
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(
            common.BigValueGraphMode.AREA if panel.orange or panel.red else common.BigValueGraphMode.NONE
        )
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_scheme(dashboard.FieldColor().mode(colour))
    )


def _lines(panel: Panel) -> Any:
    del panel
    legend = (
        common_builders.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    return timeseries.Panel().line_width(1).fill_opacity(8).legend(legend)


def _bars(panel: Panel) -> Any:
    del panel
    colour = models.FieldColorModeId.THRESHOLDS
    return (
        bargauge.Panel()
        .orientation(common.VizOrientation.HORIZONTAL)
        .display_mode(common.BarGaugeDisplayMode.BASIC)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_scheme(dashboard.FieldColor().mode(colour))
    )


def _thresholds(panel: Panel) -> Any:
    """Green is good; without limits blue: the figure is neither good nor bad."""
    limits = [(panel.orange, ORANGE), (panel.red, RED)]
    given = [(value, colour) for value, colour in limits if value is not None]
    less_is_worse = panel.orange is not None and panel.red is not None and panel.red < panel.orange
    steps = [models.Threshold(value=None, color=GREEN if given else BLUE)]
    if less_is_worse:
        steps = [models.Threshold(value=None, color=RED)]
        steps += [
            models.Threshold(value=panel.red, color=ORANGE),
            models.Threshold(value=panel.orange, color=GREEN),
        ]
    else:
        steps += [models.Threshold(value=value, color=colour) for value, colour in given]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _variable(name: str, query: str) -> Any:
    return (
        dashboard.QueryVariable(name)
        .query(query)
        .datasource(SOURCE)
        .include_all(True)
        .all_value(".*")
        .multi(True)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


def _link(title: str, url: str) -> Any:
    return (
        dashboard.DashboardLink(title)
        .type(models.DashboardLinkType.LINK)
        .url(url)
        .keep_time(True)
        .include_vars(RUNBOOKS not in url)
    )


def main(arguments: Sequence[str]) -> int:
    """0 if nothing differed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    files = generated()
    differing = [name for name, text in files.items() if not _is(FOLDER / name, text)]
    for name in differing if "--check" not in arguments else ():
        (FOLDER / name).write_text(files[name])
    print(*(f"{name} {'differs' if '--check' in arguments else 'written'}" for name in differing), sep="\n")  # noqa: T201
    return bool(differing) and "--check" in arguments


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
