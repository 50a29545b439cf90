"""MongoDB queries of forgetting: memory by its sources, messages, blob versions, and texts that wait."""

from asyncio import gather
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.listed_store import ListStore
from eden_memory.forgetting.forgetting_rules import (
    BlobRef,
    Blobs,
    Contradicted,
    ForgottenMessage,
    PinnedBlob,
    Resting,
    Slice,
    WithdrawnPins,
)
from eden_memory.forgetting.ledger_store import ForgottenLedgers
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.forgotten import Mark
from eden_memory.memory.memory_batch import statement
from eden_memory.mongo.client import majority
from eden_memory.mongo.transactions import SharedReads
from eden_memory.names import ORIGINAL, Names
from eden_memory.schemas.documents import Access, ApiKey, Erasure, FactStatement, StoredBlob
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Propagated, ScopeConsolidated, decode
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.usage.usage_store import MongoUsage
from eden_memory.windows.trigger_store import HELD, erase_window_texts

Row = dict[str, Any]
AT_ONCE = 1_000
"""Messages whose texts one update erases: each is looked for in every window that holds one of them."""
KINDS = ("fact", "reflection", "scope", "message")
"""In the order in which slices hold them; dead letters follow."""
LETTER = "letter"
MEMORY_FIELDS = (
    "scope_key",
    "agent_id",
    "sources",
    "formed_at",
    "said_at",
    "version",
    "retired_at",
    "retired_because",
    "replaced_by",
    "content",
    "history.content",
    "history.command.command_id",
    "command.command_id",
    "statements",
    "private",
    "expires_at",
)
FIELDS: Mapping[str, dict[str, int]] = {
    "fact": dict.fromkeys(MEMORY_FIELDS, 1),
    "reflection": dict.fromkeys(MEMORY_FIELDS, 1),
    "scope": dict.fromkeys(("agent_id", "audience", "session_id"), 1),
    "message": dict.fromkeys(("session_id", "version"), 1),
}
"""Of what slices are made from."""

ERASED = ("messages", "facts", "reflections", "blobs", "restated", "texts", "dead_letters", "leads_to")
"""Lists of an erasure."""


