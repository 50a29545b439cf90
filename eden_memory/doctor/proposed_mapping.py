"""A proposed mapping with its collection of sessions, as an `eden.toml` and as part of one. Pure."""

import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic import SecretStr

from eden_memory.directory.participants import ROOM_CHOICES
from eden_memory.doctor.finding import Finding
from eden_memory.doctor.known_shapes import KnownSessions
from eden_memory.doctor.mapping_proposal import (
    HALF,
    ID,
    ID_WORDS,
    SESSION,
    Proposal,
    temporary,
)
from eden_memory.doctor.sampled_fields import WORD, SampledField, is_id, kinds, sampled_fields
from eden_memory.errors import EdenError
from eden_memory.mongo.document_fields import getter
from eden_memory.mongo.ids import encode_id
from eden_memory.settings import SPEAKERS

USERS = frozenset(
    {"users", "user", "members", "member", "participants", "participant", "people", "customers", "customer"}
)

NAMES_OF_PEOPLE = ("displayname", "display_name", "fullname", "full_name", "name", "profile.name", "username")

TITLE = ("title", "subject", "topic", "name")

AGENT = frozenset({"agent", "assistant", "bot"})

NO_FIELD = "-"
"""A path to nothing: the users of a session are then the authors of its messages."""

NAMED = frozenset(word for word, weight in SESSION.items() if weight > 0) - ID_WORDS


@dataclass(frozen=True, slots=True)
class SessionsProposal:
    """Where the fields of a session seem to be; None: nowhere."""

    collection: str
    sampled: int
    """Sessions of the sampled messages."""
    described: int
    """Those of them that have a document."""
    users: str | None
    agent_id: str | None
    title: str | None
    no_ids: str | None = None
    """A field that says something of the users, and is no list of their ids."""
    with_answering: str | None = None
    """A field that lists the ids of users, and of who only answers."""
    exclude: Sequence[str] = ()
    """What keeps a session out of memory."""
    only_agent: str | None = None
    """The typed id of the agent that all of these sessions name."""
    id: str = ID
    """The field by which messages name them."""
    forms: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def paths(self) -> dict[str, str]:
        """The paths that were found, by the name of the setting."""
        users = NO_FIELD if self.with_answering else self.users
        joined = None if self.id == ID else self.id
        found = {"id": joined, "agent_id": self.agent_id, "users": users, "title": self.title}
        return {name: path for name, path in found.items() if path is not None}


def propose_sessions(
    collection: str,
    documents: Sequence[Mapping[str, Any]],
    sampled: int,
    answering: Collection[str] = (),
    known: KnownSessions | None = None,
) -> SessionsProposal | None:
    """The mapping of documents whose ids are those of sessions; None where they do not look like sessions.

    `answering`: ids (as `repr` writes them) of those who only answer, as a bot's: no list of users holds them.
    `known`: the fields that the program of the messages has in them, of which one is the id.
    """
    fields = sampled_fields(documents)
    path = ID if known is None else known.id
    described = len({repr(getter(path)(document)) for document in documents})
    users = _first(
        fields, lambda sampled_field: _speaks(sampled_field, USERS) and sampled_field.share(_are_ids) >= HALF
    )
    if known is not None:
        users = _first(
            fields, lambda field: field.path == known.users and field.share(_is_or_are_ids) >= HALF
        )
    if described < HALF * sampled or not (users or (known is None and NAMED & _words(collection))):
        return None
    with_answering = users if users and any(lists_any(value, answering) for value in users.present) else None
    users = None if with_answering else users
    agent = _first(
        fields,
        lambda sampled_field: (
            _speaks(sampled_field, AGENT) and _names_one(sampled_field) and sampled_field.share(is_id) >= HALF
        ),
    )
    titles = {
        sampled_field.path.lower(): sampled_field
        for sampled_field in fields
        if sampled_field.share(lambda value: isinstance(value, str)) >= HALF
    }
    title = next((titles[word] for word in TITLE if word in titles), None)
    no_ids = (
        None
        if users or with_answering
        else _first(fields, lambda sampled_field: _speaks(sampled_field, USERS))
    )
    found = {"users": users, "agent_id": agent, "title": title}
    return SessionsProposal(
        collection,
        sampled,
        described,
        id=path,
        **{name: sampled_field.path if sampled_field else None for name, sampled_field in found.items()},
        no_ids=no_ids.path if no_ids else None,
        with_answering=with_answering.path if with_answering else None,
        exclude=temporary(fields),
        only_agent=_only_id(agent),
        forms={name: _forms(sampled_field) for name, sampled_field in found.items() if sampled_field}
        | {"id": "by which messages name the session"}
        | (
            {"users": f"no field: {with_answering.path} lists who only answers, too"}
            if with_answering
            else {}
        ),
    )


@dataclass(frozen=True, slots=True)
class UsersProposal:
    """A collection that describes the authors of messages, and where their names seem to be."""

    collection: str
    asked: int
    """Authors of the sampled messages."""
    described: int
    """Those of them that have a document."""
    name: str | None


