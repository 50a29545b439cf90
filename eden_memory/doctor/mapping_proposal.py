"""The mapping that an application's own documents suggest: which field is what, what each role means. Pure."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from bson import ObjectId

from eden_memory.doctor.known_shapes import HALF, KnownShape, at, known_shape, listed_rows
from eden_memory.doctor.role_names import (
    PAIR,
    flag_roles,
    meaning,
    name_of_role,
    names_me,
    role_names,
)
from eden_memory.doctor.sampled_fields import (
    WORD,
    Row,
    SampledField,
    is_id,
    is_moment,
    is_text,
    kind,
    kinds,
    moment_kind,
    sampled_fields,
)
from eden_memory.mongo.document_fields import (
    Unusable,
    beside,
    beside_content,
    first_with_text,
    getter,
    text_of,
)
from eden_memory.names import JSON_TEXT
from eden_memory.schemas.events.chat import ALL_OTHERS, role_name, role_of, roles_of
from eden_memory.settings import SAID, SPEAKER, SPEAKERS, Role

MANY_SESSIONS = 3
"""Of so many sessions the one author is the user of all of them, or no user."""

SHOWN = 60
"""Characters of a sample's text."""

SWAPPED: Mapping[Role, Role] = {"user": "assistant", "assistant": "user"}

MOST_ROLES = 12
"""Distinct values that a field may have to be a role."""

LIKELY = 4
"""So many fields of a message are enough; session, role and text are, too."""

ID = "_id"

ID_WORDS = frozenset({"id", "uuid", "key"})

Weights = Mapping[str, float]


SESSION: Weights = {
    **dict.fromkeys(("session", "conversation", "thread", "dialog", "dialogue", "conv"), 5),
    **dict.fromkeys(("chat", "room", "channel"), 3),
    **dict.fromkeys(("ticket", "case"), 2),
    **dict.fromkeys(ID_WORDS, 1),
    **dict.fromkeys(("message", "msg", "parent", "reply", "user", "title", "name", "type", "status"), -4),
}

ROLE: Weights = {
    "role": 5,
    **dict.fromkeys(("speaker", "sender", "author", "from", "type", "kind", "who"), 2),
}

CONTENT: Weights = {
    **dict.fromkeys(("content", "text", "body", "message", "msg", "utterance"), 5),
    **dict.fromkeys(("parts", "prompt", "markdown"), 3),
    **dict.fromkeys(("title", "summary", "name", "subject", "html", "tool", "model", "error", "status"), -5),
    **dict.fromkeys(("id", "type", "role", "kind", "url", "metadata", "meta", "email"), -8),
}

AUTHOR: Weights = {
    **dict.fromkeys(("user", "author", "customer", "sender", "member", "person", "participant"), 5),
    **dict.fromkeys(("from", "owner", "account", "client", "speaker"), 3),
    **dict.fromkeys(ID_WORDS, 2),
    **dict.fromkeys(("name", "email", "avatar", "agent", "type", "kind", "role", "ip", "session"), -4),
}

TIME: Weights = {
    **dict.fromkeys(("created", "sent", "posted", "written", "timestamp"), 5),
    **dict.fromkeys(("time", "date", "ts", "when", "inserted"), 3),
    "at": 1,
    **dict.fromkeys(("updated", "edited", "modified", "deleted", "expires", "expire", "seen", "read"), -8),
}


DELETED = frozenset({"deleted", "removed", "revoked", "unsent", "retracted"})
"""Words in the name of a field that marks a message as deleted, as in `deletedAt`, `isDeleted`."""

DELETED_TEXTS = ("[deleted]", "[removed]")

AROUND_DELETED = frozenset(
    {"is", "was", "at", "on", "date", "time", "ts", "timestamp", "message", "msg"}
    | {"meta", "metadata", "data", "info", "flags", "status", "state"}
)
"""Words beside them in its path: `sender.deleted` says something of the sender, `deletedFor` of a reader."""

