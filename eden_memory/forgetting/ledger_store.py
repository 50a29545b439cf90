"""Erase what stored outcomes and kept answers of models hold of something forgotten."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from pymongo import DeleteMany, ReadPreference, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.forgetting.forgetting_rules import BlobRef, Resting, reflections_of
from eden_memory.forgotten import ForgottenMarks, Marks, ids_of, ids_of_window
from eden_memory.memory.memory_batch import Memory, fact_hash, is_forgotten, named_by
from eden_memory.memory.projection import is_restated
from eden_memory.mongo.transactions import SharedReads
from eden_memory.mongo.validators import Indexes, index_on
from eden_memory.names import ORIGINAL, Names
from eden_memory.schemas.documents import Answer, Erasure, Outcome, WindowTexts
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    Event,
    FactChanged,
    FactCommanded,
    FactsExtracted,
    FactsProposed,
    Forgotten,
    FormationRequested,
    MemoryCommanded,
    ReflectionFormed,
    ScopeChanged,
    ScopeConsolidated,
    decode,
)
from eden_memory.schemas.events.formation import Window
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.stages.codec import event_id
from eden_memory.stages.outcome_store import UNPUBLISHED
from eden_memory.stages.stage import Delivery, Emit, Emitted, Erase
from eden_memory.windows.trigger_store import FACTS, REFLECTIONS, WITH_TEXTS, of_messages, readers_of

Stating = FactsExtracted | FactsProposed
REASON = "forgotten"
ENDED: dict[str, type[Event]] = {of.NAME: of for of in (FactsProposed, FactCommanded, MemoryCommanded)}
"""Events that a tombstone ends when nothing is left of them."""
MEMORY = frozenset(of.NAME for of in (FactChanged, ReflectionFormed, ScopeConsolidated))
"""Events of which nothing but numbers is left once they are erased; the writer's topics end them by tombstones."""


def concerned(events: Iterable[Event]) -> set[tuple[str, str]]:
    """Return (kind, target) of everything whose forgetting concerns any of the events."""
    named: set[tuple[str, str]] = set()
    for event in events:
        named |= {*named_by([event]), *ids_of(None, _sources(event))}
    return named


def window_of(event: Event | None) -> Window | None:
    """Return the window that a question about this event shows."""
    match event:
        case FormationRequested():
            return event
        case FactsExtracted():
            return event.window
        case _:
            return None


def asked_about(event: Event | None) -> set[tuple[str, str]]:
    """Return (kind, target) of everything whose forgetting concerns a question about this event."""
    if (window := window_of(event)) is not None:
        return ids_of_window(window)
    return concerned([event]) if _is_compared(event) else set()


def showed_forgotten(event: Event | None, marks: Marks) -> bool:
    """Return whether a question about this event may have shown something that is forgotten by now."""
    if (window := window_of(event)) is not None:
        return marks.window_gone(window)
    return _is_compared(event) and marks.any_gone(_sources(event))


def _is_compared(event: Event | None) -> TypeGuard[FactsProposed | FactCommanded]:
    """Return whether a model may be asked what it means for the facts near it."""
    return isinstance(event, FactsProposed) or (isinstance(event, FactCommanded) and event.decide)


def without_forgotten(event: Event, marks: Marks) -> Event | None:
    """Return an event without what is forgotten: the same one if nothing is, None if nothing else is in it."""
    match event:
        case FactsExtracted() | FactsProposed():
            facts = tuple(fact for fact in event.facts if not marks.any_gone(fact.sources))
            if len(facts) == len(event.facts):
                return event
            left = event.model_copy(update={"facts": facts})
            return left if facts or isinstance(event, FactsExtracted) else None
        case FactCommanded() | MemoryCommanded():
            return None if marks.any_gone(event.sources) else event
        case FactChanged() | ReflectionFormed() | ScopeConsolidated():
            return _without_text(event) if event.text and is_forgotten(event, marks) else event
        case _:
            return event


