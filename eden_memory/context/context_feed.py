"""Reports changes that may affect a context, from MongoDB change streams."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from pymongo import AsyncMongoClient
from pymongo.asynchronous.change_stream import AsyncDatabaseChangeStream

from eden_memory.access.visible import UNNAMED
from eden_memory.directory.application_message_store import parts, placed
from eden_memory.directory.listed_messages import DOCUMENT
from eden_memory.directory.session_document_store import listed_users
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.document_fields import Getter, Unusable, getter, paths_of, stored_path
from eden_memory.mongo.ids import encode_id
from eden_memory.mongo.lenient_decoding import LENIENT, leave_out
from eden_memory.schemas.documents import ForgottenMark, Live, Message, SessionState, Snapshot, Stream
from eden_memory.schemas.events.chat import role_of, roles_of
from eden_memory.settings import SessionsSettings, Settings
from eden_memory.tasks import run_until_first

log = LibraryLogger()

Client = AsyncMongoClient[dict[str, Any]]
AWAIT_SECONDS, LONG_AWAIT_SECONDS = 1.0, 5.0
"""Until a server says that nothing happened: to those who answer from memory, and to those who keep contexts."""
SILENT_SECONDS = 2.0
"""Seconds beyond that after which a server that does not even say so counts as gone."""
OPEN_SECONDS, AGAIN_SECONDS = 12.0, 1.0
REST_SECONDS, SHORT_REST_SECONDS = 0.1, 0.02
What = Literal["scope", "session", "state", "user", "author", "message", "added", "forgotten", "everything"]
WRITTEN = ["insert", "update", "replace"]
REPLACED = ["drop", "rename"]
"""Of a whole collection."""


@dataclass(frozen=True, slots=True)
class ContextChange:
    """A change of something that contexts depend on; `id` is typed, "" for everything, and where a text is added."""

    what: What
    id: str = ""
    """Of an author: the session's; of what is forgotten: the mark's, or `<kind>:<id>/` of a request; of a state: the
    session's, whose memory may be hidden or shown again in every scope."""
    author: str | None = None
    """Of an author: UNNAMED where a message of a user names none; None: an answer, whose author does not count."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A change stream over a database, and what an event of it means."""

    database: str
    pipeline: list[dict[str, Any]]
    changed: Callable[[Mapping[str, Any]], Iterable[ContextChange]]
    full_document: str | None = None
    before: str | None = None
    """Whether documents come as they were before the change, too."""
    rest: float = 0.0
    """Seconds between an event and the question for the next ones, which come together."""


@dataclass(frozen=True, slots=True)
class _Watched:
    """A collection, what its changes mean, and the fields that matter (none: all)."""

    collection: str
    what: What
    fields: tuple[str, ...] = ()
    typed: bool = True
    """Its ids are typed text; else they are the application's."""
    id: str = "_id"
    """The field that holds the id."""


def _changed(event: Mapping[str, Any], watched: Mapping[str, _Watched]) -> Iterable[ContextChange]:
    followed = watched.get(event.get("ns", {}).get("coll", ""))
    key = event.get("documentKey", {}).get("_id")
    if followed is None or key is None or followed.what == "everything":
        return [ContextChange("everything")]
    new = event.get("operationType") == "insert"
    what = "session" if followed.what == "state" and new else followed.what
    keys = [key] if followed.id == "_id" else _named(event, getter(followed.id))
    try:
        named = [ContextChange(what, each if followed.typed else encode_id(each)) for each in keys]
    except TypeError:
        named = []
    return named or [ContextChange("everything")]


def _named(event: Mapping[str, Any], read: Getter) -> list[Any]:
    """Return the ids in a document that was changed, of before and after; none where one of them is not known."""
    kind, told = event["operationType"], event.get("fullDocumentBeforeChange")
    now = event.get("fullDocument")
    if told is None and (kind in ("delete", "replace") or (kind == "update" and event.get("moved"))):
        return []
    if now is None and kind != "delete":
        return []
    return list(dict.fromkeys(read(document) for document in (told, now) if document is not None))