class MongoForgettingStore:
    """Finds what is to be forgotten in one namespace; erases texts that wait, never memory.

    Thousands of derived records come at once, and each concerns little: what they ask for shares queries.
    """

    def __init__(self, database: AsyncDatabase[Row], names: Names, pipeline: str = ORIGINAL) -> None:
        self.usage = MongoUsage(database, names)
        self._forgotten = marks = MongoForgetting(database, names)
        self.ledgers = ForgottenLedgers(database, names, marks, pipeline)
        self.letters = DeadLetters(database, names, marks)
        self._marks = majority(database, names["forgotten"])
        self._facts = majority(database, names["facts"])
        self._reflections = majority(database, names["reflections"])
        self._snapshots = majority(database, names["snapshots"])
        self._blobs = majority(database, names["blobs"])
        self._outcomes = majority(database, names["outcomes"])
        self._messages = majority(database, names["messages"])
        self._windows = majority(database, names["windows"])
        self._erasures = majority(database, names[Erasure.COLLECTION])
        self._keys = majority(database, names[ApiKey.COLLECTION])
        self._access = database[names[Access.COLLECTION]]
        self._lists = ListStore(database, names)
        self._reading_reflections = SharedReads(self._read_reflections)
        self._reading_scopes = SharedReads(self._read_scopes)
        self._reading_decided = SharedReads(self._read_decided)
        self._reading_absorbed = SharedReads(self._read_absorbed)
        self._reading_retired = SharedReads(self._read_retired)

    async def mark(self, marks: Iterable[Mark], event_id: str, at: datetime) -> None:
        """Store marks; a wider version or time takes the place of a narrower one, nothing else changes.

        Of an API key, no mark is stored: the key is revoked.
        """
        several = list(marks)
        await self._forgotten.mark((mark for mark in several if mark.kind != "key"), event_id, at)
        for key in (mark.target for mark in several if mark.kind == "key"):
            await self._keys.update_one({"_id": key, "revoked_at": None}, {"$set": {"revoked_at": at}})

    async def note(self, erasure: Erasure) -> None:
        """Store what a record has erased; a repeat adds what it finds besides."""
        row = erasure.stored()
        lists = {name: {"$each": list(row.pop(name))} for name in ERASED if row[name]}
        once = {name: value for name, value in row.items() if name not in (*ERASED, "_id")}
        change: Row = {"$setOnInsert": once, **({"$addToSet": lists} if lists else {})}
        await self._erasures.update_one({"_id": row["_id"]}, change, upsert=True)

    async def slice_of(self, mark: Mark, after: str | None, most: int) -> Slice:
        """Return up to `most` facts, reflections, scopes and messages, in this order, behind `<kind>/<id>`.

        A session's scope brings its reflections that name nothing forgotten. The last of these bring up to `most`
        dead letters.
        """
        begun, _, last = (after or f"{KINDS[0]}/").partition("/")
        if begun == LETTER:
            return await self._with_letters(Slice(), mark, last, most)
        rows: dict[str, list[Row]] = {}
        for kind in KINDS[KINDS.index(begun) :]:
            left = most - sum(map(len, rows.values()))
            rows[kind] = await self._rows(mark, kind, last if kind == begun else "", left)
            if len(rows[kind]) == left:
                break
        else:
            kind = None
        facts = await self._without_statements([_fact(row) for row in rows.get("fact", ())])
        scopes = [_own_scope(row) for row in rows.get("scope", ())]
        reflections = [*map(_reflection, rows.get("reflection", ())), *await self._unnamed(mark, scopes)]
        found = Slice(
            resting=[*facts, *reflections],
            scopes=scopes,
            told=[
                ForgottenMessage(row["_id"], row["session_id"], row["version"])
                for row in rows.get("message", ())
            ],
            last=f"{kind}/{rows[kind][-1]['_id']}" if kind is not None and rows[kind] else None,
        )
        return found if found.last else await self._with_letters(found, mark, "", most)

    async def _unnamed(self, mark: Mark, scopes: Iterable[Scope]) -> list[Resting]:
        """Return the reflections of sessions' scopes that `_named` does not find."""
        sessions = {scope.key: scope for scope in scopes if scope.kind == "session"}
        named = _named(mark, "reflection")
        if not sessions or named is None:
            return []
        others: Row = {"scope_key": {"$in": list(sessions)}, "$nor": [named]}
        rows = self._reflections.find(others, FIELDS["reflection"])
        return [_reflection(row, sessions[row["scope_key"]]) async for row in rows]

    async def erased(self, mark: Mark, after: str, most: int) -> bool:
        """Return whether the writer has erased the last `most` facts and reflections up to `<kind>/<id>`."""
        begun, _, last = after.partition("/")
        for kind, of in (("fact", self._facts), ("reflection", self._reflections)):
            if (query := _named(mark, kind)) is not None:
                up_to: Row = {"_id": {"$lte": last}} if kind == begun else {}
                rows = of.find({"$and": [query, up_to]}, {"_id": 1}).sort("_id", -1).limit(most)
                ended: Row = {"kind": kind, "target": {"$in": [row["_id"] async for row in rows]}}
                if await self._marks.find_one({**ended, "reach": "for_ever"}, {"_id": 1}) is not None:
                    return False
            if kind == begun:
                break
        return True

    async def _with_letters(self, found: Slice, mark: Mark, after: str, most: int) -> Slice:
        letters, last = await self.letters.naming(mark, after, most)
        return replace(found, letters=letters, last=None if last is None else f"{LETTER}/{last}")

    async def _without_statements(self, facts: Sequence[Resting]) -> list[Resting]:
        """Return the facts; of those that someone asked to forget, nothing is to be stated anew."""
        marked: Row = {"kind": "fact", "target": {"$in": [fact.id for fact in facts]}, "by_hand": True}
        ends = await self._marks.distinct("target", marked) if facts else []
        return [replace(fact, statements=()) if fact.id in ends else fact for fact in facts]

    async def _rows(self, mark: Mark, kind: str, last: str, most: int) -> list[Row]:
        """Return rows of one collection; a message whose deletion was seen has its tombstone already."""
        query = _meant(mark, kind)
        if query is None:
            return []
        of = {
            "fact": self._facts,
            "reflection": self._reflections,
            "scope": self._snapshots,
            "message": self._messages,
        }[kind]
        found = of.find({"$and": [query, {"_id": {"$gt": last}}]}, FIELDS[kind]).sort("_id").limit(most)
        return await found.to_list()

    async def propagated_from(self, reflection_ids: Iterable[str]) -> Sequence[Resting]:
        """Return the stored reflections that were propagated from these."""
        wanted = [Propagated.id_of(reflection_id) for reflection_id in reflection_ids]
        return list((await self._reading_reflections.get(wanted)).values())

    async def _read_reflections(self, names: list[str]) -> dict[str, Resting]:
        rows = self._reflections.find({"_id": {"$in": names}}, FIELDS["reflection"])
        return {row["_id"]: _reflection(row) async for row in rows}

    async def blob(self, name: str) -> Blobs:
        """Return the blob version `KEY@N`; nothing if it was never given."""
        blobs = Blobs()
        if (parsed := BlobRef.parse(name)) is None:
            return blobs
        key, version = parsed
        if (known := (await self._scopes([key])).get(key)) is None:
            return blobs
        scope, highest = known
        if version <= highest or await self._decided_as(name) is not None:
            blobs.holds(scope, version)
        return blobs

    async def absorbing(
        self,
        reflections: Mapping[str, Iterable[str]],
        event_id: str,
        own: Iterable[Scope] = (),
        until: datetime | None = None,
    ) -> Blobs:
        """Return for each scope the lowest blob version, stored or only decided, that lists any of these reflections.

        In the scopes `own`, every version that was made up to `until` counts. A version that another Forgotten record
        has marked does not: that record withdraws it and all later ones. The snapshots are read first: what is stored
        after that was decided before, and is found among the decided.
        """
        wanted = {key: set(names) for key, names in reflections.items()}
        mine = {scope.key for scope in own}
        scopes = await self._scopes({**wanted, **dict.fromkeys(mine)})
        found = await gather(
            *(
                self._holding(scope, highest, wanted.get(key, set()), until, own=key in mine)
                for key, (scope, highest) in scopes.items()
            )
        )
        stored = await self._made(mine, until)
        holding = [
            BlobRef(scope, version)
            for (key, (scope, _)), versions in zip(scopes.items(), found, strict=True)
            for version in sorted(versions | stored.get(key, set()))
        ]
        others = await self.marked_by_others([version.name for version in holding], event_id)
        blobs = Blobs()
        for version in holding:
            if version.name not in others:
                blobs.holds(version.scope, version.version)
        return blobs

    async def _holding(
        self, scope: Scope, highest: int, reflections: Set[str], until: datetime | None, *, own: bool
    ) -> set[int]:
        """Return the versions that list reflections; of an `own` scope also those decided and made up to `until`."""
        decided = {
            event.version
            async for event in self._decided(scope.key, highest)
            if reflections & set(event.absorbed)
            or (own and (until is None or event.consolidated_at <= until))
        }
        stored = await self._reading_absorbed.get((scope.key, name) for name in reflections)
        return {*decided, *chain.from_iterable(stored.values())}

    async def _made(self, keys: Iterable[str], until: datetime | None) -> dict[str, set[int]]:
        """Return the stored versions of scopes that were made up to `until`, by scope key."""
        made: Row = {"scope_key": {"$in": list(keys)}, "gone": False}
        if until is not None:
            made["consolidated_at"] = {"$lte": until}
        found: dict[str, set[int]] = {}
        if not made["scope_key"]["$in"]:
            return found
        async for row in self._blobs.find(made, {"scope_key": 1, "version": 1}):
            found.setdefault(row["scope_key"], set()).add(int(row["version"]))
        return found

    async def with_commands(self, blobs: Sequence[BlobRef]) -> list[BlobRef]:
        """Return blob versions with the commands that led to them; of those not stored, the writer knows it."""
        wanted: Row = {"_id": {"$in": [blob.name for blob in blobs]}, "command": {"$ne": None}}
        rows = self._blobs.find(wanted, {"command.command_id": 1}) if blobs else None
        behind = {} if rows is None else {row["_id"]: row["command"]["command_id"] async for row in rows}
        return [replace(blob, command=behind.get(blob.name)) for blob in blobs]

    async def withdrawn_pins(self, withdrawn: Iterable[BlobRef]) -> list[WithdrawnPins]:
        """Return what withdrawn blob versions pin, of scopes where they, or the version before them, pin anything."""
        by_scope: dict[str, list[BlobRef]] = {}
        for blob in withdrawn:
            by_scope.setdefault(blob.scope.key, []).append(blob)
        found = await gather(*(self._pins(blobs) for blobs in by_scope.values()))
        return [pins for pins in found if pins is not None]

    async def _pins(self, blobs: Sequence[BlobRef]) -> WithdrawnPins | None:
        key, numbers = blobs[0].scope.key, {blob.version for blob in blobs}
        stands: Row = {"scope_key": key, "gone": False}
        earlier = {**stands, "version": {"$lt": min(numbers)}}
        row = await self._blobs.find_one(earlier, sort=[("version", -1)])
        before = None if row is None else _pinned_blob(row)
        stored: Row = {**stands, "version": {"$in": list(numbers)}}
        pinning: Row = {**stored, "pins.0": {"$exists": True}}
        (_, highest) = (await self._scopes([key]))[key]
        versions = [
            PinnedBlob(event.version, event.text, event.pins, event.command)
            async for event in self._decided(key, highest)
            if event.version in numbers
        ]
        pins = any(blob.pins for blob in (before, *versions) if blob is not None)
        if not pins and await self._blobs.find_one(pinning, {"_id": 1}) is None:
            return None
        versions += [_pinned_blob(row) async for row in self._blobs.find(stored)]
        in_order = sorted(versions, key=lambda version: version.version)
        return WithdrawnPins(blobs[0].scope, in_order, before) if in_order else None

    async def _read_absorbed(self, wanted: list[tuple[str, str]]) -> dict[tuple[str, str], list[int]]:
        """Return the stored blob versions that absorbed reflections: scope key and reflection → versions."""
        names: dict[str, list[str]] = {}
        for key, name in wanted:
            names.setdefault(key, []).append(name)
        of_scopes: list[Row] = [
            {"scope_key": key, "absorbed": {"$in": of}, "gone": False} for key, of in names.items()
        ]
        found: dict[tuple[str, str], list[int]] = {pair: [] for pair in wanted}
        async for row in self._blobs.find(
            {"$or": of_scopes}, dict.fromkeys(("scope_key", "version", "absorbed"), 1)
        ):
            for pair in found.keys() & {(row["scope_key"], name) for name in row["absorbed"]}:
                found[pair].append(int(row["version"]))
        return found

    async def versions_from(self, blobs: Blobs) -> Sequence[BlobRef]:
        """Return each scope's blob versions from the lowest named one on, with those decided from one of them."""
        found: list[BlobRef] = []
        for key, (scope, highest) in (await self._scopes(blobs.lowest)).items():
            lowest = last = blobs.lowest[key]
            async for event in self._decided(key, highest):
                if event.version == lowest or event.based_on >= lowest:
                    last = event.version
            found += [BlobRef(scope, version) for version in range(lowest, max(highest, last) + 1)]
        return found

    async def marked_by_others(self, names: Iterable[str], event_id: str) -> set[str]:
        """Return the blob versions (`KEY@N`) that another Forgotten record has marked."""
        if not (wanted := list(names)):
            return set()
        query: Row = {"kind": "blob", "target": {"$in": wanted}, "event_id": {"$ne": event_id}}
        return {row["target"] async for row in self._marks.find(query, {"target": 1})}

    async def _scopes(self, keys: Iterable[str]) -> dict[str, tuple[Scope, int]]:
        """Return the scopes with the highest blob version ever stored."""
        return await self._reading_scopes.get(keys)

    async def _read_scopes(self, keys: list[str]) -> dict[str, tuple[Scope, int]]:
        rows = self._snapshots.find({"_id": {"$in": keys}}, {"agent_id": 1, "highest_blob_version": 1})
        return {
            row["_id"]: (
                Scope.of_key(row["_id"], row["agent_id"]),
                int(row.get("highest_blob_version", 0)),
            )
            async for row in rows
        }

    async def _decided(self, key: str, highest: int) -> AsyncGenerator[ScopeConsolidated]:
        """Yield the blob versions decided above the highest stored one."""
        version = highest
        while (event := await self._decided_as(f"{key}@{(version := version + 1)}")) is not None:
            yield event

    async def _decided_as(self, name: str) -> ScopeConsolidated | None:
        write = f"blob:{name}"
        return (await self._reading_decided.get([write])).get(write)

    async def _read_decided(self, writes: list[str]) -> dict[str, ScopeConsolidated | None]:
        rows = self._outcomes.find({"writes": {"$in": writes}}, {"writes": 1, "records": 1})
        return {write: _consolidated(row) async for row in rows for write in row["writes"]}

    async def contradicted_by(self, fact_ids: Iterable[str]) -> Sequence[Contradicted]:
        """Return the facts that were retired because one of these contradicted them."""
        return await self._retired_for(fact_ids, "contradicted")

    async def duplicates_of(self, fact_ids: Iterable[str]) -> Sequence[Contradicted]:
        """Return the facts that were retired because one of these says the same."""
        return await self._retired_for(fact_ids, "duplicate")

    async def _retired_for(self, fact_ids: Iterable[str], because: str) -> Sequence[Contradicted]:
        found = await self._reading_retired.get((name, because) for name in fact_ids)
        return list(chain.from_iterable(found.values()))

    async def _read_retired(self, wanted: list[tuple[str, str]]) -> dict[tuple[str, str], list[Contradicted]]:
        names, reasons = ({*of} for of in zip(*wanted, strict=True))
        query: Row = {
            "replaced_by": {"$in": list(names), "$gt": ""},
            "retired_because": {"$in": list(reasons)},
        }
        fields = (
            "scope_key",
            "agent_id",
            "version",
            "replaced_by",
            "valid_from",
            "history.valid_from",
            "hash",
            "decision",
            "retired_because",
        )
        found: dict[tuple[str, str], list[Contradicted]] = {}
        async for row in self._facts.find(query, dict.fromkeys(fields, 1)):
            found.setdefault((row["replaced_by"], row["retired_because"]), []).append(_contradicted(row))
        return found

    async def first_id_of(self, message_id: str) -> str:
        """Return the id under which memory names a message: its own, or the first of one that was written again."""
        row = await self._messages.find_one({"_id": message_id}, {"alias_of": 1})
        return message_id if row is None else row.get("alias_of") or message_id

    async def erase_texts(self, message_ids: Iterable[str], up_to: str | None) -> None:
        """Erase the texts of messages that wait or stand in closed windows, and note that they are forgotten.

        Of messages that their documents list, the digests by which edits are known are erased, too.

        With `up_to`, a deletion that formation-trigger has seen: only versions up to that one lose their text.
        """
        left = list(message_ids)
        if up_to is None:
            await self._lists.forget(left)
        gone: Row = {"text": None, "same": None, "digest": None}
        if up_to is None:
            gone |= {"place": None, "forgotten": True}
        of: Row = {} if up_to is None else {"version": {"$lte": up_to}}
        while left:
            named, left = left[:AT_ONCE], left[AT_ONCE:]
            await self._messages.update_many({"_id": {"$in": named}, **of}, {"$set": gone})
            await erase_window_texts(self._windows, named, up_to)

    async def erase_access(self, memories: Iterable[Resting]) -> None:
        """Delete how often searches have found these facts."""
        if facts := [memory.id for memory in memories if memory.kind == "fact"]:
            await self._access.delete_many({"_id": {"$in": facts}})

    async def erase_names(self, mark: Mark) -> None:
        """Erase what a forgotten user, or the users of a forgotten session, are called in windows that hold texts."""
        closed: Row = {} if mark.until is None else {"closed.at": {"$lte": mark.until}}
        if mark.kind == "session":
            of_session: Row = {"session_id": mark.target, "names": {"$exists": True}, **closed}
            await self._windows.update_many(of_session, {"$set": {"names": {}}})
        elif mark.kind == "user":
            name: Row = {"$getField": {"field": {"$literal": mark.target}, "input": "$names"}}
            naming: Row = {**HELD, "$expr": {"$ne": [{"$type": name}, "missing"]}, **closed}
            others: Row = {"$ne": ["$$this.k", {"$literal": mark.target}]}
            left: Row = {"$filter": {"input": {"$objectToArray": "$names"}, "cond": others}}
            kept = [{"$set": {"names": {"$arrayToObject": left}}}]
            await self._windows.update_many(naming, kept, hint=[("erase_after", 1)])


