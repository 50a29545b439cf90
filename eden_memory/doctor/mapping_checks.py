"""The field mapping, tried on the application's newest documents; collections that may hold its messages."""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import InvalidName, OperationFailure

from eden_memory.assembly.tailer import misread_of
from eden_memory.directory.application_message_store import parts, placed
from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.directory.listed_messages import MessageList
from eden_memory.directory.participants import DEFAULT_AGENT, Missing, SessionFacts
from eden_memory.directory.session_document_store import listed_users
from eden_memory.doctor.finding import Finding
from eden_memory.doctor.known_shapes import KnownSessions, known_shape
from eden_memory.doctor.mapping_proposal import (
    MANY_SESSIONS,
    Proposal,
    are_several,
    is_one_author,
    json_texts,
    propose,
    turn_lists,
)
from eden_memory.doctor.mongodb_checks import joined_index, judge_index, judge_session_index
from eden_memory.doctor.proposed_mapping import finding_of_listed
from eden_memory.doctor.proposed_rooms import SampledRooms
from eden_memory.doctor.proposed_sessions import (
    NO_FIELD,
    PeopleProposal,
    SessionsProposal,
    lists_any,
    propose_agents,
    propose_sessions,
    propose_users,
)
from eden_memory.doctor.role_names import meaning
from eden_memory.doctor.sampled_fields import is_id
from eden_memory.errors import EdenError
from eden_memory.mongo.change_stream import PLAIN
from eden_memory.mongo.document_fields import Unusable, first_with_text, getter, kinds_left_out
from eden_memory.names import DEMO_DATABASE, EVAL_DATABASES, JSON_TEXT
from eden_memory.replay.namespaces.namespace_store import MongoLive
from eden_memory.schemas.events.chat import ALL_OTHERS, role_name, role_of, roles_of
from eden_memory.settings import MessagesSettings, SessionsSettings, Settings
from eden_memory.source.message_mapping import ROLES, MessageMapping
from eden_memory.source.messages_store import Misread, message_mapping

Client = AsyncMongoClient[dict[str, Any]]

Row = dict[str, Any]

SAMPLE, GLANCE = 200, 20

"""Documents read of the mapped collection, and of each candidate."""

SESSIONS = 100
"""Sessions of the messages that are searched for in other collections."""

LOOK_MILLISECONDS = 5_000
"""For one collection that may lack an index on what is looked for."""

NOT_THEIRS = frozenset({"admin", "local", "config", DEMO_DATABASE})
"""Databases of the server and of `eden demo`; those of `eden eval` have a common prefix."""


@dataclass(frozen=True, slots=True)
class MessagesCandidate:
    """A collection, and the mapping that its newest documents suggest."""

    database: str
    collection: str
    documents: list[Row]
    proposal: Proposal

    @property
    def name(self) -> str:
        """The name as `--collection` takes it."""
        return f"{self.database}.{self.collection}"


async def candidates(client: Client, settings: Settings, named: str | None) -> list[MessagesCandidate]:
    """The collections named (`DATABASE.COLLECTION`, or COLLECTION of any database), or those like chat messages."""
    databases = await _databases(client, settings)
    if named is not None:
        found = await _named(client, databases, named)
    else:
        found = await _glances(client, settings, databases)
    found.sort(
        key=lambda candidate: (
            -candidate.proposal.likeness,
            "messag" not in candidate.collection.lower(),
            candidate.name,
        )
    )
    whole = await _sampled(_collection(client, found[0].database, found[0].collection), SAMPLE)
    return [replace(found[0], documents=whole, proposal=propose(whole)), *found[1:]]


async def _named(client: Client, databases: Sequence[str], named: str) -> list[MessagesCandidate]:
    """Return the collections with this full name, in all databases."""
    database, dot, collection = named.partition(".")
    places = [(database, named) for database in databases]
    if dot and "" not in (database, collection):
        places.insert(0, (database, collection))
    found: list[MessagesCandidate] = []
    for place in places:
        if documents := await _glance(client, *place):
            found.append(MessagesCandidate(*place, documents, propose(documents)))
            if place[1] != named:
                return found
    if found:
        return found
    raise EdenError(
        f"the collection {named} does not exist, is empty, or may not be read (looked into {', '.join(databases)})",
        "Check the name and this user's rights, or write some messages first.",
    )


