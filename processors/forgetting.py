"""memory.forgotten → marks in MongoDB, tombstones: erases what came from a forgotten message, session, user or fact.

The mark stands before anything is looked for, and every other stage looks for marks: what is decided later, or is
on its way to the writer, is dropped there. The memory collections are changed by the writer alone, which reads the
tombstones.
"""

from collections.abc import Iterable, Sequence

from eden_memory.forgetting.contradicted import taken_up_again
from eden_memory.forgetting.forgetting_rules import (
    BlobVersion,
    ForgettingStore,
    Resting,
    follows,
    gone,
    mark_of,
    next_slice,
    reflections_of,
)
from eden_memory.forgotten import Forgetting as Marked
from eden_memory.forgotten import Mark, ids_of
from eden_memory.schemas.events import Forgotten
from eden_memory.stages.stage import Decision, Delivery, Emit

FORMED_FROM = ("message", "session", "user")
SLICE = 1_000


class Forgetting:
    """What still rests on other messages stays; taking it back to those is not done yet."""

    def __init__(self, store: ForgettingStore, marked: Marked, most: int = SLICE) -> None:
        """`most`: facts, reflections and messages of one decision together."""
        self._store, self._marked, self._slice = store, marked, most

    async def __call__(self, deliveries: Sequence[Delivery]) -> Decision:
        """One forgotten thing, or a slice of what belongs to it; a record of its own asks for the next slice."""
        (delivery,) = deliveries
        event = delivery.event
        assert isinstance(event, Forgotten)
        mark = mark_of(event)
        await self._mark([mark], delivery)
        if event.because == "derived":
            withdrawn = await self._withdrawn(delivery, event, ())
            return Decision(
                [
                    *follows(delivery, event, (), (), withdrawn),
                    *await self._taken_up_again(delivery, event, ()),
                ]
            )
        found = await self._store.slice_of(mark, event.after, self._slice)
        resting, told = await self._gone(mark, found.resting), found.told
        await self._mark((Mark(one.kind, one.id, "for_ever") for one in resting), delivery)
        withdrawn = await self._withdrawn(delivery, event, resting)
        await self._store.erase_texts([one.message_id for one in told] or _message(event), event.version)
        more = [next_slice(delivery, event, found.last)] if found.last is not None else []
        again = await self._taken_up_again(delivery, event, resting)
        return Decision([*follows(delivery, event, resting, told, withdrawn), *again, *more])

    async def _mark(self, marks: Iterable[Mark], delivery: Delivery) -> None:
        event = delivery.event
        assert isinstance(event, Forgotten)
        await self._store.mark(marks, delivery.id, event.forgotten_at)

    async def _gone(self, mark: Mark, resting: Sequence[Resting]) -> list[Resting]:
        """The facts and reflections that this leaves without any source, or that are meant themselves."""
        if mark.kind not in FORMED_FROM:
            return list(resting)
        named = {pair for one in resting for pair in ids_of(one.scope, one.sources)}
        return gone(resting, await self._marked.among(named))

    async def _taken_up_again(
        self, delivery: Delivery, event: Forgotten, resting: Sequence[Resting]
    ) -> list[Emit]:
        """What facts contradicted that are forgotten now: decided in the order of its scope, as all facts are."""
        gone = {one.id: one.contradicted_by for one in resting if one.kind == "fact"}
        if event.kind == "fact":
            gone.setdefault(event.id, None)
        if not gone:
            return []
        commands = taken_up_again(event, gone, await self._store.contradicted_by(gone))
        return [Emit(one, delivery, time=one.asked_at, identity=one.command_id) for one in commands]

    async def _withdrawn(
        self, delivery: Delivery, event: Forgotten, resting: Sequence[Resting]
    ) -> list[BlobVersion]:
        """Every blob version from the first one that absorbed what is forgotten, each with its mark.

        Looked for again once they are marked: what is decided from them later is dropped by the writer.
        """
        blobs = await self._store.absorbing(reflections_of(event, resting), delivery.id)
        if event.kind == "blob" and event.because != "derived":
            blobs = await self._store.blob(event.id)
        found: list[BlobVersion] = []
        while new := [one for one in await self._store.versions_from(blobs) if one not in found]:
            others = await self._store.marked_by_others([one.name for one in new], delivery.id)
            unmarked = [one for one in new if one.name not in others]
            await self._mark((Mark("blob", one.name, "for_ever") for one in unmarked), delivery)
            found += new
            blobs.handled.update(others)
        return [one for one in found if one.name not in blobs.handled]


def _message(event: Forgotten) -> list[str]:
    """A message that is no longer stored may still stand in a window."""
    return [event.id] if event.kind == "message" else []