def _consolidated(row: Row) -> ScopeConsolidated | None:
    """Return the blob version of an outcome; None where its records are removed."""
    for record in row.get("records", ()):
        envelope = Envelope.of_headers((header, bytes(value)) for header, value in record["h"])
        if envelope.name == ScopeConsolidated.NAME and record["v"] is not None:
            event = decode(envelope.name, envelope.version, bytes(record["v"]))
            return event if isinstance(event, ScopeConsolidated) else None
    return None


def _pinned_blob(row: Mapping[str, Any]) -> PinnedBlob:
    blob = StoredBlob.model_validate(row, strict=False, extra="ignore")
    return PinnedBlob(blob.version, blob.content, blob.pins, blob.command)


def _meant(mark: Mark, kind: str) -> Row | None:
    """Return the query for the rows of a kind that slices hold; None where none of this kind can be meant."""
    match kind:
        case "message":
            return _messages(mark)
        case "scope":
            return _scopes_of(mark)
        case _:
            return _named(mark, kind)


def _scopes_of(mark: Mark) -> Row | None:
    """Return the query for the snapshots of scopes that belong to a session or user."""
    match mark.kind:
        case "session":
            return {"session_id": mark.target}
        case "user":
            return {"$or": [{"user_id": mark.target}, _only_user("audience", mark.target)]}
        case _:
            return None


