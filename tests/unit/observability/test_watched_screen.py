"""`eden watch` on a terminal of 80 by 24."""

from io import StringIO

from rich.console import Console

from eden_memory.cli.following_commands import render
from eden_memory.observability.watching import FormationProgress, WatchedChange


def shown(progress: FormationProgress) -> list[str]:
    """The lines that a terminal is given."""
    console = Console(file=StringIO(), width=80, height=24, force_terminal=True, color_system=None)
    console.print(render(progress))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_memory_of_many_scopes_fits_the_screen_and_no_text_moves_the_cursor() -> None:
    progress = FormationProgress()
    for number in range(40):
        blob = {"_id": f"session:s.session-{number}", "version": 1, "content": "a\x1b[2Jb [red]c"}
        progress.notice(WatchedChange("consolidated", blob))
    progress.lag = {"fact-dedup": 3}
    lines = shown(progress)
    text = "\n".join(lines)
    assert "session-39 v1 (2 words), and 38 others" in " ".join(text.split())
    assert "fact-dedup 3" in text, "the last line is there"
    assert "\x1b" not in text
    assert "[red]c" in text
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
