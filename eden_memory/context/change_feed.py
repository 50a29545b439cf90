"""Which change streams tell of what contexts depend on, and how their events are read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eden_memory.mongo.bson_ids import encode_id
from eden_memory.mongo.document_fields import getter
from eden_memory.schemas.documents import Live, SessionState, Snapshot, Stream
from eden_memory.settings import Settings

What = Literal["scope", "session", "user", "author", "everything"]
WRITTEN = ["insert", "update", "replace"]


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that contexts depend on has changed; `id` typed, "" for everything."""

    what: What
    id: str = ""
    """Of an author: the session's."""
    author: str = ""


@dataclass(frozen=True, slots=True)
class Feed:
    """A change stream over a database, and what an event of it means."""

    database: str
    pipeline: list[dict[str, Any]]
    changed: Callable[[Mapping[str, Any]], Changed | None]
    full_document: str | None = None


@dataclass(frozen=True, slots=True)
class _Watched:
    """A collection, what its changes mean, and the fields that matter (none: all)."""

    collection: str
    what: What
    fields: tuple[str, ...] = ()
    typed: bool = True
    """Its ids are typed text; else they are the application's."""


def _changed(event: Mapping[str, Any], watched: Mapping[str, _Watched]) -> Changed:
    one = watched.get(event.get("ns", {}).get("coll", ""))
    key = event.get("documentKey", {}).get("_id")
    if one is None or key is None or one.what == "everything":
        return Changed("everything")
    try:
        return Changed(one.what, key if one.typed else encode_id(key))
    except TypeError:
        return Changed("everything")


def feeds(settings: Settings) -> dict[str, Feed]:
    """By database: snapshots, streams, sessions, agents, groups and users."""
    names, sessions, agents = settings.names, settings.sessions, settings.agents
    own = [
        _Watched(names[Snapshot.COLLECTION], "scope"),
        _Watched(names[Stream.COLLECTION], "everything"),
        _Watched(names[Live.COLLECTION], "everything"),
        _Watched(names["versions"], "everything"),  # says how memory is shared, and seldom changes
        _Watched(names[SessionState.COLLECTION], "session", ("users",)),
    ]
    theirs: list[_Watched] = []
    if sessions.collection is not None:
        said = (sessions.users, sessions.group_id, sessions.agent_id, sessions.title)
        fields = (*said, sessions.memory, sessions.incognito)
        theirs.append(_Watched(sessions.collection, "session", fields, typed=False))
    if agents.collection is not None:
        fields = (agents.user_memory_enabled, agents.agent_memory_enabled)
        theirs.append(_Watched(agents.collection, "everything", fields))
    if (groups := settings.groups).collection is not None:
        theirs.append(_Watched(groups.collection, "everything", (groups.name, groups.members)))
    if settings.users.collection is not None:
        theirs.append(_Watched(settings.users.collection, "user", (settings.users.memory,), typed=False))
    databases = {settings.mongodb.database: own}
    if theirs:
        databases.setdefault(settings.source_database, []).extend(theirs)
    return {name: _feed(name, watched) for name, watched in databases.items()}


def _feed(database: str, watched: Sequence[_Watched]) -> Feed:
    by_collection = {one.collection: one for one in watched}
    return Feed(database, _pipeline(watched), lambda event: _changed(event, by_collection))


def authors_feed(settings: Settings) -> Feed:
    """Of the application's messages: who wrote one in which session, or was made its author."""
    paths = settings.messages
    fields = (paths.session_id, paths.user_id)
    session_id, user_id = getter(paths.session_id), getter(paths.user_id)

    def changed(event: Mapping[str, Any]) -> Changed | None:
        document = event["fullDocument"]
        try:
            session = encode_id(session_id(document))
        except TypeError:
            return None  # the tailer makes no message of it either
        try:
            return Changed("author", session, encode_id(user_id(document)))
        except TypeError:
            return Changed("session", session)

    matters = _matters(_Watched(paths.collection, "author", fields))
    written = {"$match": {"ns.coll": paths.collection, "operationType": {"$in": WRITTEN}, "$expr": matters}}
    authored = {"$match": {f"fullDocument.{paths.user_id}": {"$ne": None}}}
    shown = {"$project": {f"fullDocument.{root}": 1 for root in _roots(fields)}}
    return Feed(settings.source_database, [written, authored, shown], changed, "updateLookup")


def _pipeline(watched: Sequence[_Watched]) -> list[dict[str, Any]]:
    conditions = [{"$and": [{"$eq": ["$ns.coll", one.collection]}, _matters(one)]} for one in watched]
    return [
        {"$match": {"$expr": {"$or": [{"$eq": ["$operationType", "dropDatabase"]}, *conditions]}}},
        {"$project": {"documentKey": 1, "ns": 1, "operationType": 1}},
    ]


def _matters(_watched: _Watched) -> dict[str, Any]:
    """Whether a change is to be told: an update only if it touches one of the fields, or what they stand in."""
    if not _watched.fields:
        return {"$literal": True}
    root = {"$arrayElemAt": [{"$split": ["$$path", "."]}, 0]}
    paths = {
        "$concatArrays": [
            {"$map": {"input": {"$objectToArray": _or_empty("updatedFields", {})}, "in": "$$this.k"}},
            _or_empty("removedFields", []),
            {"$map": {"input": _or_empty("truncatedArrays", []), "in": "$$this.field"}},
        ]
    }
    touched = {
        "$anyElementTrue": [
            {
                "$map": {
                    "input": paths,
                    "as": "path",
                    "in": {"$in": [root, {"$literal": _roots(_watched.fields)}]},
                }
            }
        ]
    }
    return {"$or": [{"$ne": ["$operationType", "update"]}, touched]}


def _or_empty(field: str, empty: Any) -> dict[str, Any]:
    return {"$ifNull": [f"$updateDescription.{field}", {"$literal": empty}]}


def _roots(fields: Iterable[str]) -> list[str]:
    return sorted({field.partition(".")[0] for field in fields})
