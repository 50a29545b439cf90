"""The collections beside the messages: of sessions, of the users who write, and of the agents. Pure."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from eden_memory.doctor.finding import Finding
from eden_memory.doctor.known_shapes import HALF, KnownSessions, earlier_marks
from eden_memory.doctor.mapping_proposal import ID, ID_WORDS, SESSION, temporary
from eden_memory.doctor.sampled_fields import WORD, SampledField, is_id, kinds, sampled_fields
from eden_memory.mongo.document_fields import getter
from eden_memory.mongo.ids import encode_id

USERS = frozenset(
    {"users", "user", "members", "member", "participants", "participant", "people", "customers", "customer"}
)

NAMES_OF_PEOPLE = ("displayname", "display_name", "fullname", "full_name", "name", "profile.name", "username")

TITLE = ("title", "subject", "topic", "name")

AGENT = frozenset({"agent", "assistant", "bot"})

AGENTS = AGENT | {"persona", "character"}
"""Words of which one is in the name of a collection of agents."""

GROUP = frozenset({"group", "team", "workspace", "organization", "organisation", "company", "household"})

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
    agents: Sequence[Any] = ()
    """The agents that they name, if each of them names one."""
    group_id: str | None = None
    """A field that may name a group."""
    rooms: int = 0
    """How many of them list several users."""
    has_groups: bool = False
    """Whether `group_id` is to be mapped: somebody chose it."""
    forms: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def paths(self) -> dict[str, str]:
        """The paths that were found, by the name of the setting."""
        users = NO_FIELD if self.with_answering else self.users
        joined = None if self.id == ID else self.id
        group = self.group_id if self.has_groups else None
        found = {
            "id": joined,
            "agent_id": self.agent_id,
            "users": users,
            "group_id": group,
            "title": self.title,
        }
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
    group = _first(
        fields,
        lambda sampled_field: (
            _speaks(sampled_field, GROUP) and _names_one(sampled_field) and sampled_field.share(is_id) >= HALF
        ),
    )
    found = {"users": users, "agent_id": agent, "group_id": group, "title": title}
    return SessionsProposal(
        collection,
        sampled,
        described,
        id=path,
        users=users and users.path,
        agent_id=agent and agent.path,
        title=title and title.path,
        group_id=group and group.path,
        no_ids=no_ids.path if no_ids else None,
        with_answering=with_answering.path if with_answering else None,
        exclude=[*(marks := temporary(fields)), *(earlier_marks(known.exclude_else, marks) if known else ())],
        only_agent=_only_id(agent),
        agents=() if agent is None or agent.share(is_id) < 1 else _distinct(agent.present),
        rooms=0 if users is None else _rooms(documents, path, users.path),
        forms={name: _forms(sampled_field) for name, sampled_field in found.items() if sampled_field}
        | {"id": "by which messages name the session"}
        | (
            {"users": f"no field: {with_answering.path} lists who only answers, too"}
            if with_answering
            else {}
        ),
    )


@dataclass(frozen=True, slots=True)
class PeopleProposal:
    """A collection that describes the authors of messages, or the agents of sessions, and where their names are."""

    collection: str
    asked: int
    """Those of the sampled messages or sessions."""
    described: int
    """Those of them that have a document."""
    name: str | None


def propose_users(
    collection: str, documents: Sequence[Mapping[str, Any]], asked: int
) -> PeopleProposal | None:
    """The mapping of documents whose ids are those of authors; None where they do not look like people."""
    if not documents or len(documents) < HALF * asked or not USERS & _words(collection):
        return None
    return _people(collection, documents, asked)


def propose_agents(
    collection: str, documents: Sequence[Mapping[str, Any]], asked: int
) -> PeopleProposal | None:
    """The mapping of documents whose ids are those of agents; None where one has none: its sessions would wait."""
    if not documents or len(documents) < asked or not AGENTS & _words(collection):
        return None
    return _people(collection, documents, asked)


def _people(collection: str, documents: Sequence[Mapping[str, Any]], asked: int) -> PeopleProposal:
    texts = {
        found.path.lower(): found.path
        for found in sampled_fields(documents)
        if found.share(lambda value: isinstance(value, str)) >= HALF
    }
    name = next((texts[word] for word in NAMES_OF_PEOPLE if word in texts), None)
    return PeopleProposal(collection, asked, len(documents), name)


def _first(fields: Sequence[SampledField], fits: Callable[[SampledField], bool]) -> SampledField | None:
    return next((sampled_field for sampled_field in fields if fits(sampled_field)), None)


def _distinct(values: Sequence[Any]) -> list[Any]:
    return list({repr(value): value for value in values}.values())


def _rooms(documents: Sequence[Mapping[str, Any]], path: str, users: str) -> int:
    """Count the sessions of which documents name several users."""
    named = dict[str, set[str]]()
    for document in documents:
        listed = getter(users)(document)
        some = cast("list[Any]", listed) if isinstance(listed, list) else [listed]
        named.setdefault(repr(getter(path)(document)), set()).update(map(repr, some))
    return sum(len(some) > 1 for some in named.values())


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


def finding_of_users(users: PeopleProposal) -> Finding:
    """Describe the collection of users, and what mapping it changes."""
    what = (
        f"`{users.collection}` describes {users.described} of the {users.asked} authors looked for; with it, "
        "sessions of no known user form no memory"
    )
    return Finding("users", "ok", what)


def finding_of_agents(agents: PeopleProposal) -> Finding:
    """Describe the collection of agents, and what mapping it changes."""
    what = (
        f"`{agents.collection}` describes all {agents.asked} agents looked for; with it, a session waits until its "
        "agent has a document"
    )
    return Finding("agents", "ok", what)