KIND = frozenset({"t", "type", "subtype", "kind", "status", "state"})
"""Words of which one is the last in the path of a field that says what kind of message it is."""

REMOVALS = frozenset({("t", "rm")})
"""Rocket.Chat's field, and its name for a removed message, which no word gives away."""

TEMPORARY = frozenset({"temporary", "ephemeral", "incognito"})
"""Words in the name of a flag that keeps a message or a session out of memory, as in `isTemporary`."""

AROUND_TEMPORARY = frozenset(
    {"is", "chat", "session", "conversation", "message", "meta", "metadata", "flags"}
)

NOTICES = frozenset({("t", name) for name in ("uj", "ul", "ut", "au", "ru", "r", "wm")})
"""Rocket.Chat's field, and its names for notices: who came, left, was added or removed, a room's new name."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Where the fields of a message seem to be; None: nowhere."""

    session_id: str | None
    role: str | None
    content: str | None
    user_id: str | None
    created_at: str | None
    roles: Mapping[str, Role] = field(default_factory=dict[str, Role])
    """The application's names of roles that are not ours already."""
    unclear: Mapping[str, int] = field(default_factory=dict[str, int])
    """Names of roles whose meaning is not clear, and how many documents have them."""
    without_role: int = 0
    otherwise: Sequence[str] = ()
    """Where the content is if `content` holds no text."""
    deleted: Sequence[str] = ()
    """What marks a message as deleted, as the setting takes it."""
    exclude: Sequence[str] = ()
    """What keeps a message out of memory, in the same form."""
    forms: Mapping[str, str] = field(default_factory=dict[str, str])
    """The kinds of values found, by the name of the setting."""
    other: "Proposal | None" = None
    """A second reading that the documents fit as well; None: they prove this one."""
    doubt: str = ""
    """Why there is a second one."""
    listed: str | None = None
    """The list whose elements are the messages; None: each document is one."""

    @property
    def paths(self) -> dict[str, str | None]:
        """By the name of the setting."""
        names = ("session_id", "role", "content", "user_id", "created_at")
        return {name: getattr(self, name) for name in names}

    @property
    def contents(self) -> list[str]:
        """The paths of the content, in the order in which they are looked at."""
        return [] if self.content is None else [self.content, *self.otherwise]

    @property
    def likeness(self) -> int:
        """The number of a message's fields that were found; 0 without a text, or where only a text was found."""
        found = sum(path not in (None, ID) for path in self.paths.values())
        return found if self.content is not None and found > 1 else 0

    @property
    def likely(self) -> bool:
        """Whether the documents look so much like messages that their collection can be taken unasked."""
        return self.likeness >= LIKELY or None not in (self.session_id, self.role, self.content)


def propose(documents: Sequence[Mapping[str, Any]]) -> Proposal:
    """The mapping that sampled documents of one collection suggest."""
    if not documents:
        return Proposal(None, None, None, None, None)
    shape = known_shape(documents)
    if shape is not None and shape.listed is not None:
        return _of_list(_proposed(listed_rows(documents, shape.listed), shape, ()), shape.listed)
    rows = documents if shape is not None else with_json(documents)
    turns = turn_lists(rows) if shape is None else []
    flat = _proposed(rows, shape, turns)
    both = two_speakers(documents) if shape is None and flat.role is None else None
    if both is not None and flat.content in (None, *both):
        return _of_two_speakers(documents, both)
    if shape is not None or not turns or None not in (flat.role, flat.content):
        return flat
    path, documents = turns[0], rows
    found = _proposed(listed_rows(documents, path), None, turns, path)
    return _of_list(found, path)


def _of_list(found: Proposal, path: str) -> Proposal:
    """Return the proposal for messages that are listed at a path; the time in a document's id is none of theirs."""
    if found.created_at == ID:
        found = replace(found, created_at=None)
    if found.session_id is None:
        found = replace(found, session_id=ID, forms={**found.forms, "session_id": "of the document"})
    other = None if found.other is None else _of_list(found.other, path)
    return replace(found, listed=path, other=other)