def _only_user(field: str, user: str) -> Row:
    """Return the query for documents whose list of users names this one alone; an index finds the user."""
    return {field: user, f"{field}.1": {"$exists": False}}


def _messages(mark: Mark) -> Row | None:
    """Return the query for the stored messages that are meant."""
    field = {"message": "_id", "session": "session_id", "user": "user_id"}.get(mark.kind)
    if field is None or mark.reach == "up_to_version":
        return None
    of: Row = {field: mark.target}
    if mark.kind == "message":
        of = {"$or": [of, {"alias_of": mark.target}]}
    query: Row = {"$and": [of, {"session_id": {"$ne": None}}]}
    return query if mark.until is None else {**query, "time": {"$lte": mark.until}}


def _named(mark: Mark, kind: str) -> Row | None:
    """Return the query for memory that names it; None where none of this kind can."""
    match mark.kind:
        case "message":
            return {"message_ids": mark.target}
        case "session":
            return {"session_ids": mark.target}
        case "user":
            return {"$or": [{"sources.user_id": mark.target}, {"user_id": mark.target}]}
        case "fact" | "reflection":
            return {"_id": mark.target} if mark.kind == kind else None
        case "blob" | "key":
            return None


def _fact(row: Mapping[str, Any]) -> Resting:
    return Resting(
        "fact",
        row["_id"],
        _scope(row),
        _sources(row),
        row["formed_at"],
        versions=int(row["version"]),
        contradicted_by=row.get("replaced_by") if row.get("retired_because") == "contradicted" else None,
        texts=_texts(row),
        commands=_commands(row),
        private=row.get("private", False),
        statements=() if row.get("retired_at") is not None else _statements(row),
        expires_at=row.get("expires_at"),
    )


