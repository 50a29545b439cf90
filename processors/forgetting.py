"""memory.forgotten → marks in MongoDB, tombstones: erases what came from a forgotten message, session, user or fact.

An API key is revoked; that is all of it.

The mark is stored before anything is looked for (invariant mark-read-write-mark). Only the writer changes the memory
collections: it reads the tombstones.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from eden_memory.forgetting.forgetting_rules import (
    BlobRef,
    Resting,
    erasure_of,
    follows,
    gone,
    held_again,
    mark_of,
    next_slice,
    reflections_of,
    restored_pins,
    stated_anew,
    taken_up_again,
    takes_its_place,
    text_hash,
)
from eden_memory.forgotten import ForgottenMarks, Mark, ids_of
from eden_memory.schemas.events import FactCommanded, Forgotten
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Decision, Delivery, Emit, Gather
from eden_memory.usage.budget_rules import Spending, concerned

if TYPE_CHECKING:  # the driver stays out of a processor
    from eden_memory.forgetting.forgetting_store import MongoForgettingStore

FORMED_FROM = ("message", "session", "user")
SLICE = 500
LOOK_AGAIN, PATIENCE = 0.1, 10.0
"""Seconds between two looks at whether the slice before is erased; so long the next one waits for that at most."""


class ForgettingStage:
    """Forgets what rests on it; what else facts were merged from is stated anew, in their scope's order."""

    def __init__(
        self,
        store: "MongoForgettingStore",
        forgotten: ForgottenMarks,
        most: int = SLICE,
        budgets: Callable[[], Awaitable[Mapping[str, Spending]]] | None = None,
        secret: bytes = b"",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most`: the facts, reflections and messages of one decision, taken together.

        `budgets`: a model decides what is left of a merged fact unless one of them is spent; None: no model does.
        `secret`: of the installation; it keys the hashes of erased texts.
        """
        self._store, self._forgotten, self._slice, self._budgets = store, forgotten, most, budgets
        self._hashed = partial(text_hash, secret)
        self._clock = clock
        self._waiting: dict[str, float] = {}
        """What is forgotten in slices and waits for the writer, and since when."""

    async def __call__(self, deliveries: Sequence[Delivery]) -> Decision | Gather:
        """Forget one thing, or a slice of what belongs to it; a record of its own asks for the next slice.

        A slice waits until the one before is erased: live traffic never stands behind more than one.
        """
        (delivery,) = deliveries
        event = delivery.event
        assert isinstance(event, Forgotten)
        asked = mark = mark_of(event)
        if event.kind == "message":
            mark = replace(asked, target=await self._store.first_id_of(event.id))
        if event.after is not None and await self._waits(event, mark, event.after):
            return Gather(LOOK_AGAIN)
        await self._mark(dict.fromkeys((asked, mark)), delivery)
        if event.kind == "key":
            return Decision(())
        return await (self._follow if event.because == "derived" else self._forget)(delivery, event, mark)

    async def _follow(self, delivery: Delivery, event: Forgotten, mark: Mark) -> Decision:
        """Forget once more what another record has led to: it finds what was decided meanwhile."""
        made = await self._with_propagated(event, ())
        await self._mark((Mark(memory.kind, memory.id, "for_ever") for memory in made), delivery)
        withdrawn = await self._withdrawn(delivery, event, made)
        ledgers = await self._store.ledgers.erase((), made, withdrawn, delivery)
        again = await self._taken_up_again(delivery, event, ())
        events = [*follows(delivery, event, made, (), withdrawn), *ledgers, *again]
        letters, _ = await self._store.letters.naming(mark)
        if events or letters:
            await self._store.note(erasure_of(delivery, made, (), withdrawn, letters, events, self._hashed))
        await self._store.letters.erase(letters)
        return Decision(events)

    async def _forget(self, delivery: Delivery, event: Forgotten, mark: Mark) -> Decision:
        """Forget a slice of what was asked for."""
        if event.kind in ("session", "user") and event.until is not None and event.after is None:
            await self._store.usage.reduce(event.kind, event.id, event.until)
        found = await self._store.slice_of(mark, event.after, self._slice)
        reached, anew = await self._reached(event, mark, found.resting)
        resting = await self._with_propagated(event, reached)
        told = found.told
        await self._mark((Mark(memory.kind, memory.id, "for_ever") for memory in resting), delivery)
        withdrawn = await self._withdrawn(delivery, event, resting, found.scopes)
        messages = [message.message_id for message in told] or _message(mark)
        await self._store.erase_texts(messages, event.version)
        # At the end again, for windows that were asked for meanwhile.
        if event.after is None or found.last is None:
            await self._store.erase_names(mark)
        await self._store.erase_access(resting)
        ledgers = await self._store.ledgers.erase(messages, resting, withdrawn, delivery, event.version)
        more = [next_slice(delivery, event, found.last)] if found.last is not None else []
        if not more:
            self._waiting.pop(_root(event), None)
        again = await self._taken_up_again(delivery, event, resting, anew)
        derived = follows(delivery, event, resting, told, withdrawn)
        pins = await self._pins_again(delivery, event, resting, withdrawn, found.scopes)
        events = [*derived, *ledgers, *again, *pins, *more]
        note = erasure_of(delivery, resting, messages, withdrawn, found.letters, events, self._hashed)
        await self._store.note(note)
        await self._store.letters.erase(found.letters)  # behind the note: a repeat finds them no more
        return Decision(events)

    async def _waits(self, event: Forgotten, mark: Mark, after: str) -> bool:
        """Return whether what the slice before ended is still to be erased, and this one may wait for that.

        While the writer stands still, the slices of one forgetting wait for it together, not each for itself.
        """
        name = _root(event)
        if await self._store.erased(mark, after, self._slice):
            self._waiting.pop(name, None)
            return False
        return self._clock() < self._waiting.setdefault(name, self._clock()) + PATIENCE

    async def _mark(self, marks: Iterable[Mark], delivery: Delivery) -> None:
        event = delivery.event
        assert isinstance(event, Forgotten)
        await self._store.mark(marks, delivery.id, event.forgotten_at)

    async def _reached(
        self, event: Forgotten, mark: Mark, resting: Sequence[Resting]
    ) -> tuple[list[Resting], list[FactCommanded]]:
        """Return the facts and reflections that are meant or rest on it, and commands that state the rest anew."""
        if mark.kind not in FORMED_FROM:
            return list(resting), []
        named = {pair for memory in resting for pair in ids_of(memory.scope, memory.sources)}
        marks = await self._forgotten.among(named)
        reached = gone(resting, marks)
        budgets = await self._budgets() if self._budgets is not None else None
        return reached, stated_anew(event, reached, marks, partial(_decides, budgets))

    async def _with_propagated(self, event: Forgotten, resting: Sequence[Resting]) -> list[Resting]:
        """Return the memory with all reflections that were propagated from it, or from what the record names."""
        found = {memory.id: memory for memory in resting}
        sources = [event.id] if event.kind == "reflection" else []
        sources += [memory.id for memory in resting if memory.kind == "reflection"]
        while sources:
            made = await self._store.propagated_from(sources)
            sources = [memory.id for memory in made if memory.id not in found]
            found |= {memory.id: memory for memory in made}
        return list(found.values())

    async def _taken_up_again(
        self,
        delivery: Delivery,
        event: Forgotten,
        resting: Sequence[Resting],
        anew: Sequence[FactCommanded] = (),
    ) -> list[Emit]:
        """Return what is stated anew, then commands for facts that only forgotten facts contradicted or repeated.

        Dedup decides them in this order.
        """
        gone = {memory.id: takes_its_place(memory, anew) for memory in resting if memory.kind == "fact"}
        if event.kind == "fact":
            gone.setdefault(event.id, None)
        if not gone:
            return []
        commands = [*anew, *taken_up_again(event, gone, await self._store.contradicted_by(gone))]
        commands += held_again(event, resting, await self._store.duplicates_of(gone))
        return [
            Emit(command, delivery, time=command.asked_at, identity=command.command_id)
            for command in commands
        ]

    async def _pins_again(
        self,
        delivery: Delivery,
        event: Forgotten,
        resting: Iterable[Resting],
        withdrawn: Sequence[BlobRef],
        own: Iterable[Scope],
    ) -> list[Emit]:
        """Return commands that restore what people pinned and unpinned in withdrawn versions of others' blobs."""
        blobs = await self._store.withdrawn_pins(withdrawn)
        texts = (text for memory in resting for text in memory.texts)
        commands = restored_pins(event, blobs, {scope.key for scope in own}, texts)
        return [
            Emit(command, delivery, time=command.asked_at, identity=command.command_id)
            for command in commands
        ]

    async def _withdrawn(
        self, delivery: Delivery, event: Forgotten, resting: Sequence[Resting], own: Sequence[Scope] = ()
    ) -> list[BlobRef]:
        """Mark and return every blob version from the first one that absorbed what is forgotten.

        Of the scopes `own`, which belong to what is forgotten, so is every version made up to then: an imported or
        edited text absorbs nothing. Looked for again once they are marked: what is decided from them later is dropped
        by the writer.
        """
        blobs = await self._store.absorbing(reflections_of(event, resting), delivery.id, own, event.until)
        if event.kind == "blob" and event.because != "derived":
            blobs = await self._store.blob(event.id)
        found: dict[str, BlobRef] = {}
        while new := [blob for blob in await self._store.versions_from(blobs) if blob.name not in found]:
            others = await self._store.marked_by_others([blob.name for blob in new], delivery.id)
            unmarked = [blob for blob in new if blob.name not in others]
            await self._mark((Mark("blob", blob.name, "for_ever") for blob in unmarked), delivery)
            found |= {blob.name: blob for blob in new}
            blobs.handled.update(others)
        withdrawn = [blob for name, blob in found.items() if name not in blobs.handled]
        return await self._store.with_commands(withdrawn)


def _root(event: Forgotten) -> str:
    """Return what all slices of one forgetting have in common."""
    return event.caused_by or event.key()


def _decides(budgets: Mapping[str, Spending] | None, scope: Scope) -> bool:
    """Return whether a model may be asked about what is left of a fact of this scope."""
    if budgets is None:
        return False
    return not any(budget.full for budget in concerned(budgets, scope.agent_id, scope.user_id))


def _message(mark: Mark) -> list[str]:
    """Return the id of a forgotten message, which may stand in a window though it is stored no longer."""
    return [mark.target] if mark.kind == "message" else []