def _in_list(fields: Sequence[SampledField], path: str) -> list[SampledField]:
    """Return the fields of listed messages that may be what they say, and those of their documents that may say of
    whom and in which session.
    """
    inner = f"{path}."
    return [
        found
        for found in fields
        if (
            _as_session(found) <= 0
            if found.path.startswith(inner)
            else found.share(is_id) >= HALF and (_as_session(found) > 0 or _as_author(found) > 0)
        )
    ]


def _proposed(
    documents: Sequence[Row], shape: KnownShape | None, turns: Sequence[str], path: str | None = None
) -> Proposal:
    """Return the mapping that messages suggest; `turns`: lists of further ones, `path`: where these are listed."""
    fields = [found for found in sampled_fields(documents) if found.path not in turns]
    parsed = {found.path.partition(JSON_TEXT)[0] for found in fields if JSON_TEXT in found.path}
    fields = [found for found in fields if found.path not in parsed]
    fields = fields if path is None else _in_list(fields, path)
    theirs: Mapping[str, Role] = shape.means(documents) if shape else {}
    if shape is None:
        role = _best(fields, (), _as_role) or next(filter(flag_roles, fields), None)
    else:
        role = at(documents, shape.role) if theirs or not shape.roles else None
    means: dict[str, Role] = {**role_names(role), **theirs}
    if role is None or (shape is None and _holds_authors(role, means)):
        without = _by_author(documents, fields, _with_roles(documents, fields, None, {}, shape), shape)
        if role is None or without.role is not None:
            return without
    first = _with_roles(documents, fields, role, means, shape)
    swapped = _with_roles(
        documents, fields, role, {name: SWAPPED.get(ours, ours) for name, ours in means.items()}, shape
    )
    users, answers = (_authors(documents, fields, first, ours, shape) for ours in ("user", "assistant"))
    doubt, other = "", swapped
    if names_me(role):
        if is_one_author(users) and are_several(answers):
            return _of_one_user(documents, swapped)
        if not (is_one_author(answers) and are_several(users)):
            doubt = (
                f"`{role.path}` says which messages are *mine*, and not whether the user or the agent is *me*"
            )
    elif is_one_author(users) and are_several(answers):
        doubt = (
            f"by `{role.path}` one author is the user of all {len(users)} sessions and answers have several authors, "
            "as if users and agent were swapped"
        )
    if not doubt and shape is None and flag_roles(role) and not _both_speak(documents, first):
        doubt = f"by `{role.path}` only one side speaks in most sessions, so that it may say something else"
        other = _with_roles(documents, fields, None, {}, None)
    return replace(first, other=other, doubt=doubt) if doubt else _of_one_user(documents, first)


def _with_roles(
    documents: Sequence[Row],
    fields: Sequence[SampledField],
    role: SampledField | None,
    means: Mapping[str, Role],
    shape: KnownShape | None,
) -> Proposal:
    """Return the proposal with these roles; `means`: our role for each name that is clear, or for all others."""
    names = [name_of_role(role, value, means) for value in role.values] if role is not None else []
    others = means.get(ALL_OTHERS)
    spoken: list[Role | None] = [
        means[name] if name is not None and name in means else others for name in names
    ]
    if shape is None:
        time = _best(fields, (role,), _as_time)
        session = _best(fields, (role, time), _as_session)
        content = _best(fields, (role, time, session), _as_content)
        contents = [] if content is None else [content.path]
    else:
        contents = shape.contents(documents)
        paths = (shape.created_at, shape.session_id, contents[0] if contents else "")
        found_at = [at(documents, path) for path in paths]
        time, session, content = (found if found.present else None for found in found_at)
    speakers = _of_users(fields, spoken)
    if shape is None or not shape.user_id:
        author = _best(speakers, (role, time, session, content), _as_author)
    else:
        theirs = [row for row, ours in zip(documents, spoken, strict=False) if ours == "user"] or documents
        author = next((own for path in shape.user_id if (own := at(theirs, path)).share(is_id) >= HALF), None)
    named = Counter(name for name in names if name is not None)
    found = {
        "session_id": session,
        "role": role,
        "content": content,
        "user_id": author,
        "created_at": time or _time_of_ids(documents),
    }
    paths = {name: sampled_field.path if sampled_field else None for name, sampled_field in found.items()}
    return Proposal(
        paths["session_id"],
        paths["role"],
        paths["content"],
        paths["user_id"],
        paths["created_at"],
        roles={name: ours for name, ours in means.items() if ours != name},
        unclear={} if ALL_OTHERS in means else {n: count for n, count in named.items() if n not in means},
        without_role=len(documents) - named.total() if role else 0,
        otherwise=contents[1:],
        deleted=_both(
            _marks_of_deletion(fields, content, [] if shape else contents, spoken),
            shape,
            "deleted",
            documents,
        ),
        exclude=_both([*temporary(fields), *_notices(fields)], shape, "exclude", documents),
        forms={
            name: kinds(sampled_field.present, moment_kind if name == "created_at" else kind)
            for name, sampled_field in found.items()
            if sampled_field is not None
        },
    )