async def _glance(client: Client, database: str, collection: str) -> list[Row]:
    """Return a few of the newest documents; none if this user may not read them, or the name is impossible."""
    try:
        return await _sampled(_collection(client, database, collection), GLANCE)
    except (OperationFailure, InvalidName):
        return []


async def _glances(client: Client, settings: Settings, databases: Sequence[str]) -> list[MessagesCandidate]:
    found: list[MessagesCandidate] = []
    for database in databases:
        for collection in await _collections(client, settings, database):
            documents = await _glance(client, database, collection)
            candidate = MessagesCandidate(database, collection, documents, propose(documents))
            if candidate.proposal.likely:
                found.append(candidate)
    if not found:
        raise EdenError(
            "no collection holds documents that look like chat messages",
            "Name it: eden doctor --init --collection DATABASE.COLLECTION",
        )
    return found


async def _collections(client: Client, settings: Settings, database: str) -> list[str]:
    """Return the application's collections of a database."""
    names = await client[database].list_collection_names(filter={"type": "collection"})
    return sorted(name for name in names if not name.startswith(("system.", settings.mongodb.prefix)))


async def sessions_beside(
    client: Client, settings: Settings, messages: MessagesCandidate, answering: Collection[str]
) -> SessionsProposal | None:
    """The collection of the same database whose ids are the sessions' of the messages; of several the fullest.

    Messages name sessions by their `_id` or, those of a known program, by its field. `answering`: ids of those who
    only answer.
    """
    if messages.proposal.session_id is None:
        return None
    values = map(getter(messages.proposal.session_id), messages.documents)
    ids = list({repr(value): value for value in values if is_id(value)}.values())[:SESSIONS]
    shape, found = known_shape(messages.documents), list[SessionsProposal]()
    ways = [None, *([shape.sessions] if shape is not None and shape.sessions is not None else [])]
    for collection in await _collections(client, settings, messages.database):
        for known in ways if collection != messages.collection else ():
            place = _collection(client, messages.database, collection)
            with suppress(OperationFailure):  # this user may not read it, or it lacks an index and is large
                of = place.find({"_id" if known is None else known.id: {"$in": ids}}).max_time_ms(
                    LOOK_MILLISECONDS
                )
                proposal = propose_sessions(collection, await of.to_list(), len(ids), answering, known)
                found += [proposal] if proposal is not None else []
    return max(found, key=_fullness, default=None)


def _fullness(sessions: SessionsProposal) -> tuple[int, int, bool]:
    found = sum(name != "id" and path != NO_FIELD for name, path in sessions.paths.items())
    return found, sessions.described, sessions.id == "_id"


async def users_beside(
    client: Client, settings: Settings, messages: MessagesCandidate, sessions: SessionsProposal | None
) -> PeopleProposal | None:
    """The collection of the same database whose ids are those of the users who write; of several the fullest.

    `settings`: with the proposed mapping.
    """
    mapping = message_mapping(settings)
    written = messages_in(messages.documents, settings)
    wrote = (author for document in written if is_id(author := mapping.participant(document)))
    ids = list({repr(author): author for author in wrote}.values())[:SESSIONS]
    beside = (messages.collection, sessions and sessions.collection)
    return await _described_beside(client, settings, messages.database, beside, ids, propose_users)


async def agents_beside(
    client: Client, settings: Settings, messages: MessagesCandidate, sessions: SessionsProposal | None
) -> PeopleProposal | None:
    """The collection of the same database whose ids are those of all agents of sessions; of several the fullest."""
    if sessions is None:
        return None
    beside = (messages.collection, sessions.collection)
    ids = list(sessions.agents)[:SESSIONS]
    return await _described_beside(client, settings, messages.database, beside, ids, propose_agents)