def _without_text(event: Memory) -> Event:
    """Return a version with its numbers alone: who decides next goes on from them."""
    match event:
        case FactChanged():
            empty: dict[str, object] = {
                "hash": fact_hash(""),
                "embedding": None,
                "statement": None,
                "reason": None,
            }
        case ScopeConsolidated():
            empty = {"words": 0, "pins": ()}
        case _:
            empty = {}
    return event.model_copy(update={"text": "", **empty})


def published_again(left: Event | None, before: Envelope, key: str, cause: Delivery) -> Emit | Erase | None:
    """Return the record that takes the place of one in a topic kept until it is consumed; None if none has to.

    It has the id of the record that it replaces, so a reader of that one skips it. Whoever ends a record publishes
    the same tombstone.
    """
    if isinstance(left, Stating):
        return Emit(left, cause, time=before.time, identity=before.id)
    if (of := ENDED.get(before.name)) is None:
        return None
    scope, identity = before.ordering_key, event_id(before.id, "forgetting", 0)
    return Erase(of, key, scope, before.subject, REASON, scope=scope, cause=cause, identity=identity)


def _sources(event: Event) -> list[SourceMessage]:
    match event:
        case FactsExtracted() | FactsProposed():
            return [source for fact in event.facts for source in fact.sources]
        case FactCommanded() | MemoryCommanded():
            return list(event.sources)
        case _:
            return []


