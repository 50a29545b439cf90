"""Memory of the earlier systems → records in an export file: the same vectors, versions and absorbed reflections.

A fact without a vector has no record: it becomes a command, and is embedded.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, cast

from eden_memory.directory.participants import Directory, own_session
from eden_memory.files.export_file import MOST_VERSIONS, ExportWriter, without_data, writing
from eden_memory.files.import_items import (
    BEGINNING,
    Entry,
    ImportedAs,
    ImportedItem,
    Unimportable,
    checked_text,
    imported_or_skipped,
)
from eden_memory.limits import LONGEST_BLOB, LONGEST_FACT, FormationLimits, words_of
from eden_memory.memory.memory_batch import Memory, fact_hash
from eden_memory.mongo.ids import decode_id, encode_id, typed
from eden_memory.schemas.envelope import STORE_FORMAT
from eden_memory.schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.events.facts import CommandRef
from eden_memory.schemas.events.reflections import MemoryCommandRef
from eden_memory.schemas.exported import ExportHeader
from eden_memory.schemas.fields import Part
from eden_memory.schemas.provenance import Embedding, SourceMessage, Statement
from eden_memory.schemas.scopes import Scope, ScopeKind

MOST_ABSORBED = 50_000
"""Reflections that one blob names as absorbed, at most: a record has a largest size."""


@dataclass(frozen=True, slots=True)
class EarlierMemory:
    """A memory of an earlier system. Reflections come before the blob of their scope."""

    where: str
    kind: Literal["fact", "reflection", "blob"]
    own: Any
    """Its id there."""
    text: Any
    scope: Scope
    at: Any
    """When it was formed."""
    changed_at: Any = None
    session: Any = None
    messages: Sequence[Any] = ()
    """The ids of the messages that it rests on."""
    absorbed: bool = False
    version: Any = 1
    previous: Any = None
    """The text of the version before."""
    embedding: Embedding | None = None


EarlierReader = Callable[[str, ImportedAs, Directory], AsyncIterator[EarlierMemory | Entry]]
"""Reads the database at an address; the directory knows who takes part in a session."""


def memory_id(to: ImportedAs, kind: str, own: Any, scope: Scope) -> str:
    """Return the id here of a fact or reflection there: the same whatever its text."""
    name = "\x00".join((to.source, kind, encode_id(own), scope.key))
    return blake2b(name.encode(), digest_size=16).hexdigest()


def blob_is_readable(to: ImportedAs, text: Any, at: Any, version: Any = 1) -> bool:
    """Return whether a blob can be taken: if not, what it absorbed would wait for another one."""
    try:
        checked_text(text, LONGEST_BLOB)
        to.moment(at)
        _version(version)
    except Unimportable:
        return False
    return True


@dataclass(slots=True)
class EarlierRecords:
    """Takes memories one by one; what becomes no record is in `rest`."""

    to: ImportedAs
    limits: FormationLimits
    rest: list[Entry] = field(default_factory=list[Entry])
    words: dict[tuple[str, ScopeKind], int] = field(default_factory=dict[tuple[str, ScopeKind], int])
    """By agent and kind of scope, the words of the longest blob that is longer than these may be."""
    _outcomes: Counter[str] = field(default_factory=Counter[str])
    _absorbed: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _blobs: set[str] = field(default_factory=set[str])
    """Scopes whose text is taken: two users or agents may be mapped to one."""
    _texts: set[int] = field(default_factory=set[int])
    """Hashes of scope and text of each fact."""

    async def write(self, items: AsyncIterator[EarlierMemory | Entry], path: Path) -> None:
        """Write the records to an export file that is named after its content."""
        digest = blake2b(digest_size=16)
        header = ExportHeader(
            store_format=STORE_FORMAT, export_id="0" * 32, exported_at=self.to.now, program=self.to.source
        )
        with writing(path) as writer:
            writer.header(header)
            async for item in items:
                for event, at in self._events(item):
                    head, value = _line(event, at)
                    digest.update(head + value)
                    writer.record(head, value)
            writer.end()
        named = header.model_copy(update={"export_id": digest.hexdigest()})
        with path.open("r+b") as file:
            ExportWriter(file).header(named)

    async def read(self, items: AsyncIterator[EarlierMemory | Entry]) -> None:
        """Find only what becomes no record: the file was written before."""
        async for item in items:
            self._events(item)

    def _events(self, item: EarlierMemory | Entry) -> list[tuple[Memory, datetime]]:
        if not isinstance(item, EarlierMemory):
            self.rest.append(item)
            return []
        made = imported_or_skipped(item.where, lambda: self._made(item))
        if isinstance(made, list):
            return made
        self.rest.append(made)
        return []

    def _made(self, item: EarlierMemory) -> list[tuple[Memory, datetime]] | ImportedItem:
        """Return the records of a memory, or the command that adds it; Unimportable."""
        at = self.to.moment(item.at) or BEGINNING
        if item.kind == "blob":
            return [(self._blob(item, at), at)]
        text, sources = checked_text(item.text, LONGEST_FACT), self._sources(item, at)
        if item.kind == "reflection":
            return [(self._reflection(item, text, sources, at), at)]
        if item.embedding is None:
            fact = self.to.fact(item.where, item.own, text, item.scope, item.at)
            given = {"sources": sources, "session_id": decode_id(sources[0].session_id)}
            return fact.with_fields(**given)
        version = _version(item.version)
        if (known := hash((item.scope.key, fact_hash(text)))) in self._texts:
            raise Unimportable("its scope holds the same text")
        self._texts.add(known)
        changed = max(at, self.to.moment(item.changed_at) or at)
        before = item.previous if isinstance(item.previous, str) and version > 1 else ""
        found = [(self._fact(item, text, sources, version, at, changed), changed)]
        if before.strip() and len(before) <= LONGEST_FACT:
            found.append((self._fact(item, before, sources, version - 1, at, at), at))
        return cast("list[tuple[Memory, datetime]]", found)

    def _sources(self, item: EarlierMemory, at: datetime) -> tuple[SourceMessage, ...]:
        """Return the messages behind a memory of a user or session. What an agent knows belonged to all its users."""
        scope = item.scope
        own = scope.kind in ("user", "session")
        session = item.session if own and item.session is not None else None
        ids = [typed(message, "message") for message in item.messages] if session is not None else []
        there = typed(
            session if session is not None else own_session(scope.agent_id, scope.user_id), "session"
        )
        return tuple(
            SourceMessage(
                message_id=message, version="0" * 16, session_id=there, user_id=scope.user_id, time=at
            )
            for message in ids or [typed(self.to.command_id(item.kind, item.own, scope), "message")]
        )

    def _fact(
        self,
        item: EarlierMemory,
        text: str,
        sources: tuple[SourceMessage, ...],
        version: int,
        at: datetime,
        since: datetime,
    ) -> FactChanged:
        self._outcomes[item.scope.key] += 1
        asked = self.to.command_id("fact", item.own, item.scope)
        return FactChanged(
            cause=asked,
            fact_id=memory_id(self.to, "fact", item.own, item.scope),
            version=version,
            outcome=self._outcomes[item.scope.key],
            scope=item.scope,
            text=text,
            hash=fact_hash(text),
            embedding=item.embedding if text == item.text else None,
            decision="ADD" if version == 1 else "UPDATE",
            statement=Statement(number=1, text=text, sources=sources, said_at=since),
            command=CommandRef(
                command_id=asked, action="add", by="import", asked_by=self._asked_by, asked_at=at
            ),
            sources=sources,
            formed_at=at,
            said_at=at,
            valid_from=since,
        )

    def _reflection(
        self, item: EarlierMemory, text: str, sources: tuple[SourceMessage, ...], at: datetime
    ) -> ReflectionFormed:
        absorbed = self._absorbed.setdefault(item.scope.key, []) if item.absorbed else []
        if len(absorbed) == MOST_ABSORBED:
            raise Unimportable(f"its blob absorbed more than {MOST_ABSORBED:,}")
        command_id = self.to.command_id("reflection", item.own, item.scope)
        formed = ReflectionFormed(
            cause=command_id,
            reflection_id=memory_id(self.to, "reflection", item.own, item.scope),
            scope=item.scope,
            text=text,
            position=1,
            session_id=sources[0].session_id,
            origin="imported",
            sources=sources,
            formed_at=at,
            said_at=at,
            asked_by=self._asked_by,
            command=self._command(command_id, "add_reflection", at),
        )
        absorbed.append(formed.reflection_id)
        return formed

    def _blob(self, item: EarlierMemory, at: datetime) -> ScopeConsolidated:
        text = checked_text(item.text, LONGEST_BLOB)
        place: tuple[str, ScopeKind] = item.scope.agent_id, item.scope.kind
        version = _version(item.version)
        if item.scope.key in self._blobs:
            raise Unimportable("its scope has the text of another document")
        self._blobs.add(item.scope.key)
        words = words_of(text)
        limit = self.limits.scopes[item.scope.kind].blob_words
        if words > limit and item.scope.kind != "shard":
            self.words[place] = max(words, self.words.get(place, 0))
        command_id = self.to.command_id("blob", item.own, item.scope)
        return ScopeConsolidated(
            cause=command_id,
            scope=item.scope,
            version=version,
            based_on=0,
            text=text,
            words=words,
            word_limit=max(words, limit),
            absorbed=tuple(self._absorbed.pop(item.scope.key, ())),
            because="imported",
            command=self._command(command_id, "edit_blob", at),
            consolidated_at=at,
            said_at=at,
            settings_version=self.to.source,
        )

    def _command(
        self, command_id: str, action: Literal["add_reflection", "edit_blob"], at: datetime
    ) -> MemoryCommandRef:
        return MemoryCommandRef(
            command_id=command_id, action=action, by="import", asked_by=self._asked_by, asked_at=at
        )

    @property
    def _asked_by(self) -> str:
        """Whoever repeats the import makes the same records."""
        return f"eden import {self.to.source}"


def _version(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_VERSIONS:
        raise Unimportable(f"its version is no number from 1 to {MOST_VERSIONS:,}", bad=True)
    return value


def _line(event: Memory, at: datetime) -> tuple[bytes, bytes]:
    assert isinstance(event, Part)
    envelope = event.envelope(f"{event.cause}@{getattr(event, 'version', 1)}", "import", at)
    return without_data(envelope, event.key()), event.json_bytes()
