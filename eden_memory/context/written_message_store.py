"""Read a user's newest messages where they are written, and decide which of them may be shown elsewhere."""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from pymongo import DESCENDING, ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ExecutionTimeout, OperationFailure
from pymongo.read_concern import ReadConcern

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.directory.application_message_store import SEEN, ApplicationMessages, placed
from eden_memory.directory.author_store import begins_with, create_index, messages_of_user_hint, role_query
from eden_memory.directory.branches import tree_of
from eden_memory.directory.participants import (
    NOBODY,
    Audiences,
    Missing,
    Off,
    SessionFacts,
    is_reserved,
    scopes_of,
)
from eden_memory.directory.tree_store import ConversationTrees
from eden_memory.forgotten import Mark, Marks
from eden_memory.logs import LibraryLogger
from eden_memory.memory.memory_views import RecentMessage, Speaker
from eden_memory.mongo.document_fields import (
    Unusable,
    beside_content,
    cut,
    cut_in_query,
    first_with_text,
    getter,
    is_json,
    marked_if,
    moment_of,
    paths_of,
    text_of,
    without_thoughts,
)
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.mongo.lenient_decoding import EACH, readable
from eden_memory.redaction import RedactedTexts, redactor_of
from eden_memory.schemas.documents import Message, WindowTexts
from eden_memory.schemas.events.chat import role_of, roles_of
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import MessagesSettings, Settings
from eden_memory.windows.formation_requests import texts_of
from eden_memory.windows.window_rule import Waiting, weighted_tokens

log = LibraryLogger()


SPEAKERS: Mapping[str, Speaker] = {"user": "user", "assistant": "agent"}
"""Roles whose messages are shown, and what a context calls them."""

OLDEST_VERSION = "0" * 16
"""Of a message that formation-trigger has not seen: any mark of forgetting reaches it."""

NO_AUDIENCES = Audiences()

MessageRow = Mapping[str, Any]


class WrittenMessage(NamedTuple):
    """A message as it is stored at this moment; ids typed."""

    message_id: str
    session_id: str
    role: str
    text: str
    said_at: datetime
    written_at: datetime
    """The earliest time that is known of it: forgetting up to a moment goes by it."""


@dataclass(frozen=True, slots=True)
class SessionNow:
    """Who is and was in a session, as far as the application and formation-trigger know."""

    facts: SessionFacts | Missing
    authors: frozenset[str] | None
    """Of its messages now; None: they cannot be known."""
    seen: frozenset[str] = frozenset()
    """Authors that formation-trigger has ever seen."""
    audiences: Audiences = NO_AUDIENCES
    """Of the memory that was formed from it."""
    anonymous: bool = False
    """A user wrote in it whom nobody names."""


def is_asked_for(asked: Asker, view: VisibleMemory) -> bool:
    """Tell whether the asker's own memory is shown: only then its messages of other sessions may be."""
    user = asked.user_id
    return user is not None and Scope.of_user(asked.agent_id, user).key in view.scope_keys


def was_alone(asked: Asker, session_id: str, now: SessionNow, off: Off = NOBODY) -> bool:
    """Tell whether the session is the agent's, its only user ever is the asker, and user memory forms from it."""
    facts, user = now.facts, asked.user_id
    if isinstance(facts, Missing) or facts.agent_id != asked.agent_id or now.authors is None or user is None:
        return False
    listed = None if facts.users is None else frozenset(facts.users)
    users, alone = now.authors | now.seen if listed is None else listed, frozenset((user,))
    everybody = users | now.authors | now.seen | _heard(now.audiences)
    if users != alone or everybody != alone or (listed is None and now.anonymous):
        return False
    large = any(change.large is not None for change in now.audiences.changes)
    scopes = scopes_of(facts, session_id, (user,), (user,), (user,), 1)
    return not large and not off.of(session_id, user) and any(scope.kind == "user" for scope in scopes)