Row = dict[str, Any]
ABSORBING = ("consolidation", "propagation")
"""Stages that ask about the reflections that a version of a blob absorbs."""
ERASURE_INDEXES: Indexes = {
    Erasure.COLLECTION: (index_on("restated", sparse=True), index_on("-forgotten_at"))
}
FOUND = dict.fromkeys(("members", "kinds", "parts", "record_count", "records.t"), 1)
"""Fields of an outcome that say what it led to, without its records' values."""
TOGETHER = 200
"""Outcomes or questions that one query looks for."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """One event of a stored outcome."""

    part: str
    """The document that holds it, at `place` of its records."""
    place: int
    envelope: Envelope
    key: str
    value: bytes | None
    event: Event | None
    """None: nothing is left of it."""
    erased: bool
    """Something was erased from it before."""


class ForgottenLedgers:
    """The collections `outcomes` of one pipeline and `answers`, as far as they hold texts."""

    def __init__(
        self, database: AsyncDatabase[Row], names: Names, forgotten: ForgottenMarks, pipeline: str = ORIGINAL
    ) -> None:
        safely = database.with_options(
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority", j=True),
        )
        self._outcomes = safely[names[Outcome.COLLECTION]]
        self._erasures = safely[names[Erasure.COLLECTION]]
        self._answers = safely[names[Answer.COLLECTION]]
        self._windows = safely[names[WindowTexts.COLLECTION]]
        self._forgotten = forgotten
        self._prefix = "" if pipeline == ORIGINAL else f"{pipeline}/"
        self._erasing_about = SharedReads(self._erase_shown)
        self._before_of = SharedReads(self._read_before)

    async def erase(
        self,
        messages: Iterable[str],
        resting: Sequence[Resting],
        blobs: Sequence[BlobRef],
        cause: Delivery,
        up_to: str | None = None,
    ) -> list[Emitted]:
        """Erase what came from these messages and went into this memory.

        With `up_to`, a deletion that formation-trigger has seen: answers about windows that hold only later versions
        stay. Returns the records that take the place of others in topics kept until they are consumed.
        """
        formations = await self._formations(messages, up_to)
        members = [member for formation in formations for member in readers_of(formation)]
        rows = await self._deciding(members)
        following = [name for row in rows.values() for name in _following(row)]
        rows |= await self._deciding(following)
        rows |= await self._found("writes", _writes(resting, blobs))
        rows |= await self._found("members", await self._restating(resting))
        await self._erase_answers([*members, *following, *_questions(rows.values()), *_about(blobs)])
        await self._erase_answers_about(resting, cause)
        return await self._reduce(rows, cause)

    async def end_published(
        self, key: str, published: Sequence[Event], decided: Sequence[Delivery]
    ) -> list[Emitted]:
        """Erase from an outcome what was forgotten since its stage read the marks (invariant mark-read-write-mark).

        `published`: the events that the stage has just published; `decided`: the records that led to them, or to
        nothing. Returns the records to publish behind them; none, after one look-up, where nothing is forgotten. An
        answer that arrived after forgetting had looked for answers is deleted; that of a consolidation given up
        since, when its changes are decided at last.
        """
        asked = [delivery.event for delivery in decided]
        before = await self._before(asked)
        named = (concerned(published) | ids_of(None, before)).union(*map(asked_about, asked))
        marks = await self._forgotten.among(named)
        gone = [event for event in asked if showed_forgotten(event, marks) or marks.any_gone(before)]
        for event in gone[:1]:
            await self._erase_late(key, event, marks)
        retried = [delivery.event for delivery in decided if delivery.attempt > 1 and not published]
        changed = {event.scope.key for event in retried if isinstance(event, ScopeChanged)}
        await self._erase_late_blobs([*published, *asked], changed)
        if all(without_forgotten(event, marks) is event for event in published):
            return []
        return await self._reduce(await self._found("_id", [key]), decided[-1])

    async def _before(self, events: Iterable[Event | None]) -> list[SourceMessage]:
        """Return the messages before a window that was asked about: its events do not say who wrote them."""
        windows = [window for event in events if (window := window_of(event)) is not None and window.before]
        if not windows:
            return []
        (window,) = windows
        before = (await self._before_of.get([window.formation_id])).get(window.formation_id, ())
        return [_source(message, window.session_id) for message in before]

    async def _read_before(self, formation_ids: list[str]) -> Mapping[str, Sequence[Row]]:
        """Return the messages before windows: outcomes that are published at the same time share a query."""
        found = self._windows.find({"_id": {"$in": formation_ids}}, {"before": 1})
        return {row["_id"]: row.get("before", ()) async for row in found}

    async def _erase_late(self, key: str, event: Event | None, marks: Marks) -> None:
        """Delete the answers to an outcome's questions; about a window, those that were shown something forgotten."""
        units = [key, *_questions((await self._found("_id", [key])).values())]
        if (window := window_of(event)) is None:
            await self._erase_answers(units)
            return
        row = await self._windows.find_one({"_id": window.formation_id}, dict.fromkeys(WITH_TEXTS, 1)) or {}
        messages = [message for part in WITH_TEXTS for message in row.get(part, ())]
        gone = [
            message["message_id"]
            for message in messages
            if marks.gone_in(window, _source(message, window.session_id))
        ]
        await self._answers.delete_many({**_of_units(self._prefixed(units)), "shown": {"$in": gone}})

    async def _erase_late_blobs(self, events: Iterable[Event | None], scopes: Iterable[str]) -> None:
        """Delete the answers about these blob versions, or of these scopes, that showed a forgotten reflection."""
        blobs = [
            BlobRef(event.scope, event.version) for event in events if isinstance(event, ScopeConsolidated)
        ]
        units: list[Any] = [*_units(self._prefixed(_about(blobs))), *self._of_scopes(scopes)]
        if not units:
            return
        rows = await self._answers.find({"unit": {"$in": units}}, {"shown": 1}).to_list()
        named = {("reflection", name) for row in rows for name in row.get("shown", ())}
        marks = await self._forgotten.among(named)
        gone = [
            row["_id"]
            for row in rows
            if any(marks.entity_gone("reflection", name, 0) for name in row.get("shown", ()))
        ]
        if gone:
            await self._answers.delete_many({"_id": {"$in": gone}})

    async def _formations(self, messages: Iterable[str], up_to: str | None) -> list[str]:
        found: list[str] = []
        for some in _slices(messages):
            found += await self._windows.distinct("_id", of_messages(some, up_to))
        return list(dict.fromkeys(found))

    async def _restating(self, resting: Iterable[Resting]) -> list[str]:
        """Return the members of the ledger whose outcomes hold what these facts were stated anew by."""
        found: list[str] = []
        for some in _slices(name for memory in resting for name in memory.commands if is_restated(name)):
            named = self._erasures.find({"restated": {"$in": some}}, {"_id": 1})
            found += [f"forgetting:{row['_id']}" async for row in named]
        return found

    async def _deciding(self, members: Sequence[str]) -> dict[str, Row]:
        """Return the outcomes of these members of the ledger, and of dead letters that were sent again (`ID#1`)."""
        return await self._found("members", members) | await self._found("retry_of", members)

    async def _found(self, field: str, names: Iterable[str]) -> dict[str, Row]:
        rows: dict[str, Row] = {}
        for some in _slices(names):
            found = self._outcomes.find({field: {"$in": some}}, FOUND)
            rows |= {row["_id"]: row async for row in found}
        return rows

    async def _erase_answers(self, units: Iterable[str]) -> None:
        """Delete the answers to these questions, whichever attempt they are of, with the vectors made for them."""
        for some in _slices(units):
            await self._answers.delete_many(_of_units(self._prefixed(some)))

    def _prefixed(self, units: Iterable[str]) -> list[str]:
        return [self._prefix + unit for unit in units]

    async def _erase_answers_about(self, resting: Sequence[Resting], cause: Delivery) -> None:
        """Delete the answers to questions that showed forgotten reflections, whether they led to a blob or not."""
        assert isinstance(cause.event, Forgotten)
        found = reflections_of(cause.event, resting)
        await self._erasing_about.get((key, name) for key, names in found.items() for name in names)

    async def _erase_shown(self, reflections: list[tuple[str, str]]) -> Mapping[tuple[str, str], None]:
        shown: dict[str, list[str]] = {}
        for key, name in reflections:
            shown.setdefault(key, []).append(name)
        deletes: list[DeleteMany] = []
        for key, names in shown.items():
            units = [*self._of_scopes([key]), self._beside(key)]
            deletes.append(DeleteMany({"unit": {"$in": units}, "shown": {"$in": names}}))
        await self._answers.bulk_write(deletes, ordered=False)
        return {}

    def _of_scopes(self, keys: Iterable[str]) -> list[re.Pattern[str]]:
        """Return how the questions about what is absorbed in these scopes are found."""
        names = (f"{self._prefix}{stage}:{key}@" for key in keys for stage in ABSORBING)
        return [re.compile(f"^{re.escape(name)}") for name in names]

    def _beside(self, key: str) -> re.Pattern[str]:
        """Return how the questions about other scopes that may have shown what one absorbed are found."""
        kind, agent, *_ = key.split(":")
        return re.compile(f"^{re.escape(f'{self._prefix}propagation:{kind}:{agent}:')}")

    async def _events(self, names: Iterable[str]) -> list[_Stored]:
        """Return the events that outcomes hold; those whose records are removed hold none."""
        found: list[_Stored] = []
        for some in _slices(names):
            async for part in self._outcomes.find({"_id": {"$in": some}}):
                found += [event for event in _events_of(part) if event is not None]
        return found

    async def _reduce(self, rows: Mapping[str, Row], cause: Delivery) -> list[Emitted]:
        """Erase what is forgotten from the outcomes; begin again as long as somebody else changes them meanwhile."""
        names = [name for row in rows.values() for name in (row["_id"], *row.get("parts", ()))]
        while (again := await self._reduced(await self._events(names), cause)) is None:
            pass
        return again

    async def _reduced(self, stored: Sequence[_Stored], cause: Delivery) -> list[Emitted] | None:
        """Return the records to publish, also for what was erased before: its records may never have been stored.

        None: an outcome has changed since it was read.
        """
        events = [held.event for held in stored if held.event is not None]
        if not stored:
            return []
        marks = await self._forgotten.among(concerned(events))
        left = [None if held.event is None else without_forgotten(held.event, marks) for held in stored]
        both = list(zip(stored, left, strict=True))
        if not await self._replace([(held, kept) for held, kept in both if kept is not held.event]):
            return None
        ended = [
            published_again(kept, held.envelope, held.key, cause)
            for held, kept in both
            if kept is not held.event or held.erased
        ]
        return [record for record in ended if record is not None]

    async def _replace(self, reduced: Sequence[tuple[_Stored, Event | None]]) -> bool:
        """Store what is left of records; return whether all of them still were as they had been read."""
        parts: dict[str, list[tuple[_Stored, Event | None]]] = {}
        for held, left in reduced:
            parts.setdefault(held.part, []).append((held, left))
        writes = [_replacing(part, records) for part, records in parts.items()]
        for start in range(0, len(writes), TOGETHER):
            some = writes[start : start + TOGETHER]
            done = await self._outcomes.bulk_write(some, ordered=False)
            if done.matched_count < len(some):
                return False
        return True


