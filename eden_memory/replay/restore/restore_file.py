"""Sessions and messages as the topics have them, gathered in a file: a million of them would not fit in memory.

The file is SQLite's own for a database without a name: it has none in its folder either, so that nothing that people
said stays there when the process is killed. Whoever is killed gathers anew.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from eden_memory.replay.restore.restore_rules import PlacedControl, RecordedSession, WindowMember, unseen
from eden_memory.schemas.events import FormationRequested
from eden_memory.windows.session_state import StoredMessage
from eden_memory.windows.window_rule import Control

TABLES = """
PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16000; PRAGMA temp_store = FILE;
CREATE TABLE windows (id TEXT PRIMARY KEY, session TEXT, seq INT, closed TEXT, trace TEXT, texts INT, value BLOB);
CREATE INDEX windows_session ON windows (session, seq);
CREATE TABLE explaining (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE members (id TEXT PRIMARY KEY, formation TEXT, session TEXT, version TEXT, closed TEXT, body BLOB)
    WITHOUT ROWID;
CREATE TABLE messages (id TEXT PRIMARY KEY, session TEXT, place INT, author TEXT, waits INT, body BLOB)
    WITHOUT ROWID;
CREATE TABLE past (session TEXT, author TEXT, place INT);
CREATE TABLE controls (id TEXT PRIMARY KEY, session TEXT, place INT, body BLOB) WITHOUT ROWID;
"""
INDEXES = """
CREATE INDEX messages_session ON messages (session, place);
CREATE INDEX members_formation ON members (formation);
CREATE INDEX past_session ON past (session);
CREATE INDEX controls_session ON controls (session, place);
"""
AUTHORS = """
SELECT author FROM (
    SELECT author, place FROM messages WHERE session = ?1 AND author IS NOT NULL
    UNION ALL SELECT author, place FROM past WHERE session = ?1
) GROUP BY author ORDER BY min(place)
"""
MEMBER = """
INSERT INTO members VALUES (?, ?, ?, ?, ?, NULL) ON CONFLICT DO UPDATE SET formation = excluded.formation,
    session = excluded.session, version = excluded.version, closed = excluded.closed
    WHERE excluded.version > members.version
"""
SESSIONS = """
SELECT session FROM windows UNION SELECT session FROM messages WHERE session IS NOT NULL
UNION SELECT session FROM controls
"""
MOMENTS = ("time", "since", "created_at", "edited_at")
Encoded = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedWindow:
    """A recorded window with its messages; `texts`: whether they are wanted with it."""

    asked: FormationRequested
    value: bytes
    traceparent: str | None
    texts: bool
    members: Sequence[StoredMessage]
    """In the window's order; one whose text is not known has None."""
    exact: frozenset[str]
    """Those that are of the very version that the window names."""
    before: Sequence[StoredMessage] = ()
    """The messages before it that explain it, as far as they are of the very versions that it names."""

    @property
    def corrected(self) -> bool:
        """Whether some were read again since, with a corrected field mapping."""
        return any(member.misread for member in self.members)


class RestoreFile:
    """Takes in records of both topics, then gives them back session by session."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(TABLES)

    def close(self) -> None:
        """Remove the file."""
        self._database.close()

    def begin(self) -> None:
        """Begin a transaction, up to `end`."""
        self._database.execute("BEGIN")

    def end(self) -> None:
        """Write it."""
        self._database.execute("COMMIT")

    def index(self) -> None:
        """Everything is taken in: from now on it is read by session."""
        self._database.executescript(INDEXES)

    def window(self, asked: FormationRequested, value: bytes, trace: str | None, *, texts: bool) -> None:
        """A recorded window; a message is of the first window that has its highest version."""
        closed = asked.closed_at.isoformat()
        row = (asked.formation_id, asked.session_id, asked.seq, closed, trace, texts, value)
        self._database.execute("INSERT OR IGNORE INTO windows VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self._database.executemany(
            MEMBER,
            [
                (message.message_id, asked.formation_id, asked.session_id, message.version, closed)
                for message in asked.messages
            ],
        )
        explaining = [(message.message_id,) for message in asked.before] if texts else []
        self._database.executemany("INSERT OR IGNORE INTO explaining VALUES (?)", explaining)

    def member(self, message_id: str) -> WindowMember | None:
        """The window that a message is in."""
        row = self._database.execute(
            "SELECT formation, members.session, version, members.closed, texts, explaining.id IS NOT NULL "
            "FROM members JOIN windows ON windows.id = formation "
            "LEFT JOIN explaining ON explaining.id = members.id WHERE members.id = ?",
            (message_id,),
        ).fetchone()
        if row is None:
            return None
        formation, session, version, closed, texts, explains = row
        at = datetime.fromisoformat(closed)
        return WindowMember(formation, session, version, at, bool(texts), bool(explains))

    def told(self, message_id: str) -> StoredMessage | None:
        """Return the message that `text` got last."""
        row = self._database.execute("SELECT body FROM members WHERE id = ?", (message_id,)).fetchone()
        return None if row is None or row[0] is None else _message(row[0])

    def text(self, message_id: str, told: StoredMessage | None) -> None:
        """The message as its window saw it; None: nothing of it is to be kept."""
        body = None if told is None else _body(told)
        self._database.execute("UPDATE members SET body = ? WHERE id = ?", (body, message_id))

    def known(self, message_id: str) -> StoredMessage | None:
        """The message as taken in so far."""
        row = self._database.execute("SELECT body FROM messages WHERE id = ?", (message_id,)).fetchone()
        return None if row is None else _message(row[0])

    def put(self, message: StoredMessage, place: int, *, waits: bool) -> None:
        """The message after a record at `place`; it stays where it stood first."""
        author = None if message.opted_out else message.participant
        row = (
            message.message_id,
            message.session_id,
            message.place or place,
            author,
            waits,
            _body(message),
        )
        self._database.execute(
            "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET session = excluded.session, "
            "place = CASE excluded.waits WHEN 1 THEN excluded.place ELSE place END, "
            "author = coalesce(excluded.author, author), waits = excluded.waits, body = excluded.body",
            row,
        )

    def wrote(self, session_id: str, user_id: str, place: int) -> None:
        """Who wrote in a session, though no message there says so any more."""
        self._database.execute("INSERT INTO past VALUES (?, ?, ?)", (session_id, user_id, place))

    def control(self, session_id: str, control: PlacedControl) -> None:
        """A control record; the same one again stays where it was."""
        body = orjson.dumps(control.asked._asdict())
        row = (control.asked.control_id, session_id, control.place, body)
        self._database.execute("INSERT OR IGNORE INTO controls VALUES (?, ?, ?, ?)", row)

    def sessions(self) -> Iterator[str]:
        """Every session, by id."""
        for (name,) in self._database.execute(f"SELECT session FROM ({SESSIONS}) ORDER BY session"):  # noqa: S608 - a constant
            yield name

    def session(self, name: str, partition: int) -> RecordedSession:
        """Return a session as the topics have it."""
        values = self._all("SELECT value FROM windows WHERE session = ? ORDER BY seq", name)
        controls = self._database.execute(
            "SELECT place, body FROM controls WHERE session = ? ORDER BY place", (name,)
        ).fetchall()
        return RecordedSession(
            name,
            partition,
            windows=[FormationRequested.model_validate_json(value, extra="ignore") for value in values],
            authors=self._all(AUTHORS, name),
            waiting=self._messages(name, waits=True),
            controls=[PlacedControl(place, _control(body)) for place, body in controls],
        )

    def windows(self, name: str) -> Iterator[RecordedWindow]:
        """The recorded windows of a session, with their messages."""
        rows = self._database.execute(
            "SELECT value, trace, texts FROM windows WHERE session = ? ORDER BY seq", (name,)
        )
        for value, trace, texts in rows:
            asked = FormationRequested.model_validate_json(value, extra="ignore")
            members, exact = self._members(asked)
            before = self._before(asked) if texts else ()
            yield RecordedWindow(asked, value, trace, bool(texts), members, exact, before)

    def settled(self, name: str) -> Iterator[StoredMessage]:
        """The messages of a session that wait for nothing."""
        return self._messages(name, waits=False)

    def unseen(self, name: str) -> Iterator[StoredMessage]:
        """Messages of a session's windows that the topic has no record of."""
        rows = self._database.execute(
            "SELECT members.id, formation, members.session, version, members.closed FROM windows JOIN members "
            "ON members.formation = windows.id LEFT JOIN messages ON messages.id = members.id "
            "WHERE windows.session = ? AND messages.id IS NULL",
            (name,),
        )
        for message_id, formation, session, version, closed in rows:
            yield unseen(
                message_id, WindowMember(formation, session, version, datetime.fromisoformat(closed))
            )

    def nowhere(self) -> Iterator[StoredMessage]:
        """Messages of no known session: only their deletion is there."""
        for (body,) in self._database.execute("SELECT body FROM messages WHERE session IS NULL"):
            yield _message(body)

    def _messages(self, name: str, *, waits: bool) -> Iterator[StoredMessage]:
        query = "SELECT body FROM messages WHERE session = ? AND waits = ? ORDER BY place"
        for (body,) in self._database.execute(query, (name, waits)):
            yield _message(body)

    def _members(self, asked: FormationRequested) -> tuple[list[StoredMessage], frozenset[str]]:
        """The messages of a window, and those that are of the very version that it names."""
        query = "SELECT id, body FROM members WHERE formation = ? AND body IS NOT NULL"
        found = {name: _message(body) for name, body in self._database.execute(query, (asked.formation_id,))}
        told: list[StoredMessage] = []
        exact: set[str] = set()
        for ref in asked.messages:
            member = WindowMember(asked.formation_id, asked.session_id, ref.version, asked.closed_at)
            message = found.get(ref.message_id) or unseen(ref.message_id, member)
            if ref.message_id in found and message.version == ref.version:
                exact.add(ref.message_id)
            message.version = ref.version
            told.append(message)
        return told, frozenset(exact)

    def _before(self, asked: FormationRequested) -> list[StoredMessage]:
        told = [(ref.version, self.told(ref.message_id)) for ref in asked.before]
        return [message for version, message in told if message is not None and message.version == version]

    def _all(self, query: str, name: str) -> list[Any]:
        return [row[0] for row in self._database.execute(query, (name,))]


def _body(message: StoredMessage) -> bytes:
    return orjson.dumps(message)


def _message(body: bytes) -> StoredMessage:
    fields: Encoded = orjson.loads(body)
    for name in MOMENTS:
        if fields[name] is not None:
            fields[name] = datetime.fromisoformat(fields[name])
    return StoredMessage(**fields)


def _control(body: bytes) -> Control:
    fields: Encoded = orjson.loads(body)
    fields["time"] = datetime.fromisoformat(fields["time"])
    return Control(**fields)