async def _described_beside(
    client: Client,
    settings: Settings,
    database: str,
    others: Collection[str | None],
    ids: Sequence[Any],
    propose_them: Callable[[str, Sequence[Row], int], PeopleProposal | None],
) -> PeopleProposal | None:
    """Return what is proposed for the fullest collection that describes these ids, beside the others."""
    found: list[PeopleProposal] = []
    for collection in await _collections(client, settings, database) if ids else ():
        if collection not in others:
            place = _collection(client, database, collection)
            with suppress(OperationFailure):  # this user may not read it
                documents = await place.find({"_id": {"$in": list(ids)}}).to_list()
                proposal = propose_them(collection, documents, len(ids))
                found += [proposal] if proposal is not None else []
    return max(found, key=lambda people: (people.described, people.name is not None), default=None)


def rooms_among(
    documents: Iterable[Mapping[str, Any]], settings: Settings, sessions: SessionsProposal | None = None
) -> SampledRooms | None:
    """Return in how many sessions several users take part, by their documents or as they write; None: in none."""
    group_id = None if sessions is None else sessions.group_id
    if sessions is not None and sessions.users is not None:
        return SampledRooms(sessions.rooms, sessions.described, group_id) if sessions.rooms else None
    mapping, writers = message_mapping(settings), _Named()
    for document in messages_in(documents, settings):
        if (name := mapping.participant(document)) is not None:
            writers.setdefault(mapping.session_id(document), set()).add(repr(name))
    several = sum(len(names) > 1 for names in writers.values())
    return SampledRooms(several, len(writers), group_id) if several else None


async def missing_indexes(
    client: Client, settings: Settings, database: str, *, listed: bool
) -> list[Finding]:
    """Return the indexes that the mapping needs and lacks; `listed`: sessions list their users."""
    try:
        indexes = await client[database][settings.messages.collection].index_information()
    except OperationFailure:  # a view has no indexes
        return []
    found = [judge_index(indexes, database, settings.messages)]
    with suppress(OperationFailure):  # as above
        found += await joined_index(client[database], settings)
    found += [] if listed else [judge_session_index(indexes, database, settings.messages)]
    return [finding for finding in found if finding.state != "ok"]


async def _databases(client: Client, settings: Settings) -> list[str]:
    """Return the source's database if one is set, else all that this user may list."""
    if settings.source.database is not None:
        return [settings.source.database]
    try:
        names = set(await client.list_database_names()) - NOT_THEIRS
        return sorted(name for name in names if not name.startswith(EVAL_DATABASES))
    except OperationFailure:
        return [settings.source_database]


def _collection(client: Client, database: str, collection: str) -> AsyncCollection[Row]:
    return client.get_database(database, codec_options=PLAIN).get_collection(collection)


async def _sampled(collection: AsyncCollection[Row], count: int) -> list[Row]:
    """Return the newest documents."""
    return await collection.find(sort=[("_id", -1)], limit=count).to_list()


AUTHOR = re.compile(
    r"user|author|sender|from|customer|member|person|account|participant|owner", re.IGNORECASE
)

PART_TEXTS = ("text", "content", "value", "body", "markdown")
"""Fields in which a part may have a text."""

LONGEST_TYPE = 40
"""Characters shown of a part's type."""

ANY_VERSION, ANY_TIME = "0" * 16, b"1970-01-01T00:00:00.000Z"


async def field_mapping(database: AsyncDatabase[dict[str, Any]], settings: Settings) -> list[Finding]:
    """Report how many of the newest documents become messages, why others do not, and unknown roles."""
    collection = database.get_collection(settings.messages.collection, codec_options=PLAIN)
    documents = await collection.find(sort=[("_id", -1)], limit=SAMPLE).to_list()
    return judge_documents(documents, settings)


def messages_in(documents: Iterable[Mapping[str, Any]], settings: Settings) -> list[dict[str, Any]]:
    """Return the messages of documents, as the tailer reads them; a document that it cannot take apart as it is."""
    found = list[dict[str, Any]]()
    for document in documents:
        try:
            found += map(dict, parts(settings.messages, document))
        except Unusable:
            found.append(dict(document))
    return found