def _replacing(part: str, reduced: Iterable[tuple[_Stored, Event | None]]) -> UpdateOne:
    """Return the write of all that is left of one document's records, if they are still as they were read."""
    read: Row = {"_id": part}
    written: Row = {}
    for held, left in reduced:
        at = f"records.{held.place}"
        read[f"{at}.v"] = held.value
        written |= {f"{at}.v": None if left is None else left.json_bytes(), f"{at}.erased": True}
        if held.envelope.name == ReflectionFormed.NAME and part.startswith(f"{REFLECTIONS}:"):
            written[f"{at}.{UNPUBLISHED}"] = (
                True  # its id follows from the window: no version to be kept free
            )
    return UpdateOne(read, {"$set": written})


def _source(message: Row, session_id: str) -> SourceMessage:
    named = {name: message.get(name) for name in ("message_id", "version", "user_id", "time")}
    return SourceMessage.model_construct(None, session_id=session_id, said_at=message.get("time"), **named)


def _of_units(units: Sequence[str]) -> Row:
    """Return the query for the answers to questions, whichever attempt they are of."""
    return {"unit": {"$in": _units(units)}}


def _units(units: Sequence[str]) -> list[str | re.Pattern[str]]:
    return [*units, *(re.compile(f"^{re.escape(unit)}[#/:]") for unit in units)]