def feeds(settings: Settings, *, marks: bool = False, scopes: bool = True) -> dict[str, Feed]:
    """Return what to follow in each database: streams, sessions, agents, groups, users.

    `scopes`: snapshots, too; `marks`: what is forgotten.
    """
    names, sessions, agents = settings.names, settings.sessions, settings.agents
    own = [
        _Watched(names[Stream.COLLECTION], "everything"),
        _Watched(names[Live.COLLECTION], "everything"),
        _Watched(names["versions"], "everything"),  # says how memory is shared, and seldom changes
        _Watched(names[SessionState.COLLECTION], "state", ("users", "deletions")),
    ]
    if scopes:
        own.append(_Watched(names[Snapshot.COLLECTION], "scope"))
    if marks:
        own.append(_Watched(names[ForgottenMark.COLLECTION], "forgotten"))
    theirs, joined = list[_Watched](), None
    if sessions.collection is not None:
        said = (sessions.users, sessions.group_id, sessions.agent_id, sessions.title)
        fields = (*said, sessions.memory, sessions.incognito, *paths_of(sessions.exclude))
        fields = (*fields, *((sessions.id,) if sessions.id != "_id" else ()))
        joined = _Watched(sessions.collection, "session", fields, typed=False, id=sessions.id)
        theirs += [joined] if sessions.id == "_id" else []
    if agents.collection is not None:
        switches = (agents.user_memory_enabled, agents.agent_memory_enabled)
        fields = (*switches, agents.facts, agents.reflections)
        theirs.append(_Watched(agents.collection, "everything", fields))
    if (groups := settings.groups).collection is not None:
        theirs.append(_Watched(groups.collection, "everything", (groups.name, groups.members)))
    if settings.users.collection is not None:
        theirs.append(_Watched(settings.users.collection, "user", (settings.users.memory,), typed=False))
    databases = {settings.mongodb.database: own}
    if theirs:
        databases.setdefault(settings.source_database, []).extend(theirs)
    found = {name: _feed(name, watched) for name, watched in databases.items()}
    if joined is not None and joined not in theirs:  # whose documents have to be looked at
        feed = _feed(settings.source_database, [joined])
        found["/sessions"] = replace(feed, full_document="updateLookup", before="whenAvailable")
    return found


def _feed(database: str, watched: Sequence[_Watched]) -> Feed:
    by_collection = {followed.collection: followed for followed in watched}
    return Feed(database, _pipeline(watched), lambda event: _changed(event, by_collection))


def messages_feed(settings: Settings) -> Feed:
    """Return what to follow in the application's messages: new ones, and those edited, moved or deleted."""
    return _looked_up(settings.source_database, [_messages(settings)], REST_SECONDS)


def recent_feeds(settings: Settings) -> dict[str, Feed]:
    """Return what to follow for the messages of users that are not formed yet.

    In the application's database messages, sessions that list users, and the inbox; in ours what formation-trigger
    and forgetting write.
    """
    names = settings.names
    theirs = [_messages(settings), _inbox(names["inbox"])]
    if settings.sessions.collection is not None:
        theirs.append(_listed_users(settings.sessions.collection, settings.sessions))
    state, marks = names[SessionState.COLLECTION], names[ForgottenMark.COLLECTION]
    added = names[Message.COLLECTION]
    kept = (
        _Followed(marks, {"$literal": True}, (), lambda event: [ContextChange("forgotten", _key(event))]),
        _Followed(
            state,
            _matters(_Watched(state, "state", ("seq", "audience_changes"))),
            (),
            lambda event: [ContextChange("author", _key(event))],
        ),
        _Followed(
            added,
            _and({"$eq": ["$operationType", "insert"]}, {"$eq": [_or_null("fullDocument.mapping"), None]}),
            ("session_id", "user_id"),
            lambda event: [
                ContextChange("added"),
                _author_of(event["fullDocument"]["session_id"], event["fullDocument"]["user_id"]),
            ],
        ),
    )
    own = _feed_of(settings.mongodb.database, kept)
    return {"/recent": _looked_up(settings.source_database, theirs, SHORT_REST_SECONDS), "/formed": own}


@dataclass(frozen=True, slots=True)
class _Followed:
    """A collection of which events are read themselves."""

    collection: str
    matters: dict[str, Any]
    """Whether an event is reported; of an update it cannot depend on the document, which is looked up after it."""
    fields: tuple[str, ...]
    """Of the document."""
    changes: Callable[[Mapping[str, Any]], Iterable[ContextChange]]


def _looked_up(database: str, followed: Sequence[_Followed], rest: float) -> Feed:
    """Return a feed whose events hold the document as it is now, after an update, too."""
    return replace(_feed_of(database, followed), full_document="updateLookup", rest=rest)


