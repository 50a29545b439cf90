"""Dashboards: in step with their code, every panel a question with an answer to "what now", few colours."""

import json
import re
from typing import Any, get_args

import pytest

from tests.dashboards.export import BOARDS, FOLDER, VARIABLES, generated, runbooks
from tests.dashboards.panels import Board, Panel, Unit

PANELS = [
    pytest.param(board, panel, id=f"{board.uid}: {panel.title}") for board in BOARDS for panel in board.panels
]
COLOURS = {"green", "orange", "red", "blue"}


def written(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


def test_what_is_checked_in_is_what_the_code_makes() -> None:
    made = generated()
    assert {path.name for path in FOLDER.glob("*.json")} == set(made)
    assert [name for name, text in made.items() if (FOLDER / name).read_text() != text] == []


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_a_panel_asks_a_question_and_says_what_to_do(board: Board, panel: Panel) -> None:
    assert panel.title.endswith("?")
    assert len(panel.when_red) > 20
    assert panel.unit in get_args(Unit)
    assert panel.queries
    assert panel.runbook is None or panel.runbook in runbooks()
    for query in panel.queries:
        assert 'namespace=~"$namespace"' in query.expr or "ALERTS" in query.expr


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_a_dashboard_answers_in_its_first_row_and_links_to_the_others(board: Board) -> None:
    made = written(f"{board.uid}.json")
    assert board.rows[0].title == ""
    assert {panel.kind for panel in board.rows[0].panels} == {"stat"}
    assert sum(panel.span for panel in board.rows[0].panels) == 24
    links = {link["url"] for link in made["links"]}
    assert links == {f"/d/{other.uid}" for other in BOARDS if other is not board} | {"/d/eden-runbooks"}
    assert {one["name"] for one in made["templating"]["list"]} == set(VARIABLES)
    titles = [panel.title for panel in board.panels]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_colours_are_few_and_no_two_panels_overlap(board: Board) -> None:
    made = written(f"{board.uid}.json")
    assert set(re.findall(r'"color": "([a-z-]+)"', json.dumps(made))) <= COLOURS
    taken: set[tuple[int, int]] = set()
    for panel in made["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place.get("x", 0), place.get("x", 0) + place["w"])
            for y in range(place.get("y", 0), place.get("y", 0) + place["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells


def test_every_runbook_is_a_panel_that_links_lead_to() -> None:
    made = written("eden-runbooks.json")
    assert [panel["title"] for panel in made["panels"]] == list(runbooks())
    assert len(runbooks()) > 10