def _slices(names: Iterable[str]) -> Iterator[list[str]]:
    """Yield the names, each once, as many at a time as one query takes."""
    every = list(dict.fromkeys(names))
    return (every[start : start + TOGETHER] for start in range(0, len(every), TOGETHER))


def _following(row: Row) -> list[str]:
    """Return the members that read what a fact extraction has published."""
    asked = [member.partition(":")[2] for member in row["members"] if member.startswith(f"{FACTS}:")]
    count = row["record_count"] if "record_count" in row else len(row["records"])
    return [
        f"{reader}:{event_id(cause, FACTS, number, int(retry or 0))}"
        for cause, _, retry in (member.partition("#") for member in asked)
        for number in range(count)
        for reader in ("fact-dedup", REFLECTIONS)
    ]


def _writes(resting: Iterable[Resting], blobs: Iterable[BlobRef]) -> list[str]:
    """Return the names under which the versions of memory were decided."""
    versions = (
        f"{memory.kind}:{memory.id}@{version}"
        for memory in resting
        for version in range(1, memory.versions + 1)
    )
    return [*versions, *(f"blob:{blob.name}" for blob in blobs)]


def _questions(rows: Iterable[Row]) -> list[str]:
    """Return the questions that were asked for decisions: each is named after the first that it is about."""
    return [row["members"][0] for row in rows if row["members"]]


def _about(blobs: Iterable[BlobRef]) -> list[str]:
    """Return the questions that blob versions came from, and those about what they absorbed."""
    return [f"{stage}:{blob.name}" for blob in blobs for stage in ABSORBING]


def _events_of(part: Row) -> list[_Stored | None]:
    return [_event(part["_id"], place, record) for place, record in enumerate(part.get("records", ()))]


def _event(part: str, place: int, record: Row) -> _Stored | None:
    """Read one record; None for one that was a tombstone from the beginning, and for memory erased before."""
    erased, value = bool(record.get("erased")), record["v"]
    if value is None and not erased:
        return None
    envelope = Envelope.of_headers((name, bytes(value)) for name, value in record["h"])
    if erased and envelope.name in MEMORY:
        return None
    event = None if value is None else decode(envelope.name, envelope.version, bytes(value))
    return _Stored(part, place, envelope, bytes(record["k"]).decode(), value, event, erased)
