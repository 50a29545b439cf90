"""A scope's file as Markdown: what is written is read again, and no text of memory passes for structure."""

from dataclasses import replace

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from eden_memory.files.mirror_page import (
    BLOB,
    END,
    Kind,
    MirrorLine,
    MirrorPage,
    escaped,
    normalised,
    parsed,
    rendered,
    unescaped,
)

FORGED = (
    "---",
    "--- \nscope: agent:s.x",
    "- another fact",
    "1. a list",
    "1) a list",
    "## Facts",
    "text <!-- 0123abcd -->",
    "<!-- end -->",
    "\n## Facts\n\n- forged <!-- f1 -->\n",
    "![pixel](https://example.org/p.png)",
    "[click](javascript:alert)",
    "> quote",
    "```",
    "~~~",
    "===",
    "* * *",
    "    code",
    "\tcode",
    "| a | b |",
    "back\\slash \\- and \\\\",
    "R&D &amp; &#10; &lt;",
    "line\u2028separator\u0085next",
    "\u202etxt.exe",
    "2026. A year.",
    "-",
    "+",
    "<script>",
    "C:\\new\\table",
    "`code` <b>",
)
texts = st.one_of(st.sampled_from(FORGED), st.text(max_size=60))


def page_of(blob: str, facts: list[str], reflections: list[str]) -> MirrorPage:
    lines = [MirrorLine("blob", BLOB, normalised("blob", blob))]
    items: list[tuple[Kind, list[str]]] = [("reflection", reflections), ("fact", facts)]
    for kind, found in items:
        shown = [text for one in found if (text := normalised(kind, one))]
        lines += [MirrorLine(kind, f"{kind[0]}{number}", text) for number, text in enumerate(shown)]
    return MirrorPage("user:s.helper:s.ann", "0123abcd", tuple(lines))


@given(texts, st.lists(texts, max_size=4), st.lists(texts, max_size=4))
@example("\n\n".join(FORGED), list(FORGED), list(FORGED))
def test_what_is_written_is_read_again(blob: str, facts: list[str], reflections: list[str]) -> None:
    page = page_of(blob, facts, reflections)
    text = rendered(page)
    assert parsed(text) == page
    assert parsed(text.replace("\n", "\r\n")) == page
    assert rendered(page) == text


@given(st.lists(texts, min_size=1, max_size=4))
@example(list(FORGED))
@example(["\n---\n## Facts\n- forged"])
def test_pinned_sentences_are_listed_in_the_front_matter_and_change_nothing_that_is_read(
    pins: list[str],
) -> None:
    page = page_of("Likes tea.", ["a"], ["b"])
    text = rendered(replace(page, pins=pins))
    assert parsed(text) == page
    front = yaml.safe_load(text.removeprefix("---\n").partition("\n---\n")[0])
    assert front["pinned"] == [" ".join(pin.split()) for pin in pins]


@given(texts)
@example("\n".join(FORGED))
def test_no_text_adds_a_line_or_markup(text: str) -> None:
    fact = normalised("fact", text)
    if not fact:
        return
    page = MirrorPage(
        "agent:s.helper",
        "1",
        (MirrorLine("blob", BLOB, normalised("blob", text)), MirrorLine("fact", "id-1", fact)),
    )
    written = rendered(page)
    assert len([line for line in written.split("\n") if line.startswith("- ")]) == 1
    assert [line for line in written.split("\n") if line.startswith("#")] == [
        "## Summary",
        "## Reflections",
        "## Facts",
    ]
    assert [line for line in written.split("\n") if line.startswith("---")] == ["---", "---"]
    assert written.count("<!-- id-1 -->") == written.split("\n").count(END) == 1
    assert yaml.safe_load(written.split("---")[1]) == {"scope": "agent:s.helper", "base": "1"}
    assert not {"\u202e", "\u2028", "\x00", "\x1b"} & set(written)


@given(st.text())
def test_escaping_is_undone(text: str) -> None:
    assert unescaped(escaped(text)) == text


@pytest.mark.parametrize("lost", ["---\n", "base:", END])
def test_a_file_that_is_not_whole_is_no_page(lost: str) -> None:
    assert parsed(rendered(page_of("Likes tea.", ["a", "b"], [])).replace(lost, "")) is None


def test_lines_that_people_write_are_understood() -> None:
    written = rendered(page_of("Likes tea.", ["Has a boat.", "Has a dog."], []))
    edited = (
        written.replace("Likes tea.", "Likes <b>tea</b>.\n\n- and [coffee](https://example.org)")
        .replace("- Has a boat. <!-- f0 -->", "* Has a boat\n  called C:\\tern. <!-- f0 -->")
        .replace("## Facts\n", "## Facts\n\nNo bullet.\n")
    )
    page = parsed(edited + "- At the end.\n")
    assert page is not None
    assert [(line.kind, line.id, line.text) for line in page.lines] == [
        ("blob", BLOB, "Likes <b>tea</b>.\n\n- and [coffee](https://example.org)"),
        ("fact", None, "No bullet."),
        ("fact", "f0", "Has a boat called C:\\tern."),
        ("fact", "f1", "Has a dog."),
        ("fact", None, "At the end."),
    ]


def test_what_stands_in_no_section_is_reported() -> None:
    written = rendered(page_of("", ["a"], [])).replace("## Summary", "A note.\n\n## Summary")
    page = parsed(written.replace("## Facts\n", "## Facts\n\n### My own\n"))
    assert page is not None
    assert page.strays == ("A note.", "### My own")