def _statements(row: Mapping[str, Any]) -> tuple[FactStatement, ...]:
    if row["version"] == 1:
        return (statement(1, row["content"], _sources(row), row["said_at"]),)
    return tuple(FactStatement.model_validate(said, strict=False) for said in row.get("statements", ()))


def _contradicted(row: Mapping[str, Any]) -> Contradicted:
    """Read a contradicted fact; it held since the version before, where there is one."""
    before = [version["valid_from"] for version in row.get("history", ())[:1]]
    return Contradicted(
        row["_id"],
        int(row["version"]),
        _scope(row),
        row["replaced_by"],
        min([row["valid_from"], *before]),
        row["hash"],
        updated=row["decision"] == "UPDATE",
    )


def _reflection(row: Mapping[str, Any], scope: Scope | None = None) -> Resting:
    return Resting(
        "reflection",
        row["_id"],
        scope or _scope(row),
        _sources(row),
        row["formed_at"],
        versions=int(row["version"]),
        texts=_texts(row),
        commands=_commands(row),
    )


def _commands(row: Mapping[str, Any]) -> frozenset[str]:
    behind = [version.get("command") for version in (row, *row.get("history", ()))]
    return frozenset(command["command_id"] for command in behind if command)


def _texts(row: Mapping[str, Any]) -> frozenset[str]:
    earlier = (version["content"] for version in row.get("history", ()))
    return frozenset([row["content"], *earlier, *(said["text"] for said in row.get("statements", ()))])


def _scope(row: Mapping[str, Any]) -> Scope:
    return Scope.of_key(row["scope_key"], row["agent_id"])


def _own_scope(row: Mapping[str, Any]) -> Scope:
    """Return the scope of a snapshot, with its audience where that is a list."""
    audience: Any = row.get("audience", ())
    return Scope.of_key(row["_id"], row["agent_id"], () if isinstance(audience, Mapping) else tuple(audience))


def _sources(row: Mapping[str, Any]) -> tuple[SourceMessage, ...]:
    return tuple(SourceMessage.model_validate(source) for source in row.get("sources", ()))