def judge_documents(documents: list[dict[str, Any]], settings: Settings) -> list[Finding]:
    """Of documents of the messages collection; those that are marked as deleted or excluded are not judged."""
    is_deleted, odd = message_mapping(settings).is_deleted, _odd_elements(documents, settings.messages)
    documents = [document for document in messages_in(documents, settings) if not is_deleted(document)]
    if not documents:
        return [
            Finding("field mapping", "warn", "no documents to try it on", "Write a message and ask again.")
        ]
    return [
        _usable(documents, settings),
        _texts(documents, settings, odd),
        _roles(documents, settings.messages),
        _authors(documents, settings),
        *_sides(documents, settings),
        *_authors_beside_users(documents, settings),
    ]


def _usable(documents: list[dict[str, Any]], settings: Settings) -> Finding:
    reasons = Counter(filter(None, (_why_not(message_mapping(settings), document) for document in documents)))
    usable = len(documents) - reasons.total()
    what = f"{usable} of {sampled(documents)} are messages"
    if not reasons:
        return Finding("field mapping", "ok", what)
    what += "".join(f"; {count}: {reason}" for reason, count in reasons.most_common(3))
    hint = "Say where the fields are: EDEN_MESSAGES_SESSION_ID, _ROLE, _CONTENT, _USER_ID, _CREATED_AT."
    return Finding("field mapping", "warn" if usable * 10 >= len(documents) * 9 else "fail", what, hint)


def sampled(documents: Sequence[Mapping[str, Any]]) -> str:
    """Describe the sample, which consists of the newest documents if ids grow with time."""
    growing = all(isinstance(document.get("_id"), (ObjectId, int)) for document in documents)
    return f"{'the newest ' * growing}{len(documents)} documents"


def _odd_elements(documents: Iterable[Mapping[str, Any]], messages: MessagesSettings) -> int:
    """Count the elements of lists of messages that are no documents."""
    if messages.list is None:
        return 0
    listing, found = MessageList(messages), 0
    for document in documents:
        with suppress(Unusable):
            found += listing.left_out(dict(document))
    return found


def _texts(documents: list[dict[str, Any]], settings: Settings, odd: int) -> Finding:
    """Check the content path separately: a wrong one breaks nothing, but nothing is remembered."""
    mapping = message_mapping(settings)
    for path in settings.messages.contents:
        if path in json_texts(documents):
            return _json_text(path)
    if listed := sorted({*settings.messages.contents} & {*turn_lists(documents)}):
        return replace(finding_of_listed(listed[0]), check="message texts")
    paths = " or ".join(f"`{path}`" for path in settings.messages.contents)
    empty = sum(not _has_text(mapping, document) for document in documents)
    undated = sum(mapping.created_at(document) is None for document in documents)
    what = f"{len(documents) - empty} have text, {len(documents) - undated} say when they were written"
    left_out = Counter(kind for document in documents for kind in _left_out(mapping, document))
    if left_out := left_out + Counter({"element": odd}):
        what += "; without text: " + ", ".join(f"{kind} {count}" for kind, count in left_out.most_common())
    if empty * 2 > len(documents):
        hint = f"Is the text really in {paths}? Set EDEN_MESSAGES_CONTENT."
        return Finding("message texts", "fail" if empty == len(documents) else "warn", what, hint)
    if said_otherwise := [*_silent_roles(documents, mapping), *_unread_parts(documents, settings)]:
        hint = (
            f"Only text in {paths} is remembered, and of its parts those of the type `text`, "
            "`input_text` or `output_text`: write it there."
        )
        return Finding("message texts", "warn", "; ".join([what, *said_otherwise]), hint)
    if undated:
        hint = f"Is the time really in `{settings.messages.created_at}`? Set EDEN_MESSAGES_CREATED_AT."
        return Finding("message texts", "warn", what, hint)
    return Finding("message texts", "ok", what)


def _silent_roles(documents: Sequence[Row], mapping: MessageMapping) -> Iterator[str]:
    """Say which role has no text at all: its words may be in another field."""
    with_text = {True: Counter[str](), False: Counter[str]()}
    for document in documents:
        with_text[_has_text(mapping, document)][mapping.role(document)] += 1
    for role in ("user", "assistant"):
        if (count := with_text[False][role]) >= MANY_SESSIONS and not with_text[True][role]:
            yield f"none of the {count} messages of the role {role} has text"