def propose_users(
    collection: str, documents: Sequence[Mapping[str, Any]], asked: int
) -> UsersProposal | None:
    """The mapping of documents whose ids are those of authors; None where they do not look like people."""
    if not documents or len(documents) < HALF * asked or not USERS & _words(collection):
        return None
    texts = {
        found.path.lower(): found.path
        for found in sampled_fields(documents)
        if found.share(lambda value: isinstance(value, str)) >= HALF
    }
    name = next((texts[word] for word in NAMES_OF_PEOPLE if word in texts), None)
    return UsersProposal(collection, asked, len(documents), name)


def _first(fields: Sequence[SampledField], fits: Callable[[SampledField], bool]) -> SampledField | None:
    return next((sampled_field for sampled_field in fields if fits(sampled_field)), None)


def _only_id(sampled_field: SampledField | None) -> str | None:
    """Return the typed id that all documents have in a field; None if they differ."""
    if sampled_field is None or sampled_field.share(is_id) != 1:
        return None
    found = {encode_id(value) for value in sampled_field.present}
    return found.pop() if len(found) == 1 else None


def _words(name: str) -> set[str]:
    """The words of a collection's name, in the singular too."""
    words = {word.lower() for word in WORD.findall(name)}
    return words | {word.removesuffix("s") for word in words}


def _speaks(sampled_field: SampledField, words: frozenset[str]) -> bool:
    return bool(words & {*sampled_field.words, *(word.removesuffix("id") for word in sampled_field.words)})


def _names_one(sampled_field: SampledField) -> bool:
    """Whether its name is an id's: `agent`, `agentId`, `bot_id`."""
    return len(sampled_field.words) == 1 or sampled_field.words[-1] == "id"


def lists_any(value: Any, ids: Collection[str]) -> bool:
    """Whether a list of users, or the one id in place of it, is or holds one of these ids, as `repr` writes them."""
    return any(
        repr(item) in ids for item in (cast("list[Any]", value) if isinstance(value, list) else [value])
    )


def _forms(sampled_field: SampledField) -> str:
    """The kinds of its values; of lists, those of what they list."""
    lists = [cast("list[Any]", value) for value in sampled_field.present if isinstance(value, list)]
    items = [item for some in lists for item in some]
    return f"list of {kinds(items)}" if items else kinds(sampled_field.present)


def _are_ids(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    items = cast("list[Any]", value)
    return bool(items) and all(map(is_id, items))


def _is_or_are_ids(value: Any) -> bool:
    return is_id(value) or _are_ids(value)


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
    users: UsersProposal | None = None,
) -> str:
    """A complete `eden.toml`: what was not found stands there as a comment."""
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
            *_users_section(users),
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
        if sessions.only_agent is not None:
            yield from ("[agents]", _line("default", sessions.only_agent, "all sampled sessions are its"), "")


def _users_section(users: UsersProposal | None) -> Iterator[str]:
    if users is not None:
        yield "[users]"
        yield f"collection = {_text(users.collection)}"
        yield _line("name", users.name, "text")
        yield ""


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


def findings_of_sessions(sessions: SessionsProposal) -> list[Finding]:
    """Describe the collection of sessions, and what follows from what it lacks."""
    what = f"`{sessions.collection}` describes {sessions.described} of the {sessions.sampled} sessions looked for"
    found = [Finding("sessions", "ok", what)]
    if sessions.described < sessions.sampled:
        hint = "Leave [sessions] out, unless every session is to get a document."
        waits = f"{what}; messages of the others form no memory before there is one"
        found = [Finding("sessions", "warn", waits, hint)]
    if sessions.users is None:
        what = "no field lists the ids of a session's users: users are the authors of its messages"
        if sessions.no_ids is not None:
            what = f"`{sessions.no_ids}` is no list of ids: a session's users are the authors of its messages"
        if sessions.with_answering is not None:
            what = (
                f"`{sessions.with_answering}` lists who only answers, too, as a bot: a session's users are the "
                "authors of its messages"
            )
        found.append(
            Finding("sessions", "warn", what, "Write the users' ids as a list: it also says who only reads.")
        )
    return found


def finding_of_users(users: UsersProposal) -> Finding:
    """Describe the collection of users, and what mapping it changes."""
    what = (
        f"`{users.collection}` describes {users.described} of the {users.asked} authors looked for; with it, "
        "sessions of no known user form no memory"
    )
    return Finding("users", "ok", what)


def finding_of_rooms(several: int, sessions: int) -> Finding:
    """Of sessions in which several users write."""
    what = f"in {several} of {sessions} sampled sessions several users write: it keeps no facts by default"
    return Finding("rooms", "warn", what, ROOM_CHOICES)


def finding_of_listed(path: str) -> Finding:
    """Of documents that each hold a whole session."""
    return Finding(
        "messages",
        "fail",
        f"`{path}` lists several messages in each document, and the mapping takes a document for one",
        f"Set EDEN_MESSAGES_LIST={path}, and paths that begin with it: `eden doctor --init` proposes them.",
    )
