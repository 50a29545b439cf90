"""memory.forgotten → marks in MongoDB, tombstones: erases what came from a forgotten message, session, user or fact.

The mark stands before anything is looked for, and every other stage looks for marks: what is decided later, or is
on its way to the writer, is dropped there. The memory collections are changed by the writer alone, which reads the
tombstones.
"""

from collections.abc import Sequence

from eden_memory.domain.forgetting import Resting, blobs_of, follows, gone, mark_of
from eden_memory.domain.forgotten import Mark, ids_of
from eden_memory.domain.stage import Decision, Delivery
from eden_memory.ports import Forgetting as Marked
from eden_memory.ports import ForgettingStore
from schemas.events import Forgotten
from schemas.scopes import Scope

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
        await self._store.mark([mark_of(event)], delivery.id, event.forgotten_at)
        if event.because == "derived":
            return Decision(())
        resting = await self._gone(mark_of(event))
        withdrawn = await self._withdrawn(event, resting)
        told = await self._store.messages_of(mark_of(event))
        derived = [Mark(one.kind, one.id, "for_ever") for one in resting]
        derived += [Mark("blob", f"{scope.key}@{version}", "for_ever") for scope, version in withdrawn]
        await self._store.mark(derived, delivery.id, event.forgotten_at)
        await self._store.erase_texts([one.message_id for one in told] or _message(event))
        return Decision(follows(delivery, event, resting, told, withdrawn))

    async def _gone(self, mark: Mark) -> list[Resting]:
        """The facts and reflections that this leaves without any source, or that are meant themselves."""
        resting = await self._store.resting_on(mark)
        if mark.kind not in FORMED_FROM:
            return list(resting)
        named = {pair for one in resting for pair in ids_of(one.scope, one.sources)}
        return gone(resting, await self._marked.among(named))

    async def _withdrawn(self, event: Forgotten, resting: Sequence[Resting]) -> Sequence[tuple[Scope, int]]:
        """Every blob version from the first one that absorbed what is forgotten."""
        blobs = blobs_of(resting)
        if event.kind == "blob":
            blobs = await self._store.blob(event.id)
        return await self._store.versions_from(blobs)


def _message(event: Forgotten) -> list[str]:
    """A message that is no longer stored may still stand in a window."""
    return [event.id] if event.kind == "message" else []
