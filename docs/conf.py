"""Sphinx makes the site of these pages (`make docs`): strict, so a link that leads nowhere fails."""

import re
from pathlib import Path

from sphinx.application import Sphinx

project = "Eden Memory"
extensions = ["myst_nb"]
nb_execution_mode = "off"  # `make notebook` runs it
exclude_patterns = ["conf.py"]
html_theme = "furo"
html_title = "Eden Memory"
myst_heading_anchors = 4
HERE = Path(__file__).parent
LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<target>[^)#\s:]+)(?:#[\w-]*)?\)")
CHAPTERS = {
    "Tutorials": "tutorials/*",
    "How to": "how-to/*",
    "How it works": "*",
    "Reference": "reference/*",
    "Notebooks": "notebooks/*",
    "Decisions": "decisions/*",
}


def outside_as_text(app: Sphinx, docname: str, source: list[str]) -> None:
    """Show links to files of the repository that are no pages as text with their path; they must be there."""
    del app
    folder = (HERE / docname).parent

    def shown(found: re.Match[str]) -> str:
        target = (folder / found["target"]).resolve()
        inside = target.is_relative_to(HERE) and target.is_file()
        if inside or not target.exists():
            return found[0]
        return f"{found['text']} (`{target.relative_to(HERE.parent)}`)"

    source[0] = LINK.sub(shown, source[0])
    if docname == "index":
        source[0] += "".join(_chapter(caption, pages) for caption, pages in CHAPTERS.items())


def _chapter(caption: str, pages: str) -> str:
    return f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{pages}\n```\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", outside_as_text)