def _unread_parts(documents: Sequence[Row], settings: Settings) -> Iterator[str]:
    """Say of which types parts have a text that is not read."""
    found, content = Counter[str](), first_with_text(settings.messages.contents)
    for document in documents:
        listed = None
        with suppress(Unusable):
            listed = content(document)
        for part in cast("list[Any]", listed) if isinstance(listed, list) else ():
            if isinstance(part, Mapping) and kinds_left_out([part]) == ["other"]:
                fields = cast("Row", part)
                if any(isinstance(said := fields.get(name), str) and " " in said for name in PART_TEXTS):
                    found[str(fields.get("type"))[:LONGEST_TYPE]] += 1
    if found:
        yield "text not read in parts of the type " + ", ".join(
            f"{name!r} ({count})" for name, count in found.most_common(3)
        )


def _json_text(path: str) -> Finding:
    what = f"`{path}` holds JSON text: memory would be formed of the JSON"
    hint = f"`eden doctor --init` proposes paths that lead through it, such as `{path}{JSON_TEXT}.content`."
    return Finding("message texts", "fail", what, hint)


def _authors(documents: list[dict[str, Any]], settings: Settings) -> Finding:
    """Check the author path: a wrong one breaks nothing, but every user's memory becomes the agent's."""
    mapping, path = message_mapping(settings), settings.messages.user_id
    lacking = [document for document in documents if mapping.lacks_author(document)]
    said = sum(mapping.is_users(document) for document in documents)
    if not lacking:
        return Finding("message authors", "ok", f"all {said} messages of the role user name one in `{path}`")
    what = f"{len(lacking)} of {said} messages of the role user name none in `{path}`"
    sessions = settings.sessions
    if (
        sessions.collection is not None
        and "users" in sessions.model_fields_set
        and sessions.users != NO_FIELD
    ):
        return Finding("message authors", "ok", f"{what}: they are the users' whom `{sessions.users}` names")
    what = f"{what}: no user remembers them"
    found = _like_author(lacking, settings.messages)
    if found is None:
        hint = "Write the author with each message, or say where it is: EDEN_MESSAGES_USER_ID."
        return Finding("message authors", "warn", what, hint)
    name, count = found
    hint = f"`{name}` looks like the author ({count} of {len(lacking)}): set EDEN_MESSAGES_USER_ID={name}."
    return Finding("message authors", "fail" if len(lacking) == said else "warn", what, hint)


def _sides(documents: list[dict[str, Any]], settings: Settings) -> Iterator[Finding]:
    """Say where authors and sessions contradict the roles: who is the user of all sessions may be the agent."""
    mapping, author = message_mapping(settings), getter(placed(settings.messages, settings.messages.user_id))
    users, answers, talks = _Named(), _Named(), _Named()
    for document in documents:
        session, role = mapping.session_id(document), mapping.role(document)
        talks.setdefault(session, set()).add(role)
        if (name := author(document)) is not None and role in ("user", "assistant"):
            (users if role == "user" else answers).setdefault(session, set()).add(repr(name))
    path = settings.messages.user_id
    if is_one_author(users):
        swapped = are_several(answers)
        what = f"the author in `{path}` is the same user in all {len(users)} sessions"
        what += ", and answers have several authors: users and agent look swapped" if swapped else ""
        hint = (
            "If it is the agent or the account, correct EDEN_MESSAGES_ROLES or EDEN_MESSAGES_USER_ID first: all "
            "of it would be one user's memory, and what one says would be shown to the others."
        )
        yield Finding("users", "fail" if swapped else "warn", what, hint)
    roles = set[str]().union(*talks.values())
    apart = not any({"user", "assistant"} <= spoken for spoken in talks.values())
    if {"user", "assistant"} <= roles and len(talks) >= MANY_SESSIONS and apart:
        what = f"in none of {len(talks)} sessions user and assistant both speak"
        hint = f"Does `{settings.messages.role}` really say who speaks? Set EDEN_MESSAGES_ROLE."
        yield Finding("sides", "warn", what, hint)