def _heard(audiences: Audiences) -> frozenset[str]:
    return frozenset(user for change in audiences.changes for user in change.joined)


def unsettled(
    user_id: str,
    written: Iterable[WrittenMessage],
    known: Mapping[str, MessageRow],
    settled: Collection[str],
    marks: Sequence[Marks],
    since: datetime,
) -> list[RecentMessage]:
    """Return the messages that no memory holds yet, newest first; `known`: their rows of `memory_messages`.

    A message that formation-trigger knows of another session was moved: it is left out until its stage has seen that.
    """
    found = [
        RecentMessage(
            message.message_id, message.session_id, SPEAKERS[message.role], message.text, message.said_at
        )
        for message in written
        if message.role in SPEAKERS
        and message.text.strip()
        and message.said_at >= since
        and _waits(message, known.get(message.message_id), settled)
        and not is_forgotten(user_id, message, known.get(message.message_id), marks)
    ]
    return sorted(found, key=lambda message: (message.said_at, message.message_id), reverse=True)


def is_pending(message: WrittenMessage, row: MessageRow | None, settled: Collection[str]) -> bool:
    """Tell whether stages may change what is shown of a message, though nobody changes the message.

    Its formation is not settled, or formation-trigger has not seen that it was moved, or written again.
    """
    if row is None or row["opted_out"] or row["forgotten"]:
        return False
    unseen = row["deleted"] or row["session_id"] != message.session_id
    return unseen or (row["formation_id"] is not None and row["formation_id"] not in settled)


def _waits(message: WrittenMessage, row: MessageRow | None, settled: Collection[str]) -> bool:
    if row is None:
        return True
    gone = row["deleted"] or row["opted_out"] or row["forgotten"]
    if gone or row["session_id"] != message.session_id:
        return False
    return row["formation_id"] is None or row["formation_id"] not in settled


def is_forgotten(
    user_id: str, message: WrittenMessage, row: MessageRow | None, marks: Iterable[Marks]
) -> bool:
    """Tell whether a mark reaches the message, its session or its user."""
    source = _source(user_id, message, row)
    return any(known.source_gone(source) for known in marks)


def _source(user_id: str, message: WrittenMessage, row: MessageRow | None) -> SourceMessage:
    """Forgetting a user reaches the agent's answers, too, and all that was said in the second of the request."""
    version, time = (row["version"], row["time"]) if row is not None else (OLDEST_VERSION, message.written_at)
    return SourceMessage(
        message_id=message.message_id,
        version=version,
        session_id=message.session_id,
        user_id=user_id,
        time=min(time, message.written_at).replace(microsecond=0),
    )


def named_in(user_id: str, written: Sequence[WrittenMessage]) -> set[tuple[str, str]]:
    """Return (kind, id) of everything whose forgetting concerns the messages."""
    messages = {("message", message.message_id) for message in written}
    return messages | {("session", message.session_id) for message in written} | {("user", user_id)}


Row = dict[str, Any]

Database = AsyncDatabase[Row]

Stored = Mapping[str, Any]

MOST_SESSIONS = 10
"""Of a user, those written in last."""

MOST_MESSAGES = 200
"""Of these sessions, the newest."""

MOST_AUTHORED = 100
"""Messages of a user that are looked at to find the sessions."""

MOST_LOOKED_AT = 1_000
"""Messages of a user that are looked through for words."""

MOST_MILLISECONDS = 500
"""Time limit of one query."""

TOGETHER = 100
"""Documents of one answer of the server: some 3 MB at most."""

MOST_DOCUMENTS = 20
"""Documents of a user that are read whole, where messages have to be looked for in them."""

SMALL = 10_000
"""Messages of a collection that is read without an index on the author."""

LOOK_AGAIN_SECONDS = 60.0
"""How long what was learned of indexes is used."""

