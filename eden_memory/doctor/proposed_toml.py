"""A proposed mapping as an `eden.toml`, and as part of one that is there already. Pure."""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

from eden_memory.doctor.proposing import Proposal
from eden_memory.doctor.proposing_sessions import SessionsProposal
from eden_memory.errors import EdenError

SECTION = re.compile(r"^\[+\s*([\w-]+)", re.MULTILINE)
OURS = frozenset({"source", "messages"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages and memory are."""

    database: str
    collection: str
    memory_database: str


def as_toml(
    proposal: Proposal, place: Place, documents: int, sessions: SessionsProposal | None = None
) -> str:
    """A complete `eden.toml`: what was not found stands there as a comment."""
    return "\n".join(
        [
            f"# Proposed by `eden doctor --init` from {documents} documents. Check it, then run `eden doctor`.",
            "",
            "[mongodb]",
            "# The address may hold a password: set EDEN_MONGODB_URI in the environment.",
            f"database = {_text(place.memory_database)}  # of the memory collections",
            "",
            "[source]",
            f"database = {_text(place.database)}",
            "",
            *_sessions_section(sessions),
            "[messages]",
            f"collection = {_text(place.collection)}",
            *(_line(name, path, proposal.forms.get(name, "")) for name, path in proposal.paths.items()),
            *_roles(proposal),
            "",
        ]
    )


def _sessions_section(sessions: SessionsProposal | None) -> Iterator[str]:
    if sessions is not None:
        yield "[sessions]"
        yield f"collection = {_text(sessions.collection)}"
        for name, path in sessions.paths.items():
            yield _line(name, path, sessions.forms.get(name, ""))
        yield ""


def _line(name: str, path: str | None, form: str) -> str:
    return f"{name} = {_text(path)}  # {form}" if path is not None else f'# {name} = "…"  # not found'


def _roles(proposal: Proposal) -> Iterator[str]:
    for name, count in proposal.unclear.items():
        yield f"# not clear: {_text(name)} ({count} documents) counts as other"
    if proposal.roles:
        pairs = ", ".join(f"{_text(name)} = {_text(role)}" for name, role in sorted(proposal.roles.items()))
        yield f"roles = {{ {pairs} }}"


def _text(value: str) -> str:
    """A basic string of TOML: JSON's, but for a character that only TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def merged(present: str, proposed: str) -> str:
    """The file that is there with its mapping replaced; every other section stays as it is written."""
    kept = [text for name, text in _sections(present) if name not in OURS]
    names = {name for name, _ in _sections(present)}
    new = [text for name, text in _sections(proposed) if name in OURS or (name and name not in names)]
    try:
        chosen = tomllib.loads(present).get("messages", {}).get("on_delete")
        if chosen is not None:
            new[-1] = f"{new[-1].rstrip()}\non_delete = {_text(chosen)}\n"
        whole = "\n\n".join(text.strip("\n") for text in [*kept, *new] if text.strip()) + "\n"
        tomllib.loads(whole)
    except tomllib.TOMLDecodeError:
        raise EdenError(
            "the mapping cannot be put into eden.toml as it is written there",
            "Copy the lines that `eden doctor --init` prints into it yourself.",
        ) from None
    return whole


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """(name, text) of what stands before the first table, and of each table."""
    starts = [(found[1], found.start()) for found in SECTION.finditer(text)]
    yield "", text[: starts[0][1]] if starts else text
    ends = [*(start for _, start in starts), len(text)][1:]
    for (name, start), end in zip(starts, ends, strict=True):
        yield name, text[start:end]
