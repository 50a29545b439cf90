"""memory.forgotten → marks in MongoDB, tombstones: erases what came from a forgotten message, session, user or fact.

The mark stands before anything is looked for, and every other stage looks for marks: what is decided later, or is
on its way to the writer, is dropped there. The memory collections are changed by the writer alone, which reads the
tombstones.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from eden_memory.forgetting.forgetting_rules import (
    BlobRef,
    Resting,
    follows,
    gone,
    mark_of,
    next_slice,
    reflections_of,
    taken_up_again,
)
from eden_memory.forgotten import ForgottenMarks, Mark, ids_of
from eden_memory.schemas.events import Forgotten
from eden_memory.stages.stage import Decision, Delivery, Emit

if TYPE_CHECKING:  # the driver stays out of a processor
    from eden_memory.forgetting.forgetting_store import MongoForgettingStore

FORMED_FROM = ("message", "session", "user")
SLICE = 1_000


class ForgettingStage:
    """Forgets what rests on nothing else; memory that still rests on other messages stays as it is."""

    def __init__(self, store: "MongoForgettingStore", forgotten: ForgottenMarks, most: int = SLICE) -> None:
        """`most`: the facts, reflections and messages of one decision, taken together."""
        self._store, self._forgotten, self._slice = store, forgotten, most

    async def __call__(self, deliveries: Sequence[Delivery]) -> Decision:
        """Forget one thing, or a slice of what belongs to it; a record of its own asks for the next slice."""
        (delivery,) = deliveries
        event = delivery.event
        assert isinstance(event, Forgotten)
        mark = mark_of(event)
        await self._mark([mark], delivery)
        if event.because == "derived":
            made = await self._with_propagated(event, ())
            await self._mark((Mark(memory.kind, memory.id, "for_ever") for memory in made), delivery)
            withdrawn = await self._withdrawn(delivery, event, made)
            return Decision(
                [
                    *follows(delivery, event, made, (), withdrawn),
                    *await self._taken_up_again(delivery, event, ()),
                ]
            )
        found = await self._store.slice_of(mark, event.after, self._slice)
        resting = await self._with_propagated(event, await self._gone(mark, found.resting))
        told = found.told
        await self._mark((Mark(memory.kind, memory.id, "for_ever") for memory in resting), delivery)
        withdrawn = await self._withdrawn(delivery, event, resting)
        await self._store.erase_texts(
            [message.message_id for message in told] or _message(event), event.version
        )
        more = [next_slice(delivery, event, found.last)] if found.last is not None else []
        again = await self._taken_up_again(delivery, event, resting)
        return Decision([*follows(delivery, event, resting, told, withdrawn), *again, *more])

    async def _mark(self, marks: Iterable[Mark], delivery: Delivery) -> None:
        event = delivery.event
        assert isinstance(event, Forgotten)
        await self._store.mark(marks, delivery.id, event.forgotten_at)

    async def _gone(self, mark: Mark, resting: Sequence[Resting]) -> list[Resting]:
        """Return the facts and reflections that are meant themselves, or that this leaves without any source."""
        if mark.kind not in FORMED_FROM:
            return list(resting)
        named = {pair for memory in resting for pair in ids_of(memory.scope, memory.sources)}
        return gone(resting, await self._forgotten.among(named))

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
        self, delivery: Delivery, event: Forgotten, resting: Sequence[Resting]
    ) -> list[Emit]:
        """Return commands for facts that only forgotten facts contradicted; dedup decides them in order."""
        gone = {memory.id: memory.contradicted_by for memory in resting if memory.kind == "fact"}
        if event.kind == "fact":
            gone.setdefault(event.id, None)
        if not gone:
            return []
        commands = taken_up_again(event, gone, await self._store.contradicted_by(gone))
        return [
            Emit(command, delivery, time=command.asked_at, identity=command.command_id)
            for command in commands
        ]

    async def _withdrawn(
        self, delivery: Delivery, event: Forgotten, resting: Sequence[Resting]
    ) -> list[BlobRef]:
        """Mark and return every blob version from the first one that absorbed what is forgotten.

        Looked for again once they are marked: what is decided from them later is dropped by the writer.
        """
        blobs = await self._store.absorbing(reflections_of(event, resting), delivery.id)
        if event.kind == "blob" and event.because != "derived":
            blobs = await self._store.blob(event.id)
        found: list[BlobRef] = []
        while new := [version for version in await self._store.versions_from(blobs) if version not in found]:
            others = await self._store.marked_by_others([blob.name for blob in new], delivery.id)
            unmarked = [blob for blob in new if blob.name not in others]
            await self._mark((Mark("blob", blob.name, "for_ever") for blob in unmarked), delivery)
            found += new
            blobs.handled.update(others)
        return [blob for blob in found if blob.name not in blobs.handled]


def _message(event: Forgotten) -> list[str]:
    """Return the id of a forgotten message, which may stand in a window though it is stored no longer."""
    return [event.id] if event.kind == "message" else []