def _authors_beside_users(documents: list[dict[str, Any]], settings: Settings) -> Iterator[Finding]:
    """Say who else counts as a user: authors of unknown roles do, those of answers do not."""
    mapping, author = message_mapping(settings), getter(placed(settings.messages, settings.messages.user_id))
    users, unclear, answering = _Named(), _Named(), _Named()
    for document in documents:
        if (name := author(document)) is not None:
            kind = unclear if mapping.participant(document) is not None else answering
            kind = users if mapping.is_users(document) else kind
            kind.setdefault(mapping.session_id(document), set()).add(repr(name))
    if mixed := users.beside(unclear):
        what = (
            f"in {mixed} of {len(users)} sessions, messages of an unknown role name an author who is not the user: "
            "such a session counts as one of several users, and no user's own memory is shown in it"
        )
        hint = (
            "Map the role: EDEN_MESSAGES_ROLES. Authors of the roles assistant, tool and system do not count."
        )
        yield Finding("other authors", "warn", what, hint)
    if answered := users.beside(answering):
        what = (
            f"in {answered} of {len(users)} sessions, answers name an author who is not the user: they are of the "
            "agent's side and no users of the session; forgetting such an id forgets its answers"
        )
        yield Finding("authors of answers", "ok", what)


def only_answering(documents: Iterable[Mapping[str, Any]], settings: Settings) -> set[str]:
    """Return the ids, as `repr` writes them, that only messages of the agent's side have as authors."""
    mapping, author = message_mapping(settings), getter(placed(settings.messages, settings.messages.user_id))
    users, answering = set[str](), set[str]()
    for document in messages_in(documents, settings):
        if (name := author(document)) is not None:
            (users if mapping.participant(document) is not None else answering).add(repr(name))
    return answering - users


async def described(client: Client, settings: Settings) -> list[Finding]:
    """Try the mapped sessions, agents, users and groups on the newest messages, as formation looks them up."""
    database, sessions, messages = client[settings.source_database], settings.sessions, settings.messages
    groups = {name: getattr(settings, name).collection for name in ("sessions", "agents", "users", "groups")}
    mapped = {name: collection for name, collection in groups.items() if collection is not None}
    if not mapped:
        return []
    collection = database.get_collection(messages.collection, codec_options=PLAIN)
    documents = await collection.find(sort=[("_id", -1)], limit=SAMPLE).to_list()
    there = set(await database.list_collection_names())
    found = [
        Finding(
            name,
            "fail",
            f"{database.name}.{place} does not exist",
            f"Correct EDEN_{name.upper()}_COLLECTION.",
        )
        for name, place in mapped.items()
        if documents and place not in there
    ]
    mapping = message_mapping(settings)
    if (people := settings.users.collection) in there:
        written = messages_in(documents, settings)
        wrote = (author for document in written if is_id(author := mapping.participant(document)))
        authors = list({repr(author): author for author in wrote}.values())
        if authors and await database[people].find_one({"_id": {"$in": authors}}, {"_id": 1}) is None:
            what = f"none of {len(authors)} authors of messages has a document in {people}"
            hint = "Correct EDEN_USERS_COLLECTION, or EDEN_MESSAGES_USER_ID: it holds the `_id` of a user."
            found.append(Finding("users", "fail", what, hint))
    if sessions.collection is None or sessions.collection not in there:
        return found
    streams = client[settings.mongodb.database][settings.names["streams"]]
    directory = MongoDirectory(database, streams, settings)
    named = map(mapping.session_id, messages_in(documents, settings))
    facts = await directory.look_up(set(filter(None, named)))
    ids = list({repr(value): value for value in map(getter(messages.session_id), documents)}.values())
    place = database.get_collection(sessions.collection, codec_options=PLAIN)
    rows = await place.find({sessions.id: {"$in": ids}}).to_list()
    answering = only_answering(documents, settings)
    known = None if sessions.id == "_id" else KnownSessions(sessions.id, sessions.users)
    proposed = propose_sessions(sessions.collection, rows, len(ids), answering, known)
    return [
        *found,
        *judge_sessions(facts, proposed, settings),
        *judge_listed(rows, answering, sessions),
        *judge_unlisted(rows, documents, settings),
    ]


