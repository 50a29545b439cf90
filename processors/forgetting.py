"""memory.forgotten → marks in MongoDB, tombstones: erases what came from a forgotten message, session, user or fact.

The mark stands before anything is looked for, and every other stage looks for marks: what is decided later, or is
on its way to the writer, is dropped there. The memory collections are changed by the writer alone, which reads the
tombstones.
"""

from collections.abc import Iterable, Sequence

from eden_memory.domain.forgetting.forgetting import (
    BlobVersion,
    Resting,
    follows,
    gone,
    mark_of,
    reflections_of,
)
from eden_memory.domain.forgetting.forgotten import Mark, ids_of
from eden_memory.domain.stage import Decision, Delivery
from eden_memory.ports import Forgetting as Marked
from eden_memory.ports import ForgettingStore
from schemas.events import Forgotten

FORMED_FROM = ("message", "session", "user")


class Forgetting:
    """What still rests on other messages stays; taking it back to those is not done yet."""

    def __init__(self, store: ForgettingStore, marked: Marked) -> None:
        self._store, self._marked = store, marked

    async def __call__(self, deliveries: Sequence[Delivery]) -> Decision:
        """One forgotten thing."""
        (delivery,) = deliveries
        event = delivery.event
        assert isinstance(event, Forgotten)
        mark = mark_of(event)
        await self._mark([mark], delivery)
        if event.because == "derived":
            return Decision(follows(delivery, event, (), (), await self._withdrawn(delivery, event, ())))
        resting = await self._gone(mark)
        told = await self._store.messages_of(mark)
        await self._mark((Mark(one.kind, one.id, "for_ever") for one in resting), delivery)
        withdrawn = await self._withdrawn(delivery, event, resting)
        await self._store.erase_texts([one.message_id for one in told] or _message(event))
        return Decision(follows(delivery, event, resting, told, withdrawn))

    async def _mark(self, marks: Iterable[Mark], delivery: Delivery) -> None:
        event = delivery.event
        assert isinstance(event, Forgotten)
        await self._store.mark(marks, delivery.id, event.forgotten_at)

    async def _gone(self, mark: Mark) -> list[Resting]:
        """The facts and reflections that this leaves without any source, or that are meant themselves."""
        resting = await self._store.resting_on(mark)
        if mark.kind not in FORMED_FROM:
            return list(resting)
        named = {pair for one in resting for pair in ids_of(one.scope, one.sources)}
        return gone(resting, await self._marked.among(named))

    async def _withdrawn(
        self, delivery: Delivery, event: Forgotten, resting: Sequence[Resting]
    ) -> list[BlobVersion]:
        """Every blob version from the first one that absorbed what is forgotten, each with its mark.

        Looked for again once they are marked: what is decided from them later is dropped by the writer.
        """
        blobs = await self._store.absorbing(reflections_of(event, resting))
        if event.kind == "blob" and event.because != "derived":
            blobs = await self._store.blob(event.id)
        found: list[BlobVersion] = []
        while new := [one for one in await self._store.versions_from(blobs) if one not in found]:
            others = await self._store.marked_by_others([one.name for one in new], delivery.id)
            await self._mark((Mark("blob", one.name, "for_ever") for one in new), delivery)
            found += new
            blobs.handled.update(others)
        return [one for one in found if one.name not in blobs.handled]


def _message(event: Forgotten) -> list[str]:
    """A message that is no longer stored may still stand in a window."""
    return [event.id] if event.kind == "message" else []
