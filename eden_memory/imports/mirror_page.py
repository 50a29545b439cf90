"""The Markdown file of one scope: front matter, summary, reflections and facts, one a line. Pure.

Text of memory cannot change the file's structure: what Markdown, HTML or the ids' comments would read as markup is
escaped as in CommonMark, and control characters are written as numeric references.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import yaml

Kind = Literal["blob", "reflection", "fact"]
HEADINGS: dict[Kind, str] = {"blob": "## Summary", "reflection": "## Reflections", "fact": "## Facts"}
KINDS: dict[str, Kind] = {heading: kind for kind, heading in HEADINGS.items()}
BLOB = ""
"""The id of a scope's blob in its file."""
END = "<!-- end -->"
NEW = "new"
"""In a conflict file in place of the id of what was never memory."""
COMMENT = re.compile(r"(?<!\\)<!--\s*([A-Za-z0-9_.~%:/@-]{1,4096}?)\s*-->")
BULLET = re.compile(r"[-*+](?:\s+|$)")
MARKUP = re.compile(r"[\\`<\[]|&(?=#?\w+;)")
LEADING = re.compile(r"^(?: |(\d+(?=[.)]))?([#>\-+*=|~:_.)]))")
ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])|&#(\d{1,7});")
REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True, slots=True)
class MirrorLine:
    """One text of a file; `id` None: the user has added it."""

    kind: Kind
    id: str | None
    text: str


@dataclass(frozen=True, slots=True)
class MirrorPage:
    """The content of a scope's file."""

    scope_key: str
    base: str
    """Names the memory that the file was written from."""
    lines: Sequence[MirrorLine]
    strays: Sequence[str] = ()
    """Lines that belong to no item: before the sections, or headings that the user added."""
    pins: Sequence[str] = ()
    """Sentences that the blob must keep; they are shown, and not read from a file."""


def normalised(kind: Kind, text: str) -> str:
    """Return a text as a file holds it: facts and reflections in one line, blobs without surrounding space."""
    if kind != "blob":
        return " ".join(text.split())
    return "\n".join(line.rstrip() for line in re.split(r"\r\n|\r|\n", text)).strip()


def digest_of(text: str) -> str:
    """Return a hash that stands for a text in the mirror's own files, which hold no text."""
    return sha256(text.encode()).hexdigest()[:24]


def escaped(line: str) -> str:
    """Return one line of text as Markdown that shows it, and nothing else."""
    shown = "".join(map(_visible, MARKUP.sub(r"\\\g<0>", line)))
    return LEADING.sub(
        lambda found: "&#32;" if found[0] == " " else f"{found[1] or ''}\\{found[2]}", shown, 1
    )


def unescaped(text: str) -> str:
    """Return the text of Markdown that :func:`escaped` or a person wrote."""
    return ESCAPED.sub(_meant, text)


def _visible(character: str) -> str:
    hidden = unicodedata.category(character) in ("Cc", "Zl", "Zp") or character in REORDERING
    return f"&#{ord(character)};" if hidden else character


def _meant(found: re.Match[str]) -> str:
    if found[1] is not None:
        return found[1]
    number = int(found[2])
    return chr(number) if number < 0xD800 or 0xDFFF < number < 0x110000 else found[0]


def rendered(page: MirrorPage) -> str:
    """Return the file's text."""
    named: dict[str, object] = {"scope": page.scope_key, "base": page.base}
    named |= {"pinned": [" ".join(pin.split()) for pin in page.pins]} if page.pins else {}
    front = yaml.safe_dump(named, sort_keys=False, width=10_000, allow_unicode=True)
    parts = [f"---\n{front}---"]
    for kind, heading in HEADINGS.items():
        parts.append(heading)
        written = [_written(line) for line in page.lines if line.kind == kind]
        parts += ["\n".join(written)] if any(written) else []
    return "\n\n".join([*parts, END]) + "\n"


def _written(line: MirrorLine) -> str:
    if line.kind == "blob":
        return "\n".join(map(escaped, line.text.split("\n")))
    return f"- {escaped(line.text)}" + (f" <!-- {line.id} -->" if line.id is not None else "")


def parsed(text: str) -> MirrorPage | None:
    """Return the page that a file holds; None unless it has its front matter and its end, so is whole."""
    front, _, body = (
        text.replace("\r\n", "\n").removeprefix("\ufeff").removeprefix("---\n").partition("\n---\n")
    )
    try:
        named = yaml.safe_load(front) if body else None
    except (yaml.YAMLError, ValueError, RecursionError):
        named = None
    lines = body.split("\n")
    if not isinstance(named, dict) or END not in lines:
        return None
    key, base = (named.get(name) for name in ("scope", "base"))  # pyright: ignore
    if not isinstance(key, str) or not isinstance(base, str):
        return None
    reader = _PageReader()
    for line in lines:
        reader.take(line.rstrip())
    return MirrorPage(key, base, tuple(reader.lines()), tuple(reader.strays))


class _PageReader:
    """Gathers the lines of each section; lines that follow each other belong to one item."""

    def __init__(self) -> None:
        self.strays: list[str] = []
        self._kind: Kind | None = None
        self._items: list[tuple[Kind, list[str]]] = []
        self._blob: list[str] = []
        self._goes_on = False

    def take(self, line: str) -> None:
        """Add a line."""
        self._goes_on, went_on = False, self._goes_on
        if line in KINDS:
            self._kind = KINDS[line]
        elif line == END:
            self._kind = "fact"
        elif self._kind == "blob":
            self._blob.append(line)
        elif self._kind is None or line.startswith("#"):
            self.strays += [line] if line.strip() else []
        elif line.strip():
            self._take_item(self._kind, line.strip(), went_on=went_on)

    def _take_item(self, kind: Kind, line: str, *, went_on: bool) -> None:
        self._goes_on = True
        if went_on and not BULLET.match(line):
            self._items[-1][1].append(line)
        else:
            self._items.append((kind, [BULLET.sub("", line, count=1) if BULLET.match(line) else line]))

    def lines(self) -> Iterator[MirrorLine]:
        """Return what was found; an item without text is none."""
        yield MirrorLine("blob", BLOB, normalised("blob", "\n".join(map(unescaped, self._blob))))
        for kind, lines in self._items:
            joined = " ".join(lines)
            ids = COMMENT.findall(joined)
            text = normalised(kind, unescaped(COMMENT.sub(" ", joined)))
            if text:
                yield MirrorLine(kind, ids[-1] if ids else None, text)


def conflict_line(item_id: str, why: str, text: str) -> str:
    """Return the line of a conflict file: the user's text, and why it is not in memory."""
    return f"- {escaped(why)}: {escaped(text.replace(chr(10), ' / '))} <!-- {item_id or NEW} -->"


def conflict_ids(text: str) -> set[str]:
    """Return the ids of memory that a conflict file names."""
    return set(COMMENT.findall(text)) - {NEW}


def without_conflicts(text: str, gone: Callable[[str], bool]) -> str:
    """Return a conflict file's text without the lines of memory that is gone."""
    kept = [line for line in text.split("\n") if not any(map(gone, COMMENT.findall(line)))]
    return "\n".join(kept)
