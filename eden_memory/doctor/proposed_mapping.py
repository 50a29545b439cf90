"""A proposed mapping, as an `eden.toml` and as part of one, and what follows from what it lacks. Pure."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import SecretStr

from eden_memory.doctor.finding import Finding
from eden_memory.doctor.mapping_proposal import ID, Proposal
from eden_memory.doctor.proposed_rooms import RoomChoice, SampledRooms, memory_lines
from eden_memory.doctor.proposed_sessions import PeopleProposal, SessionsProposal
from eden_memory.errors import EdenError
from eden_memory.settings import SPEAKERS

SECTION = re.compile(r"^\[+\s*([\w-]+)", re.MULTILINE)

SECRET = ("@", "auth", "password")
"""What stands in an address that may hold a secret."""

OURS = frozenset({"source", "messages"})


@dataclass(frozen=True, slots=True)
class ProposedPlace:
    """Where messages and memory are."""

    database: str
    collection: str
    memory_database: str
    uri: SecretStr | None = None
    """The address of MongoDB; None: the local server."""


def as_toml(
    proposal: Proposal,
    place: ProposedPlace,
    documents: int,
    sessions: SessionsProposal | None = None,
    users: PeopleProposal | None = None,
    agents: PeopleProposal | None = None,
    rooms: SampledRooms | None = None,
    choice: RoomChoice | None = None,
) -> str:
    """A complete `eden.toml`: what was not found stands there as a comment, and so does what nobody has chosen."""
    return "\n".join(
        [
            f"# Proposed by `eden doctor --init` from {documents} documents. Check it, then run `eden doctor`.",
            "",
            "[mongodb]",
            _address(place.uri),
            f"database = {_text(place.memory_database)}  # of the memory collections",
            "",
            "[source]",
            f"database = {_text(place.database)}",
            "",
            *_sessions_section(sessions),
            *_agents_section(sessions, agents),
            *_people_section("users", users),
            *memory_lines(rooms, choice),
            "[messages]",
            f"collection = {_text(place.collection)}",
            *_proven(_messages_lines(proposal), _messages_lines(proposal.other or proposal)),
            "",
        ]
    )


def _address(uri: SecretStr | None) -> str:
    """Return the line that names an address, unless it may hold a secret."""
    named = "" if uri is None else uri.get_secret_value()
    if not named:
        return '# uri = "mongodb://…"  # without it, the local server of `eden up`'
    if any(part in named.lower() for part in SECRET):
        return "# The address may hold a password: set EDEN_MONGODB_URI in the environment."
    return f"uri = {_text(named)}"


def _sessions_section(sessions: SessionsProposal | None) -> Iterator[str]:
    if sessions is not None:
        yield "[sessions]"
        yield f"collection = {_text(sessions.collection)}"
        for name, path in sessions.paths.items():
            yield _line(name, path, sessions.forms.get(name, ""))
        yield from _marks("exclude", sessions.exclude, "marks a session that is kept out of memory")
        yield ""


def _agents_section(sessions: SessionsProposal | None, agents: PeopleProposal | None) -> Iterator[str]:
    only = None if sessions is None else sessions.only_agent
    default = [] if only is None else [_line("default", only, "all sampled sessions are its")]
    if agents is not None:
        yield from _people_section("agents", agents, default)
    elif default:
        yield from ("[agents]", *default, "")


def _people_section(name: str, people: PeopleProposal | None, more: Sequence[str] = ()) -> Iterator[str]:
    if people is not None:
        yield f"[{name}]"
        yield f"collection = {_text(people.collection)}"
        yield _line("name", people.name, "text")
        yield from (*more, "")


def _line(name: str, path: str | Sequence[str] | None, form: str) -> str:
    if path is None:
        return f'# {name} = "…"  # not found'
    value = _text(path) if isinstance(path, str) else f"[{', '.join(map(_text, path))}]"
    return f"{name} = {value}  # {form}"


def _messages_lines(proposal: Proposal) -> list[str]:
    several = {"content": proposal.contents} if proposal.otherwise else {}
    paths: Mapping[str, str | Sequence[str] | None] = {**proposal.paths, **several}
    listed = "its elements are the messages"
    if proposal.listed is not None and SPEAKERS in proposal.listed:
        listed = "the texts of these fields are the messages"
        paths = {name: path for name, path in paths.items() if name not in ("role", "content")}
    return [
        *([] if proposal.listed is None else [_line("list", proposal.listed, listed)]),
        *(_line(name, path, proposal.forms.get(name, "")) for name, path in paths.items()),
        *_roles(proposal),
        *_marks("deleted", proposal.deleted, "marks a deleted message"),
        *_marks("exclude", proposal.exclude, "marks a message that is kept out of memory"),
    ]


def _proven(first: Sequence[str], second: Sequence[str]) -> Iterator[str]:
    """Yield the lines of both readings; those that only one has are comments."""
    for line in first:
        yield line if line in second else f"# reading 1: {line.removeprefix('# ')}"
    yield from (f"# reading 2: {line.removeprefix('# ')}" for line in second if line not in first)


def readings_of(proposal: Proposal) -> list[tuple[Proposal, list[str]]]:
    """Return the two readings of a proposal in doubt, each with the lines that only it has."""
    if proposal.other is None:
        return []
    first, second = replace(proposal, other=None, doubt=""), proposal.other
    lines = {1: _messages_lines(first), 2: _messages_lines(second)}
    return [
        (first, [line for line in lines[1] if line not in lines[2]]),
        (second, [line for line in lines[2] if line not in lines[1]]),
    ]


def _marks(name: str, marks: Sequence[str], what: str) -> Iterator[str]:
    if marks:
        yield f"{name} = {json.dumps(marks)}  # {what}"


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
    """The file that is there with its mapping replaced; marks, and every other section, stay."""
    kept = [text for name, text in _sections(present) if name not in OURS]
    names = {name for name, _ in _sections(present)}
    new = [text for name, text in _sections(proposed) if name in OURS or (name and name not in names)]
    try:
        mine, theirs = (tomllib.loads(text).get("messages", {}) for text in (present, proposed))
        for name in ("on_delete", "deleted", "exclude"):
            chosen, found = mine.get(name), theirs.get(name)
            if chosen is None or (found and set(chosen) <= set(found)):
                continue
            value = [*dict.fromkeys([*chosen, *found])] if found else chosen
            lines = [line for line in new[-1].splitlines() if not line.startswith(f"{name} = ")]
            new[-1] = "\n".join([*lines, f"{name} = {json.dumps(value, ensure_ascii=False)}", ""])
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


NOT_FOUND = {
    "session_id": Finding(
        "session",
        "fail",
        "no field names the session: no document can become a message",
        "Write the session's id (text, number, ObjectId or UUID) with each message.",
    ),
    "content": Finding(
        "text",
        "fail",
        "no field holds text or a list of text parts: nothing can be remembered",
        "Write the text with each message.",
    ),
    "role": Finding(
        "roles",
        "warn",
        "no field says who speaks: every message counts as `other`, with half the weight of a user's, and no message "
        "is taken as a user's own words",
        "Write the role with each message, as text: `user`, `assistant`, `tool` or `system`.",
    ),
    "user_id": Finding(
        "message authors",
        "warn",
        "no field names the author: no user gets a memory of their own, and users of a session cannot be told apart",
        "Write the user's id with each message of a user. If every session belongs to one user, its id can stand for "
        "the user's: set `user_id` to the path of `session_id`.",
    ),
    "created_at": Finding(
        "time",
        "warn",
        "no field says when a message was written: existing messages are read in the order of their ids, and count "
        "as written when they were read",
        "Write a date, ISO text, or seconds or milliseconds since 1970 with each message.",
    ),
}


TIME_OF_IDS = Finding(
    "time",
    "warn",
    "no field says when a message was written: the time in its ObjectId is taken, the second in which the message "
    "was inserted; imported messages count as written when they were imported",
    "If a message may be older than its document, write a date, ISO text, or seconds since 1970 with it.",
)


def findings_of(proposal: Proposal) -> list[Finding]:
    """One for each field of a message that was not found, and for roles that are not clear."""
    found = [NOT_FOUND[name] for name, path in proposal.paths.items() if path is None]
    if proposal.created_at == ID:
        found.append(TIME_OF_IDS)
    if proposal.doubt:
        hint = "Call `eden doctor --init` on a terminal and choose, or copy the lines of the reading that is right."
        found.append(Finding("two readings", "fail", proposal.doubt, hint))
    if proposal.unclear:
        listed = ", ".join(f"{name!r} ({count})" for name, count in proposal.unclear.items())
        what = f"not clear what these mean: {listed}; they count as `other`"
        hint = 'Add what you know to `roles`: "user", "assistant", "tool", "system" or "other".'
        found.append(Finding("roles", "warn", what, hint))
    if proposal.without_role:
        what = f"{proposal.without_role} of the documents have no role: they count as `other`"
        found.append(Finding("roles", "warn", what))
    return found


def finding_of_listed(path: str) -> Finding:
    """Of documents that each hold a whole session."""
    return Finding(
        "messages",
        "fail",
        f"`{path}` lists several messages in each document, and the mapping takes a document for one",
        f"Set EDEN_MESSAGES_LIST={path}, and paths that begin with it: `eden doctor --init` proposes them.",
    )