def judge_sessions(
    found: Mapping[str, SessionFacts | Missing], proposed: SessionsProposal | None, settings: Settings
) -> Iterator[Finding]:
    """Of what formation finds for sessions, and of what their documents look like."""
    paths, name = settings.sessions, "sessions"
    facts = [session for session in found.values() if isinstance(session, SessionFacts)]
    if missing := [session.reason for session in found.values() if isinstance(session, Missing)]:
        what = f"{len(missing)} of {len(found)} sessions form no memory, their messages wait: {missing[0]}"
        hint = (
            "Correct EDEN_SESSIONS_COLLECTION, EDEN_SESSIONS_AGENT_ID or EDEN_AGENTS_COLLECTION, or write what is "
            f"missing. A session's `{paths.id}` is what its messages name (EDEN_SESSIONS_ID)."
        )
        yield Finding(name, "fail" if len(missing) == len(found) else "warn", what, hint)
    if not facts:
        return
    wrong = False
    look = {
        "agent_id": (all(session.agent_id == DEFAULT_AGENT for session in facts), "all count for one agent"),
        "users": (
            all(session.users is None for session in facts),
            "the authors of messages are taken for it",
        ),
    }
    for field, (lacking, instead) in look.items():
        path, like = getattr(paths, field), getattr(proposed, field, None)
        chosen = field in paths.model_fields_set and path != NO_FIELD
        if lacking and (chosen or (field == "agent_id" and like is not None)):
            wrong = True
            hint = f"`{like}` looks like it: set" if like not in (None, path) else "Correct"
            value = f"={like}" if like not in (None, path) else ", or leave it out"
            what = f"none of {len(facts)} sessions has {field} in `{path}`: {instead}"
            yield Finding(name, "fail", what, f"{hint} EDEN_SESSIONS_{field.upper()}{value}.")
    if not missing and not wrong:
        agents = len({session.agent_id for session in facts})
        yield Finding(
            name, "ok", f"{len(facts)} have a document, of {agents} agent{'s' if agents > 1 else ''}"
        )


def judge_listed(
    sessions: Sequence[Mapping[str, Any]], answering: Collection[str], paths: SessionsSettings
) -> list[Finding]:
    """Of documents of sessions; `answering`: ids that only answer. Nothing if no list holds one."""
    path = paths.users
    mixed = sum(lists_any(listed_users(paths, session), answering) for session in sessions)
    if not mixed:
        return []
    what = (
        f"in {mixed} of {len(sessions)} sessions, `{path}` lists an id that only answers, as a bot's: it counts as a "
        "user, and a session of several users neither forms nor shows a user's own memory"
    )
    hint = (
        f"List the users alone, or set EDEN_SESSIONS_USERS={NO_FIELD}: then the authors of a session's messages are "
        "its users. Do it before the first `eden run`: windows keep their users."
    )
    return [Finding("session users", "warn", what, hint)]


def judge_unlisted(
    sessions: Sequence[Mapping[str, Any]], documents: Sequence[dict[str, Any]], settings: Settings
) -> list[Finding]:
    """Of documents of sessions and messages: whether a user writes in a session whose list lacks them."""
    mapping, paths = message_mapping(settings), settings.sessions
    session_id, author = (
        getter(placed(settings.messages, name))
        for name in (settings.messages.session_id, settings.messages.user_id)
    )
    listed, path, name_of = dict[str, set[str]](), paths.users, getter(paths.id)
    for session in sessions:
        if (users := listed_users(paths, session)) is not None:
            listed.setdefault(repr(name_of(session)), set()).update(map(repr, users))
    outside = {
        name
        for document in messages_in(documents, settings)
        if mapping.is_users(document)
        and not mapping.is_deleted(document)
        and author(document) is not None
        and (name := repr(session_id(document))) in listed
        and repr(author(document)) not in listed[name]
    }
    if not outside:
        return []
    what = f"in {len(outside)} of {len(listed)} sessions, a user writes whom `{path}` does not list"
    hint = (
        f"Is the author really in `{settings.messages.user_id}`, and do both hold ids of the same kind? In such a "
        "session no user's own memory is formed."
    )
    state = "fail" if len(outside) == len(listed) else "warn"
    return [Finding("session users", state, what, hint)]


class _Named(dict[str | None, set[str]]):
    """Return the authors by session."""

    def beside(self, others: "_Named") -> int:
        """Count the sessions in which the others name somebody whom these do not name."""
        return sum(bool(others.get(session, named) - named) for session, named in self.items())