def _feed_of(database: str, followed: Sequence[_Followed]) -> Feed:
    by_collection = {of.collection: of.changes for of in followed}
    conditions = [_and({"$eq": ["$ns.coll", of.collection]}, of.matters) for of in followed]
    named = {"$in": list(by_collection)}
    kinds = [
        {"operationType": {"$in": [*WRITTEN, "delete"]}, "$expr": {"$or": conditions}},
        {"operationType": {"$in": REPLACED}, "$or": [{"ns.coll": named}, {"to.coll": named}]},
    ]
    fields = [f"fullDocument.{root}" for of in followed for root in _roots(of.fields)]
    shown = dict.fromkeys(("operationType", "documentKey", "ns", *fields), 1)

    def changed(event: Mapping[str, Any]) -> Iterable[ContextChange]:
        if event["operationType"] in REPLACED:
            return [ContextChange("everything")]
        return by_collection[event["ns"]["coll"]](event)

    return Feed(database, [{"$match": {"$or": kinds}}, {"$project": shown}], changed)


def _messages(settings: Settings) -> _Followed:
    paths = settings.messages
    fields = (paths.session_id, paths.user_id, paths.role, *paths.speakers)
    session_id, user_id, role = (
        getter(placed(paths, path)) for path in (paths.session_id, paths.user_id, paths.role)
    )
    roles = roles_of(paths.roles)

    def written(document: Mapping[str, Any]) -> ContextChange | None:
        try:
            session = encode_id(session_id(document))
        except TypeError:
            return None  # the tailer makes no message of it either
        author = user_id(document)
        if author is None and role_of(role(document), roles) == "user":
            return ContextChange("author", session, UNNAMED)
        return _author_of(session, author)

    def changed(event: Mapping[str, Any]) -> Iterator[ContextChange]:
        if document := event.get("fullDocument"):
            with suppress(Unusable):
                found = map(written, parts(paths, document))
                yield from dict.fromkeys(change for change in found if change is not None)
        if paths.list is not None:
            if (session := _session(session_id, event)) is not None:
                yield ContextChange("session", session)
        elif event["operationType"] != "insert":
            with suppress(TypeError):
                yield ContextChange("message", encode_id(event["documentKey"]["_id"]))

    watched = (*fields, *paths.contents, paths.created_at, *paths_of(paths.unread))
    matters = _matters(_Watched(paths.collection, "message", tuple(map(stored_path, watched))))
    return _Followed(paths.collection, matters, ("_id", *map(stored_path, fields)), changed)


def _session(read: Getter, event: Mapping[str, Any]) -> str | None:
    """Return the session of a document that lists messages: of one that is gone, where its id is the session's."""
    key = event["documentKey"]["_id"]
    with suppress(TypeError):
        return encode_id(read({**(event.get("fullDocument") or {}), DOCUMENT: key}))
    return None


def _inbox(collection: str) -> _Followed:
    """Texts that wait, and what is to be forgotten."""

    def changed(event: Mapping[str, Any]) -> Iterator[ContextChange]:
        with suppress(TypeError):
            if (asked := event.get("fullDocument")) is None:
                yield ContextChange("message", encode_id(event["documentKey"]["_id"]))
            elif asked.get("kind") == "added_text":
                yield ContextChange("added")
                yield _author_of(encode_id(asked.get("session_id")), asked.get("user_id"))
            elif asked.get("kind") == "forget" and asked.get("what") in ("message", "session", "user"):
                yield ContextChange("forgotten", f"{asked['what']}:{encode_id(asked.get('target'))}/")

    fields = ("kind", "session_id", "user_id", "what", "target")
    return _Followed(collection, {"$literal": True}, fields, changed)


def _listed_users(collection: str, paths: SessionsSettings) -> _Followed:
    """Sessions that may be new to the users whom they list."""
    name = getter(paths.id)

    def changed(event: Mapping[str, Any]) -> Iterator[ContextChange]:
        session: Mapping[str, Any] = event.get("fullDocument") or {}
        for user in listed_users(paths, session) or ():
            with suppress(TypeError):
                yield ContextChange("author", encode_id(name(session)), encode_id(user))

    fields = tuple(dict.fromkeys((paths.users, paths.id)))
    return _Followed(collection, _matters(_Watched(collection, "session", fields)), fields, changed)


def _author_of(session: str, author: Any) -> ContextChange:
    """`session` typed; an author that is no id makes the session one of which nobody knows who is in it."""
    try:
        return ContextChange("author", session, None if author is None else encode_id(author))
    except TypeError:
        return ContextChange("session", session)


def _key(event: Mapping[str, Any]) -> str:
    return str(event["documentKey"]["_id"])