def _both(
    found: Iterable[str], shape: KnownShape | None, name: str, documents: Sequence[Row]
) -> Sequence[str]:
    """Return the marks that were found by their names, and those of the shape."""
    return [*dict.fromkeys((*found, *(shape.marks(name, documents) if shape else ())))]


def _holds_authors(role: SampledField, means: Mapping[str, Role]) -> bool:
    """Tell whether a field taken for the role rather holds authors, of whom the agent is one."""
    return ALL_OTHERS not in means and _as_author(role) > 0 and len({*role.present} - {*means}) >= PAIR


def _by_author(
    documents: Sequence[Row], fields: Sequence[SampledField], first: Proposal, shape: KnownShape | None
) -> Proposal:
    """Return the proposal of documents without a role; where somebody is in all sessions, with a reading by which
    that is the agent: first if its id says so or as the better one of two.
    """
    if first.session_id is None or first.user_id is None:
        return first
    session, author = getter(first.session_id), getter(first.user_id)
    sessions: dict[str, set[str]] = {}
    for document in documents:
        if (value := author(document)) is not None and (name := role_name(value)) != ALL_OTHERS:
            sessions.setdefault(repr(session(document)), set()).add(name)
    authors = set[str]().union(*sessions.values())
    everywhere = authors.intersection(*sessions.values()) if len(sessions) >= MANY_SESSIONS else set[str]()
    others = authors - everywhere
    if len(everywhere) != 1 or len(others) < PAIR or not all(len(named) > 1 for named in sessions.values()):
        return first
    agent = everywhere.pop()
    means: Mapping[str, Role] = {agent: "assistant", ALL_OTHERS: "user"}
    reading = _with_roles(documents, fields, at(documents, first.user_id), means, shape)
    reading = replace(reading, user_id=first.user_id)
    if meaning(agent) == "assistant":
        return reading
    why = (
        f"no field says who speaks, and one author in `{first.user_id}` is in all {len(sessions)} sessions: either "
        "it is the agent, or a person who takes part in all of them"
    )
    return replace(reading, other=first, doubt=why)


def _of_one_user(documents: Sequence[Row], proposal: Proposal) -> Proposal:
    """Return the proposal; with a second reading, without an author, where one author is the user of all sessions."""
    users = _sessions_of(documents, proposal, "user", proposal.user_id)
    if not is_one_author(users):
        return proposal
    why = (
        f"`{proposal.user_id}` is the same in all {len(users)} sessions: either they have one user, or it names the "
        "agent or the account, and what one user says would be shown to all others"
    )
    return replace(proposal, other=replace(proposal, user_id=None), doubt=why)


