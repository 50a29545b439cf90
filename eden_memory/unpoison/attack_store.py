"""Memory of an attack in the live namespace, its receipts, and the requests that undo it, in one transaction."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from re import escape
from typing import Any, cast

from bson import ObjectId
from pymongo import ReplaceOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import Conflict, NotFound
from eden_memory.mongo.ids import encode_id
from eden_memory.mongo.transactions import Transactions
from eden_memory.observability.lineage_store import versions_in
from eden_memory.receipts.receipt import CAUSED_BY, Receipt, UndoRequest
from eden_memory.receipts.receipt_store import PATIENCE, signed_receipt
from eden_memory.replay.installation import Installation
from eden_memory.schemas.documents import (
    CountedCall,
    Fact,
    InboxForget,
    Message,
    Reflection,
    Snapshot,
    WindowTexts,
)
from eden_memory.schemas.events import FormationRequested
from eden_memory.source.inbox_store import ForgetRequests
from eden_memory.unpoison.attack_rules import Attack, AttackPlan, CauseKind, plan_of, requests_of

Row = dict[str, Any]
LOOK_SECONDS = 0.3
FIELDS = {
    "message": "message_ids",
    "session": "session_ids",
    "user": "sources.user_id",
    "import": "message_ids",
}
"""Where a fact or reflection names the cause."""


@dataclass(frozen=True, slots=True)
class AttackUndo:
    """Finds what an attack led to, and requests that it is undone; a repeat requests what is left."""

    at: Installation

    async def named(self, kind: CauseKind, name: str) -> Attack:
        """Return the attack of this name; raises NotFound if nothing has it."""
        if kind in ("import", "call"):
            return Attack(kind, name)
        requests = ForgetRequests(self.at.source, self.at.database, self.at.settings, None)
        return Attack(kind, encode_id(await requests.target(kind, name)))

    async def plan(self, attack: Attack) -> AttackPlan:
        """Return what changes now if the attack is undone; Kafka is read only where memory names the attack."""
        if not (keys := await self._scope_keys(attack)):
            return AttackPlan()
        return plan_of(attack, await versions_in(self.at, keys), datetime.now(UTC))

    async def ask(self, attack: Attack, plan: AttackPlan, by: str | None) -> str:
        """Request all that a plan says, or nothing at all; return the typed id of the whole, for its receipt."""
        requests = requests_of(attack, plan, await self._messages(attack), by)
        inbox = self.at.source[self.at.settings.names[InboxForget.COLLECTION]]
        new = [request for request in requests if "_id" not in request]
        undo = UndoRequest.of(attack.kind, attack.id, str(ObjectId()), len(new))
        forgets = [{"_id": name, **request} for name, request in zip(undo.inbox_ids, new, strict=True)]
        edits = [request for request in requests if "_id" in request]
        writes = [ReplaceOne({"_id": request["_id"]}, request, upsert=True) for request in (*forgets, *edits)]

        async def write(session: AsyncClientSession) -> None:
            if writes:
                await inbox.bulk_write(writes, session=session)

        await Transactions(self.at.database.client).run(write)
        return undo.request_id

    async def finish(self, attack: Attack, plan: AttackPlan, by: str | None) -> None:
        """Return once nothing of the attack is left; a fact that holds again may have a text to restore, too.

        Only the memory that the plan names is read again and again; for the rest all is planned anew after that.
        """
        while await self._stands(plan):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(LOOK_SECONDS)
        while left := await self._left(attack):
            waits = attack.kind != "call" or left.removed or left.reflections or left.returning
            if left.restored and not waits:
                await self.ask(attack, AttackPlan(restored=left.restored), by)
            await asyncio.sleep(LOOK_SECONDS)

    async def _stands(self, plan: AttackPlan) -> bool:
        """Return whether any memory that a plan removes or changes is still stored as it was."""
        changed = {
            fact.fact_id: fact.version
            for fact in (*(restored.fact for restored in plan.restored), *plan.returning)
        }
        old = [{"_id": name, "version": version} for name, version in changed.items()]
        removed = {"_id": {"$in": [fact.fact_id for fact in plan.removed]}}
        formed = {"_id": {"$in": [found.reflection_id for found in plan.reflections]}}
        return (
            await self._of(Fact).find_one({"$or": [removed, *old]}, {"_id": 1}) is not None
            or await self._of(Reflection).find_one(formed, {"_id": 1}) is not None
        )

    async def _left(self, attack: Attack) -> AttackPlan:
        """Return what is left to undo once the tailer has carried the requests."""
        inbox = self.at.source[self.at.settings.names[InboxForget.COLLECTION]]
        waiting = {"kind": {"$in": ["forget", "fact_command"]}}
        while await inbox.find_one(waiting, {"_id": 1}) is not None:  # noqa: ASYNC110 - another process removes it
            await asyncio.sleep(LOOK_SECONDS)
        return await self.plan(attack)

    async def _scope_keys(self, attack: Attack) -> list[str]:
        """Return the scopes that the attack may have changed."""
        if attack.kind == "call":
            return await self._with_broader(await self._scopes_of_call(attack.id))
        query = {FIELDS[attack.kind]: _named(attack)}
        found = [await self._of(document).distinct("scope_key", query) for document in (Fact, Reflection)]
        if attack.kind == "import":
            commands = {"command.command_id": _named(attack)}
            found += [
                await self._of_name(name).distinct("scope_key", commands) for name in ("blobs", "facts")
            ]
        return sorted({key for keys in found for key in keys})

    async def _scopes_of_call(self, call_id: str) -> list[str]:
        """Return the scopes of the call's formation, or the one that it decided about; NotFound for no such call."""
        call = await self._of(CountedCall).find_one({"_id": call_id})
        if call is None:
            raise NotFound(
                f"no call {call_id!r} is counted", "`eden trace` of a memory shows the calls behind it."
            )
        if call.get("scope"):
            return [call["scope"]]
        window = await self._of(WindowTexts).find_one({"_id": call.get("formation_id")}, {"requested": 1})
        if window is None or window["requested"] is None:
            return await self._of(Snapshot).distinct("_id", {"agent_id": call.get("agent_id")})
        request = FormationRequested.model_validate_json(window["requested"], extra="ignore")
        return [scope.key for scope in request.scopes]

    async def _with_broader(self, scope_keys: Iterable[str]) -> list[str]:
        """Return these scopes and all that memory was propagated to from them, step by step."""
        found = new = set(scope_keys)
        while new:
            query: Row = {"propagated_scope": {"$in": list(new), "$gt": ""}}
            new = set(await self._of(Reflection).distinct("scope_key", query)) - found
            found |= new
        return sorted(found)

    async def _messages(self, attack: Attack) -> Iterable[str]:
        """Return the ids of an import's items, typed: messages, and what its memory names as messages."""
        if attack.kind != "import":
            return ()
        messages: Sequence[str] = await self._of(Message).distinct("_id", {"_id": _named(attack)})
        named = [
            message
            for document in (Fact, Reflection)
            for message in await self._of(document).distinct("message_ids", {"message_ids": _named(attack)})
            if message.startswith(attack.import_prefix)
        ]
        return sorted({*messages, *named})

    def _of(self, document: Any) -> Any:
        return self._of_name(document.COLLECTION)

    def _of_name(self, name: str) -> Any:
        database: AsyncDatabase[Row] = self.at.database
        return database[self.at.settings.names[name]]


def _named(attack: Attack) -> Any:
    """Return the query of a field that names the attack."""
    return {"$regex": f"^{escape(attack.import_prefix)}"} if attack.kind == "import" else attack.id


async def receipt_of_undo(
    at: Installation, request_id: str, patience: float = PATIENCE, *, in_topics: bool = True
) -> Receipt:
    """Return the signed receipt of an undo, as `signed_receipt` does; Conflict while memory rests on the attack."""
    receipt = await signed_receipt(at, request_id, patience, in_topics=in_topics)
    cause = cast("CauseKind", receipt.asked.kind.removeprefix(CAUSED_BY))
    if await AttackUndo(at).plan(Attack(cause, receipt.asked.target)):
        raise Conflict("memory rests on the attack still", "Preview the undo again, and undo what is left.")
    return receipt
