"""The blocks of code that a page shows, for tests that run them as they are written."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, heading: str) -> list[tuple[str, str]]:
    """(language, text) of every block below a heading of the second level, in order."""
    text = (ROOT / page).read_text()
    start = text.index(f"\n## {heading}\n")
    end = text.find("\n## ", start + 1)
    return [(one[1], one[2]) for one in BLOCK.finditer(text[start : end if end > 0 else None])]