def _authors(
    documents: Sequence[Row],
    fields: Sequence[SampledField],
    reading: Proposal,
    role: Role,
    shape: KnownShape | None,
) -> Mapping[str, set[str]]:
    """Return the authors of the messages of a role by session, from the field most like an author in all of them."""
    if shape is not None:
        return _sessions_of(documents, reading, role, reading.user_id)
    paths = {*reading.paths.values()} - {reading.user_id}
    found = _best([some for some in fields if some.path not in paths], (), _as_author)
    return _sessions_of(documents, reading, role, found.path if found is not None else None)


def _sessions_of(
    documents: Sequence[Row], reading: Proposal, role: Role, path: str | None
) -> Mapping[str, set[str]]:
    authors: dict[str, set[str]] = {}
    if reading.session_id is not None and path is not None:
        session, author = getter(reading.session_id), getter(path)
        for document, spoken in zip(documents, spoken_by(documents, reading), strict=False):
            if spoken == role and (name := author(document)) is not None:
                authors.setdefault(repr(session(document)), set()).add(repr(name))
    return authors


def is_one_author(authors: Mapping[Any, set[str]]) -> bool:
    """Tell whether one author stands in all of so many sessions that it may be no user."""
    return len(authors) >= MANY_SESSIONS and len(set[str]().union(*authors.values())) == 1


def are_several(authors: Mapping[Any, set[str]]) -> bool:
    """Tell whether there is more than one author."""
    return len(set[str]().union(*authors.values())) > 1


def _both_speak(documents: Sequence[Row], reading: Proposal) -> bool:
    """Tell whether user and agent both speak in most sessions of which several messages are sampled."""
    sessions: dict[str, list[str]] = {}
    session = getter(reading.session_id or "")
    for document, spoken in zip(documents, spoken_by(documents, reading), strict=False):
        sessions.setdefault(repr(session(document)), []).append(spoken)
    talks = [spoken for spoken in sessions.values() if len(spoken) > 1]
    both = sum({"user", "assistant"} <= set(spoken) for spoken in talks)
    return bool(talks) and both >= HALF * len(talks)


def samples(documents: Sequence[Row], reading: Proposal) -> Sequence[tuple[str, str, str]]:
    """Return role, author and beginning of the text of three messages of one session."""
    session, content = getter(reading.session_id or ""), first_with_text(reading.contents or [""])
    author = getter(reading.user_id or "")
    roles = spoken_by(documents, reading) or ["other"] * len(documents)
    talks: dict[str, list[tuple[str, str, str]]] = {}
    for document, role in zip(documents, roles, strict=True):
        with suppress(Unusable):
            name = author(document)
            said = (
                role,
                "" if name is None else str(name),
                " ".join(text_of(content(document)).split())[:SHOWN],
            )
            talks.setdefault(repr(session(document)), []).append(said)
    if not talks:
        return []
    longest = max(talks.values(), key=lambda said: (len({role for role, *_ in said}), len(said)))
    turn = next((at for at, said in enumerate(longest) if said[0] != longest[0][0]), 1)
    return longest[max(turn - 1, 0) :][:3]


def _marks_of_deletion(
    fields: Sequence[SampledField],
    content: SampledField | None,
    contents: Sequence[str],
    roles: Sequence[Role | None],
) -> Iterator[str]:
    """Yield the marks that some documents show; `roles`: of the documents."""
    for found in fields:
        words = set(found.words)
        if DELETED & words and words <= DELETED | AROUND_DELETED and all(map(_marks, found.present)):
            yield found.path
        elif words and found.words[-1] in KIND and words <= KIND | AROUND_DELETED:
            texts = {value for value in found.present if isinstance(value, str)}
            yield from (f"{found.path}={text}" for text in sorted(texts) if _names_removal(found.path, text))
    if content is not None:
        yield from (f"{content.path}={text}" for text in DELETED_TEXTS if text in content.present)
        files = (beside(content.path, name) for name in ("attachments", "files"))
        captions = (*beside_content(content.path, ()), *files)
        captioned = any(found.path in captions and any(found.present) for found in fields)
        spoken = zip(content.values, roles, strict=False)
        if (
            len(contents) == 1
            and not captioned
            and any(value == "" and role == "user" for value, role in spoken)
        ):
            yield f"{content.path}="  # what a user writes is not empty at first, as an answer may be