def _and(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {"$and": list(conditions)}


def _or_null(field: str) -> dict[str, Any]:
    return {"$ifNull": [f"${field}", None]}


def _pipeline(watched: Sequence[_Watched]) -> list[dict[str, Any]]:
    conditions = [
        _and({"$eq": ["$ns.coll", followed.collection]}, _matters(followed)) for followed in watched
    ]
    shown: dict[str, Any] = {"documentKey": 1, "ns": 1, "operationType": 1}
    for path in (followed.id for followed in watched if followed.id != "_id"):
        moved = _matters(_Watched("", "session", (path,)))
        shown |= {f"fullDocument.{path}": 1, f"fullDocumentBeforeChange.{path}": 1, "moved": moved}
    return [
        {"$match": {"$expr": {"$or": [{"$eq": ["$operationType", "dropDatabase"]}, *conditions]}}},
        {"$project": shown},
    ]


def _matters(_watched: _Watched) -> dict[str, Any]:
    """Return whether to report a change: an update only if it touches one of the fields, or a parent."""
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


T = TypeVar("T")
HELD_SECONDS = 60.0


class HeardReads:
    """What MongoDB has answered, by name: while every change of it is heard, until one is, for a minute at most."""

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._answers: dict[str, tuple[float, Any]] = {}
        self._hears, self._elapsed = False, elapsed

    async def get(self, name: str, read: Callable[[], Awaitable[T]]) -> T:
        """Return what `read` finds; it is not kept if anything is forgotten while it is read."""
        answers, now = self._answers, self._elapsed()
        until, answer = answers.get(name, (now, None))
        if now < until:
            return answer
        found = await read()
        if self._hears:
            answers[name] = now + HELD_SECONDS, found
        return found

    def heard(self, hears: bool) -> None:
        """Note whether every change is reported from now on, and forget everything."""
        self._hears = hears
        self._answers = {}

    def forget(self, name: str) -> None:
        """Have it read again: it may have changed."""
        self._answers = {other: answer for other, answer in self._answers.items() if other != name}


class ContextFeed:
    """`on_change` for each change; `on_live(False)` while something may be missed, `on_live(True)` from then on.

    `followed`: a stream each. `await_seconds`: until a server says that nothing happened.
    """

    def __init__(
        self,
        client: Client,
        followed: Mapping[str, Feed],
        on_change: Callable[[ContextChange], None],
        on_live: Callable[[bool], None],
        await_seconds: float = AWAIT_SECONDS,
    ) -> None:
        self._client, self._feeds, self._await_seconds = client, followed, await_seconds
        self._on_change, self._on_live = on_change, on_live
        self._open: set[str] = set()
        self._warned = False

    async def run(self) -> None:
        """Follow the streams until cancelled."""
        try:
            await run_until_first(*(self._follow(*item) for item in self._feeds.items()))
        finally:
            self._on_live(False)

    async def _follow(self, name: str, feed: Feed) -> None:
        while True:
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    database = self._client.get_database(feed.database, codec_options=LENIENT)
                    stream = await database.watch(
                        feed.pipeline,
                        full_document=feed.full_document,
                        full_document_before_change=feed.before,
                        max_await_time_ms=int(self._await_seconds * 1_000),
                    )
                async with stream:
                    self._opened(name)
                    await self._read(stream, feed)
            except Exception as error:  # noqa: BLE001 - whatever one event brings, the next stream begins behind it
                if not self._warned:  # it may be that they cannot be followed at all
                    log.warning(
                        "what is read is not kept: the change stream broke", reason=type(error).__name__
                    )
                self._warned = True
            finally:
                self._open.discard(name)
                self._on_live(False)
            await asyncio.sleep(AGAIN_SECONDS)

    def _opened(self, name: str) -> None:
        """Mark a stream as open; once all are, every later change is reported."""
        self._open.add(name)
        if len(self._open) == len(self._feeds):
            self._warned = False
            self._on_change(ContextChange("everything"))
            self._on_live(True)

    async def _read(self, stream: AsyncDatabaseChangeStream[dict[str, Any]], feed: Feed) -> None:
        while stream.alive:
            async with asyncio.timeout(self._await_seconds + SILENT_SECONDS):
                event = await stream.try_next()
            if event is None:
                continue
            for change in _read(event, feed):
                self._on_change(change)
            if feed.rest and not _holds_more(stream):
                await asyncio.sleep(feed.rest)


def _read(event: Mapping[str, Any], feed: Feed) -> list[ContextChange]:
    """Return the changes of an event; of a document that cannot be read, that anything may have changed."""
    try:
        return list(feed.changed(event))
    except Exception as error:  # noqa: BLE001 - whatever it is, this document raised it
        leave_out("change", {}, error)
        return [ContextChange("everything")]


def _holds_more(stream: Any) -> bool:
    """Return whether a stream holds more events of the batch that it has read."""
    return stream._cursor._has_next()
