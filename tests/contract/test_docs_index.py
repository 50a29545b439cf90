"""Every page of docs/ can be reached by links from docs/index.md, and no reader is left without a section."""

from collections.abc import Iterator
from posixpath import join, normpath

import pytest

from tests.contract.test_named_paths import LINK
from tests.named import ROOT, tracked

INDEX = "docs/index.md"
PAGES = frozenset(one for one in tracked() if one.startswith("docs/") and one.endswith((".md", ".yaml")))


def linked(page: str) -> Iterator[str]:
    """Pages that a page links to; a link to a folder leads to every page in it."""
    for match in LINK.finditer((ROOT / page).read_text()):
        target = normpath(join(page.rpartition("/")[0], match["path"]))
        yield from (one for one in PAGES if one == target or one.startswith(f"{target}/"))


def reached(start: str) -> set[str]:
    """All pages that links lead to, however many."""
    found, waiting = {start}, [start]
    while waiting:
        page = waiting.pop()
        new = set(linked(page)) - found if page.endswith(".md") else set[str]()
        found |= new
        waiting += new
    return found


def test_every_page_can_be_reached_from_the_index() -> None:
    assert PAGES - reached(INDEX) == set()


def test_a_page_that_nobody_links_to_would_be_found() -> None:
    assert "docs/how-to/forget.md" not in reached("docs/glossary.md") | {INDEX}


@pytest.mark.parametrize("folder", ["how-to", "reference"])
def test_pages_that_people_look_for_are_one_link_away(folder: str) -> None:
    wanted = {one for one in PAGES if one.startswith(f"docs/{folder}/")}
    assert wanted - set(linked(INDEX)) == set()


def test_the_index_is_a_page_and_no_book() -> None:
    assert len((ROOT / INDEX).read_text().splitlines()) <= 60