def _like_author(documents: Iterable[Mapping[str, Any]], paths: MessagesSettings) -> tuple[str, int] | None:
    """Return the field that most documents have, and how many; of two equally frequent ones that named like an id."""
    mapped = {paths.session_id, paths.role, *paths.contents, paths.created_at, paths.user_id}
    found = Counter(name for document in documents for name in _like_authors(document) if name not in mapped)
    return max(found.items(), key=lambda item: (item[1], item[0].lower().endswith("id")), default=None)


def _like_authors(document: Mapping[str, Any], outer: str = "") -> Iterator[str]:
    """Return paths, at most two deep, that sound like an author and hold an id."""
    for name, value in document.items():
        if isinstance(value, Mapping) and not outer:
            yield from _like_authors(cast("Mapping[str, Any]", value), f"{name}.")
        elif AUTHOR.search(outer + name) and is_id(value):
            yield outer + name


async def mapping_version(client: AsyncMongoClient[dict[str, Any]], settings: Settings) -> Finding:
    """Check whether stored messages were read by the mapping that is set now."""
    placement = await MongoLive(client[settings.mongodb.database], settings.mongodb.prefix).placement()
    found = await misread_of(settings.placed(placement), client)
    return judge_version(found)


def judge_version(found: Misread) -> Finding:
    """Of what another mapping read."""
    if not found.lines():
        return Finding("mapping version", "ok", f"{found.mapping}; nothing stored was read by another one")
    commands = (["eden source reread"] if found.stored else []) + (
        ["eden reform corrected"] if found.formed else []
    )
    return Finding("mapping version", "warn", "; ".join(found.lines()), f"Run: {', then '.join(commands)}.")


def _roles(documents: Sequence[Mapping[str, Any]], messages: MessagesSettings) -> Finding:
    role = getter(messages.role)
    if ALL_OTHERS in messages.roles:
        roles = roles_of(messages.roles)
        spoken = Counter(role_of(role(document), roles) for document in documents)
        return Finding("roles", "ok", ", ".join(f"{name} {count}" for name, count in spoken.most_common()))
    flags = (bool, type(None)) if "false" in messages.roles else (bool,)
    values = (role(document) for document in documents)
    found = Counter(role_name(value) for value in values if isinstance(value, (str, *flags)))
    unknown = {name: count for name, count in found.items() if name not in {*ROLES, *messages.roles}}
    lacking = len(documents) - found.total()
    if not unknown and not lacking:
        return Finding("roles", "ok", ", ".join(f"{name} {count}" for name, count in found.most_common()))
    what: list[str] = []
    if unknown:
        what.append("unknown: " + ", ".join(f"{name!r} ({count})" for name, count in unknown.items()))
    if lacking:
        what.append(f"{lacking} of {len(documents)} documents have no text in `{messages.role}`")
    hint = "They count as `other`, half a user's weight. "
    return Finding("roles", "warn", "; ".join(what), hint + _roles_to_map(unknown))


def _roles_to_map(unknown: Collection[str]) -> str:
    """Suggest a setting for unknown roles; a role is named only where its meaning is clear."""
    clear = {name: role for name in unknown if (role := meaning(name)) is not None}
    if clear:
        return f"Map them: EDEN_MESSAGES_ROLES='{json.dumps(clear, ensure_ascii=False)}'."
    if unknown:
        return "Map each to user, assistant, tool, system or other: EDEN_MESSAGES_ROLES."
    return "Say where the role is: EDEN_MESSAGES_ROLE."


def _why_not(mapping: MessageMapping, document: dict[str, Any]) -> str | None:
    try:
        mapping.record(document, ANY_VERSION, ANY_TIME, "stream")
    except Unusable as reason:
        return str(reason)
    return None


def _left_out(mapping: MessageMapping, document: dict[str, Any]) -> list[str]:
    try:
        return mapping.left_out(document)
    except Unusable:
        return []


def _has_text(mapping: MessageMapping, document: dict[str, Any]) -> bool:
    try:
        return mapping.has_text(document)
    except Unusable:
        return False