def temporary(fields: Sequence[SampledField]) -> list[str]:
    """Return the flags that say that something is temporary."""
    return [
        found.path
        for found in fields
        if TEMPORARY & set(found.words)
        and set(found.words) <= TEMPORARY | AROUND_TEMPORARY
        and all(isinstance(value, bool) for value in found.present)
    ]


def _notices(fields: Sequence[SampledField]) -> Iterator[str]:
    values = {found.path: found.present for found in fields}
    yield from sorted(f"{path}={name}" for path, name in NOTICES if name in values.get(path, ()))


def _marks(value: Any) -> bool:
    return value in (0, 1) or is_moment(value)  # False and True, too


def _names_removal(path: str, text: str) -> bool:
    return (path, text) in REMOVALS or bool(DELETED & {word.lower() for word in WORD.findall(text)})


def _best(
    fields: Sequence[SampledField],
    taken: Collection[SampledField | None],
    score: Callable[[SampledField], float],
) -> SampledField | None:
    """The field with the highest score above 0; of several the first."""
    paths = {sampled_field.path for sampled_field in taken if sampled_field is not None}
    scored = [
        (score(sampled_field), -number, sampled_field)
        for number, sampled_field in enumerate(fields)
        if sampled_field.path not in paths
    ]
    best = max(scored, key=lambda ranked: ranked[:2], default=None)
    return best[2] if best is not None and best[0] > 0 else None


def _time_of_ids(documents: Sequence[Mapping[str, Any]]) -> SampledField | None:
    """`_id` where it holds a time: for messages that have no other."""
    ids = SampledField(ID, [document.get(ID) for document in documents])
    return ids if ids.share(lambda value: isinstance(value, ObjectId)) >= HALF else None


def _named(sampled_field: SampledField, weights: Weights) -> float:
    """Weigh how much the words of its path speak for a field; `sessionid` is read as `session id`."""
    return sum(
        weights.get(word, weights.get(word.removesuffix("id"), 0)) for word in set(sampled_field.words)
    )


def _says_more_than_id(sampled_field: SampledField, weights: Weights) -> bool:
    """Whether a word of its path other than `id` speaks for a field."""
    speaking = {word for word, weight in weights.items() if weight > 0} - ID_WORDS
    return any(word in speaking or word.removesuffix("id") in speaking for word in sampled_field.words)


def _as_role(sampled_field: SampledField) -> float:
    known = sampled_field.share(lambda value: meaning(value) is not None)
    texts = {value for value in sampled_field.present if isinstance(value, str)}
    few = 0 < len(texts) <= MOST_ROLES and all(isinstance(value, str) for value in sampled_field.present)
    named = _named(sampled_field, ROLE)
    if not few or (known < HALF and not ("role" in sampled_field.words and known > 0)):
        return 0
    return named + 6 * known


def _as_time(sampled_field: SampledField) -> float:
    if sampled_field.share(is_moment) < HALF:
        return 0
    dates = sampled_field.share(lambda value: not isinstance(value, int | float))
    return _named(sampled_field, TIME) + 2 * dates


def _as_session(sampled_field: SampledField) -> float:
    if sampled_field.share(is_id) < HALF or any(
        isinstance(value, str) and " " in value for value in sampled_field.present
    ):
        return 0
    alone = len(sampled_field.present) > 4 and len({str(value) for value in sampled_field.present}) == len(
        sampled_field.present
    )
    return 0 if alone or not _says_more_than_id(sampled_field, SESSION) else _named(sampled_field, SESSION)


def _as_content(sampled_field: SampledField) -> float:
    texts = sampled_field.share(is_text)
    if texts < HALF:
        return 0
    prose = sampled_field.share(lambda value: isinstance(value, list) or " " in str(value))
    return _named(sampled_field, CONTENT) + 4 * prose if prose or _named(sampled_field, CONTENT) > 0 else 0