BEGINNING = 4_000
"""Characters of a text of which only the beginning may be shown: the mark of a cut comes behind that."""

LONGEST_MARK = 200
"""Characters of a text in which it may say that it is deleted."""
ADDED: Row = {"mapping": None, "deleted": False}
"""Rows of `memory_messages` that may be of added texts: no document of the application has them."""


class WrittenMessages:
    """`source` is the application's database, `memory` our own.

    The server cuts texts as the tailer does; their secrets are redacted once it is decided which of them are shown.
    """

    def __init__(self, source: Database, memory: Database, settings: Settings) -> None:
        self._text_limit = settings.tailer.text_limit
        self._mapping = MessageFields(settings.messages, self._text_limit)
        self._paths, names = settings.messages, settings.names
        self._messages = _local(source, settings.messages.collection)
        branches = tree_of(settings.messages) is not None
        self._trees = ConversationTrees(self._messages, settings.messages) if branches else None
        self._inbox = _local(source, names["inbox"])
        self._recorded = memory[names[Message.COLLECTION]]
        self._windows = memory[names[WindowTexts.COLLECTION]]
        sessions = settings.sessions
        self._sessions = None if sessions.collection is None else _local(source, sessions.collection)
        self._users, self._session_id = sessions.users, sessions.id
        self._hint = messages_of_user_hint(source.name, self._paths)
        self._order = [(name, DESCENDING) for name in dict.fromkeys((self._paths.created_at, "_id"))]
        self._indexed: dict[str, tuple[float, bool]] = {}
        self._whole = None if self._paths.server_reads else ApplicationMessages(memory, settings)
        self.redacted = RedactedTexts(redactor_of(settings))
        """Of texts that are shown."""

    async def any_added(self) -> bool:
        """Tell whether there may be any added text, in the inbox or carried."""
        carried = self._recorded.find_one({"mapping": None}, {"_id": 1}, hint="added")
        waiting = self._inbox.find_one({"kind": "added_text"}, {"_id": 1})
        try:
            return any(await asyncio.gather(carried, waiting))
        except OperationFailure:  # the index is not there yet
            return True

    async def sessions_of(self, user_id: str, since: datetime, *, added: bool = True) -> dict[str, str]:
        """Return the sessions that the user has written in since a time, or is listed in; the last ones first.

        Of each the newest message of the user, "" where there is none. `added`: also those of added texts.
        """
        user = decode_id(user_id)
        authored, listed, (inbox, carried) = await asyncio.gather(
            self._authored_in(user), self._listing(user), self._added_by(user_id, since, added=added)
        )
        written = filter(None, readable("message", authored, self._mapping.place))
        recent = sorted((place for place in written if place.said_at >= since), reverse=True)
        waiting = readable("message", inbox, lambda row: (_typed(row.get("session_id")), _typed(row["_id"])))
        sessions = [(session, message or "") for session, message in waiting if session is not None]
        sessions += [(place.session_id, place.message_id) for place in recent]
        sessions += [(session, "") for session in (*carried, *listed)]
        found = dict[str, str]()
        for session, message in sessions:
            found.setdefault(session, message)
        # the session that asks is one of them, as a rule
        return dict(islice(found.items(), MOST_SESSIONS + 1))

    async def messages_of(
        self, session_ids: Iterable[str], since: datetime, most: int = MOST_MESSAGES, *, added: bool = True
    ) -> tuple[list[WrittenMessage], bool]:
        """Return the newest messages of sessions as they are now, with their secrets, and whether there are more.

        Of fewer than 200, long texts are cut to what may be shown of them. Where there are more, all are returned
        that were said since the oldest of these. `added`: added texts, too.
        """
        wanted = list(session_ids)
        if not wanted:
            return [], False
        found = await asyncio.gather(
            *((self._waiting_texts(wanted, most), self._added_texts(wanted, since, most)) if added else ()),
            self._in_sessions(wanted, most),
        )
        whole = max((_oldest(messages) for messages, more in found if more), default=since)
        by_id = {message.message_id: message for messages, _ in found for message in messages}
        return [message for message in by_id.values() if message.said_at >= whole], any(
            more for _, more in found
        )

    async def written_by(self, user_id: str) -> list[WrittenMessage]:
        """Return the newest messages and added texts of a user, as far as their texts are stored; with secrets."""
        user = decode_id(user_id)
        own = await self._authored(user, MOST_LOOKED_AT, self._mapping.fields)
        waiting = await self._waiting({"user_id": user}, MOST_LOOKED_AT)
        found = [*readable("message", own, self._mapping.message), *waiting]
        added = await self._added({"user_id": user_id}, MOST_LOOKED_AT)
        by_id = {message.message_id: message for message in (*added, *filter(None, found)) if message.text}
        return list(by_id.values())

    async def texts_of(self, message_ids: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return (role, text) of messages whose texts are stored: in closed windows, else with the application."""
        wanted = set(message_ids)
        known = {name: row["formation_id"] for name, row in (await self.recorded(wanted)).items()}
        formed = [name for name in set(known.values()) if name is not None]
        windows = self._windows.find({"_id": {"$in": formed}}, {"messages": texts_of(list(known))})
        found = {
            item["message_id"]: (item["role"], item["text"])
            async for row in windows
            for item in row["messages"]
            if item.get("text")
        }
        missing = [decode_id(name) for name in wanted - found.keys()]
        if missing and self._whole is None:
            rows = await self._messages.find({"_id": {"$in": missing}}, self._mapping.fields).to_list()
            written = filter(None, readable("message", rows, self._mapping.message))
            found |= {one.message_id: (one.role, one.text) for one in written if one.text}
        return found

    async def being_forgotten(self) -> Marks:
        """Return marks for the requests to forget that no stage has carried out yet."""
        asked = self._inbox.find({"kind": "forget", "what": {"$in": ["message", "session", "user"]}})
        rows = readable("forget request", await asked.to_list(), _named)
        return Marks(Mark(what, target, "for_ever") for what, target in rows if target is not None)

    async def recorded(self, message_ids: Iterable[str]) -> dict[str, Row]:
        """Return what formation-trigger keeps of these messages, without their texts."""
        rows = await self._recorded.find({"_id": {"$in": list(message_ids)}}, {"text": 0}).to_list()
        return {row["_id"]: row for row in rows}

    async def waiting_in(self, session_id: str, formed_to: int) -> list[Waiting]:
        """Return the messages of a session that no window holds: `formed_to` is the last place that one holds.

        Of those that formation-trigger has not seen the newest 200, or none where reading them takes long.
        """
        try:
            found = await asyncio.gather(self._in_sessions([session_id]), self._waiting_texts([session_id]))
        except ExecutionTimeout:
            found = list[tuple[list[WrittenMessage], bool]]()
        written = {message.message_id: message for messages, _ in found for message in messages}
        known = await self.recorded(written)
        pending: Row = {"session_id": session_id, "formation_id": None, "place": {"$gt": formed_to}}
        rows = await self._recorded.find(pending).to_list()
        waiting = {
            row["_id"]: Waiting(
                row["_id"],
                row["version"],
                row.get("since") or row["time"],
                weighted_tokens(row["text"] or "", row["role"]),
            )
            for row in rows
        }
        for name, message in written.items():
            if name not in known and name not in waiting and message.text.strip():
                tokens = weighted_tokens(message.text, message.role)
                waiting[name] = Waiting(name, OLDEST_VERSION, message.written_at, tokens)
        return list(waiting.values())

    async def _authored(self, user: Any, most: int, fields: Row) -> list[Row]:
        """Return the newest documents of an author; none where looking for them would take long."""
        path = self._paths.user_id
        if self._whole is not None and is_json(path):
            return []
        if not await self._short(self._messages, path, self._hint):
            return []
        if self._whole is not None:
            return await self._authored_in_documents(self._whole, user)
        query = self._messages.find({path: user}, fields, sort=self._order, limit=most)
        return await query.max_time_ms(MOST_MILLISECONDS).batch_size(TOGETHER).to_list()

    async def _authored_in(self, user: Any) -> list[Row]:
        """Return the newest of the author's newest documents in each session, deleted ones among them."""
        if self._whole is not None:
            return await self._authored(user, MOST_AUTHORED, self._whole.fields)
        if not await self._short(self._messages, self._paths.user_id, self._hint):
            return []
        newest = {"$group": {"_id": f"${self._paths.session_id}", "newest": {"$first": "$$ROOT"}}}
        order = dict.fromkeys((name for name, _ in self._order), DESCENDING)
        steps = [{"$match": {self._paths.user_id: user}}, {"$sort": order}, {"$limit": MOST_AUTHORED}]
        fields = dict.fromkeys(("_id", self._paths.session_id, self._paths.created_at), 1)
        found = await self._messages.aggregate(
            [*steps, {"$project": fields}, newest, {"$replaceWith": "$newest"}], maxTimeMS=MOST_MILLISECONDS
        )
        return await found.to_list()

    async def _authored_in_documents(self, whole: ApplicationMessages, user: Any) -> list[Row]:
        newest = self._messages.find({self._paths.user_id: user}, whole.fields, sort=[("_id", DESCENDING)])
        documents = await newest.limit(MOST_DOCUMENTS).max_time_ms(MOST_MILLISECONDS).to_list()
        author = getter(placed(self._paths, self._paths.user_id))
        return [row for row in await whole.of(documents) if author(row) == user]

    async def _added_by(self, user_id: str, since: datetime, *, added: bool) -> tuple[list[Row], list[str]]:
        """Return a user's added texts in the inbox, and the sessions of those that are carried."""
        if not added:
            return [], []
        waiting: Row = {"kind": "added_text", "user_id": decode_id(user_id)}
        query = {**ADDED, "user_id": user_id, "time": {"$gte": since}}
        newest = self._recorded.find(
            query, {"session_id": 1}, sort=[("time", DESCENDING)], limit=MOST_AUTHORED
        )
        inbox, rows = await asyncio.gather(
            self._inbox.find(waiting, {"session_id": 1}).to_list(),
            newest.max_time_ms(MOST_MILLISECONDS).to_list(),
        )
        return inbox, [row["session_id"] for row in rows if row["session_id"]]

    async def _listing(self, user: Any) -> list[str]:
        """Return the newest sessions whose document lists the user: their messages may name no author."""
        if self._sessions is None:
            return []
        hint = create_index(self._sessions.database.name, self._sessions.name, {self._users: 1, "_id": -1})
        if not await self._short(self._sessions, self._users, hint):
            return []
        listed = self._sessions.find({self._users: user}, {self._session_id: 1}, sort=[("_id", -1)])
        rows = await listed.limit(MOST_SESSIONS).max_time_ms(MOST_MILLISECONDS).to_list()
        name = getter(self._session_id)
        return list(filter(None, readable("directory", rows, lambda row: _typed(name(row)))))

    async def _in_sessions(
        self, session_ids: Sequence[str], most: int = MOST_MESSAGES
    ) -> tuple[list[WrittenMessage], bool]:
        wanted = [decode_id(name) for name in session_ids]
        if self._whole is not None:
            of = {self._paths.session_id: {"$in": wanted}}
            newest = self._messages.find(of, self._whole.fields, sort=[("_id", DESCENDING)])
            documents = await newest.limit(MOST_MESSAGES).max_time_ms(MOST_MILLISECONDS).to_list()
            messages = readable("message", await self._whole.of(documents), self._mapping.message)
            spoken = [one for one in messages if one is not None and one.role in SPEAKERS]
            spoken.sort(key=lambda one: one.said_at)
            return spoken[-most:], len(spoken) > most or len(documents) == MOST_MESSAGES
        query = {self._paths.session_id: {"$in": wanted}, self._paths.role: self._mapping.shown}
        fields = self._mapping.fields if most == MOST_MESSAGES else self._mapping.beginning
        found = self._messages.find(query, fields, sort=self._order, limit=most)
        rows = await found.max_time_ms(MOST_MILLISECONDS).batch_size(TOGETHER).to_list()
        messages = list(filter(None, readable("message", rows, self._mapping.message)))
        if self._trees is not None:
            sessions = (message.session_id for message in messages)
            replaced = (await self._trees.replaced(sessions, MOST_MILLISECONDS)).values()
            gone = frozenset[str]().union(*replaced)
            messages = [message for message in messages if message.message_id not in gone]
        return messages, len(rows) == most

    async def _waiting_texts(
        self, session_ids: Sequence[str], most: int = MOST_MESSAGES
    ) -> tuple[list[WrittenMessage], bool]:
        """Return added texts that the tailer has not carried yet."""
        wanted = [decode_id(name) for name in session_ids]
        found = await self._waiting({"session_id": {"$in": wanted}}, most)
        return found, len(found) == most

    async def _waiting(self, of: Row, most: int) -> list[WrittenMessage]:
        fields = {"session_id": 1, "role": 1, "created_at": 1, "text": cut_in_query("text", self._text_limit)}
        found = self._inbox.find({"kind": "added_text", **of}, fields, sort=[("_id", DESCENDING)], limit=most)
        return list(filter(None, readable("message", await found.to_list(), _added_text)))

    async def _added_texts(
        self, session_ids: Sequence[str], since: datetime, most: int
    ) -> tuple[list[WrittenMessage], bool]:
        """Return added texts as formation-trigger keeps them: in their row, or in their closed window."""
        of: Row = {"session_id": {"$in": list(session_ids)}, "time": {"$gte": since}}
        found = await self._added(of, most)
        return found, len(found) == most

    async def _added(self, of: Row, most: int) -> list[WrittenMessage]:
        found = self._recorded.find({**ADDED, **of}, sort=[("time", DESCENDING)], limit=most)
        rows = await found.max_time_ms(MOST_MILLISECONDS).batch_size(TOGETHER).to_list()
        named = [row["_id"] for row in rows if row["formation_id"] is not None]
        if not named:
            return [_recorded(row, row["text"] or "") for row in rows]
        formed = {row["formation_id"] for row in rows if row["formation_id"] is not None}
        windows = self._windows.find({"_id": {"$in": list(formed)}}, {"messages": texts_of(named)})
        texts = {item["message_id"]: item["text"] async for row in windows for item in row["messages"]}
        return [_recorded(row, row["text"] or texts.get(row["_id"]) or "") for row in rows]

    async def _short(self, collection: AsyncCollection[Row], path: str, hint: str) -> bool:
        """Tell whether an index begins with the path, or the collection is small; looked up once a minute."""
        at, short = self._indexed.get(collection.name, (-LOOK_AGAIN_SECONDS, True))
        if time.monotonic() - at < LOOK_AGAIN_SECONDS:
            return short
        now_short = await _has_index(collection, path) or await collection.estimated_document_count() <= SMALL
        if short and not now_short:
            log.warning(
                "messages that are not formed yet are not shown", collection=collection.name, hint=hint
            )
        self._indexed[collection.name] = time.monotonic(), now_short
        return now_short


class MessageFields:
    """Reads the application's documents as the tailer does, with texts cut to `text_limit` by the server."""

    def __init__(self, paths: MessagesSettings, text_limit: int = 8_000) -> None:
        placing = partial(placed, paths)
        self._session, self._role = getter(placing(paths.session_id)), getter(placing(paths.role))
        content, self._limit = paths.contents[0], text_limit
        self._content = getter(content) if paths.server_reads else first_with_text(paths.contents)
        self._created = getter(placing(paths.created_at))
        self._roles = roles_of(paths.roles)
        named = [paths.session_id, paths.role, *paths.contents, paths.user_id, paths.created_at]
        named += (marks := paths_of(paths.unread))
        self._deleted = marked_if(paths.unread)
        texts = {
            path: cut_in_query([path], LONGEST_MARK) if path in marks else {"$literal": None}
            for path in paths.contents
        }
        without_text = dict.fromkeys(named, 1) | texts

        def cut_to(limit: int) -> Row:
            text = cut_in_query(paths.contents, limit, beside_content(content, named))
            return without_text | {content: text}

        self.fields, self.beginning = cut_to(text_limit), cut_to(min(text_limit, BEGINNING))
        """Of a query: the text, wherever it stands, comes as the first of the contents."""
        self.shown = role_query(paths, {"user", "assistant"})

    def place(self, row: Stored) -> "Place | None":
        """Return when and where a document's message was said; None for one that is none, or of no known age."""
        said = (self._created(row), row.get(SEEN), row["_id"])
        times = [time for time in map(_moment, said) if time is not None]
        name, session = _typed(row["_id"]), _typed(self._session(row))
        if name is None or session is None or is_reserved(session) or not times:
            return None
        return Place(times[0], session, name, min(times))

    def message(self, row: Stored) -> WrittenMessage | None:
        """Return the message of a document; None for one that becomes no message, or whose age is not known."""
        place = self.place(row)
        if place is None or self._deleted(row):
            return None
        try:
            text = cut(text_of(self._content(row)), self._limit)
        except Unusable:
            return None
        role = role_of(self._role(row), self._roles)
        if role == "assistant":
            text = without_thoughts(text)
        return WrittenMessage(place.message_id, place.session_id, role, text, place.said_at, place.written_at)


class Place(NamedTuple):
    """Where a message stands; ids typed."""

    said_at: datetime
    session_id: str
    message_id: str
    written_at: datetime


def _oldest(messages: Iterable[WrittenMessage]) -> datetime:
    return min((message.said_at for message in messages), default=datetime.max.replace(tzinfo=UTC))


def _named(row: Stored) -> tuple[Any, str | None]:
    return row["what"], _typed(row.get("target"))


def _added_text(row: Stored) -> WrittenMessage | None:
    """Return the text of an inbox document; its ObjectId, or the time given with it, says when it was said."""
    name, session, text = _typed(row["_id"]), _typed(row.get("session_id")), row.get("text")
    times = [time for time in (_moment(row.get("created_at")), _moment(row["_id"])) if time is not None]
    if name is None or session is None or not isinstance(text, str) or not times:
        return None
    return WrittenMessage(name, session, str(row.get("role", "user")), text, times[0], min(times))


def _recorded(row: Row, text: str) -> WrittenMessage:
    times = [row["time"], *filter(None, [row.get("created_at")])]
    return WrittenMessage(row["_id"], row["session_id"], row["role"], text, min(times), min(times))


def _moment(value: Any) -> datetime | None:
    said = moment_of(value)
    return None if said is None else datetime.fromisoformat(said).astimezone(UTC)


def _typed(value: Any) -> str | None:
    try:
        return None if value is None else encode_id(value)
    except TypeError:
        return None


async def _has_index(collection: AsyncCollection[Row], path: str) -> bool:
    try:
        indexes = await collection.index_information()
    except OperationFailure:  # not allowed to list them
        return False
    return any(begins_with(index, path) for index in indexes.values())


def _local(database: Database, name: str) -> AsyncCollection[Row]:
    """Also what is acknowledged, and not yet on a majority."""
    return database.get_collection(
        name,
        codec_options=EACH,
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern("local"),
    )