def _as_author(sampled_field: SampledField) -> float:
    if sampled_field.share(is_id) < HALF or all(
        meaning(value) is not None for value in sampled_field.present
    ):
        return 0
    prose = sampled_field.share(lambda value: isinstance(value, str) and " " in value)
    named = _named(sampled_field, AUTHOR)
    return named - 3 * prose if _says_more_than_id(sampled_field, AUTHOR) else 0


def _of_users(fields: Sequence[SampledField], roles: Sequence[Role | None]) -> Sequence[SampledField]:
    """The fields in the messages of users only: others need no author. `roles`: of the documents."""
    users = [number for number, role in enumerate(roles) if role == "user"]
    if not users:
        return fields
    return [
        SampledField(sampled_field.path, [sampled_field.values[number] for number in users])
        for sampled_field in fields
    ]


LONGEST = 100_000
"""Characters of a text that are looked at as JSON."""


def json_texts(documents: Sequence[Row]) -> list[str]:
    """Return the fields of which half of the texts and more say objects as JSON."""
    fields = sampled_fields(documents)
    return [found.path for found in fields if found.share(lambda value: _parsed(value) is not None) >= HALF]


def with_json(documents: Sequence[Row]) -> Sequence[Row]:
    """Return documents with what their texts say as JSON."""
    texts = [path for path in json_texts(documents) if "." not in path]
    return [
        {
            **{name: value for name, value in document.items() if name not in texts},
            **{f"{name}{JSON_TEXT}": _parsed(document.get(name)) for name in texts},
            **{name: document.get(name) for name in texts},
        }
        for document in documents
    ]


def turn_lists(documents: Sequence[Row]) -> list[str]:
    """Return the paths of lists whose items are messages of a session: they have a text, and some are a user's."""
    found: list[str] = []
    for sampled in sampled_fields(documents):
        lists = [cast("list[Any]", value) for value in sampled.present if isinstance(value, list)]
        rows = [cast("Row", item) for listed in lists for item in listed if isinstance(item, Mapping)]
        inner = propose(rows)
        if inner.content is not None and "user" in spoken_by(rows, inner):
            found.append(sampled.path)
    return found


ASKED = frozenset({"question", "prompt", "query", "input"})
ANSWERED = frozenset({"answer", "response", "completion", "output"})
"""Whole names of fields that hold what the user said, and what was answered."""


def two_speakers(documents: Sequence[Row]) -> tuple[str, str] | None:
    """Return the fields of what is asked and answered, where documents without a role hold both."""
    names = {
        found.path.rpartition(".")[2].lower(): found.path
        for found in sampled_fields(documents)
        if found.share(is_text) >= HALF
    }
    asked = next((path for name, path in names.items() if name in ASKED), None)
    answered = next((path for name, path in names.items() if name in ANSWERED), None)
    return None if asked is None or answered is None else (asked, answered)


def _of_two_speakers(documents: Sequence[Row], both: tuple[str, str]) -> Proposal:
    """Return the mapping of documents that hold what two speakers said, each in a field of its own."""
    path, roles = SPEAKERS.join(both), dict[str, Role](zip(both, ("user", "assistant"), strict=True))
    rows = [
        {**document, path: {SPEAKER: roles[speaks], SAID: getter(speaks)(document)}}
        for document in documents
        for speaks in both
    ]
    return replace(_proposed(rows, None, both), listed=path, roles=roles)


def spoken_by(documents: Sequence[Row], reading: Proposal) -> list[str]:
    """Return our role of each document, as a proposal reads it; none where it says no role."""
    if reading.role is None:
        return []
    role, roles = getter(reading.role), roles_of(reading.roles)
    return [role_of(role(document), roles) for document in documents]


def _parsed(text: Any) -> Any:
    """Return what a text says as JSON, if that is an object or a list of objects."""
    if not isinstance(text, str) or len(text) > LONGEST or not text.lstrip().startswith(("{", "[{")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
