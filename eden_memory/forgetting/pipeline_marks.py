"""Derived Forgotten records belong to one pipeline: the same id names different memory in another.

`memory.forgotten` is shared, so ids of derived records bear the pipeline that they are of; the marks that they stand
for are kept by each pipeline by itself. Messages, sessions and users, and what was asked for, concern all.
"""

from collections.abc import Sequence
from dataclasses import replace

from eden_memory.names import ORIGINAL
from eden_memory.schemas.events import Forgotten
from eden_memory.stages.stage import Decision, Delivery, Emit, Emitted, Handler, Result

MARK = "ns@"
"""No fact, reflection or blob has an id that begins so."""


def bearing(event: Forgotten, pipeline: str) -> Forgotten:
    """Return a derived record with the pipeline in its id; records of the first pipeline stay as they are."""
    if event.because != "derived" or pipeline == ORIGINAL:
        return event
    return event.model_copy(update={"id": f"{MARK}{pipeline}@{event.id}"})


def own(event: Forgotten, pipeline: str) -> Forgotten | None:
    """Return a record as the pipeline sees it; None if it is derived from another pipeline's memory."""
    if event.because != "derived":
        return event
    if not event.id.startswith(MARK):
        return event if pipeline == ORIGINAL else None
    of, _, name = event.id.removeprefix(MARK).partition("@")
    return event.model_copy(update={"id": name}) if of == pipeline else None


def of_pipeline(handler: Handler, pipeline: str) -> Handler:
    """Wrap a handler so that it sees and publishes derived records of its own pipeline only."""

    async def run(deliveries: Sequence[Delivery]) -> Result:
        seen = [_own(delivery, pipeline) for delivery in deliveries]
        mine = [delivery for delivery in seen if delivery is not None]
        if not mine:
            return Decision(())
        assert len(mine) == len(seen), "records of other pipelines come one by one"
        result = await handler(mine)
        if not isinstance(result, Decision) or pipeline == ORIGINAL:
            return result
        return replace(result, events=[_bearing(event, pipeline) for event in result.events])

    return run


def _own(delivery: Delivery, pipeline: str) -> Delivery | None:
    if not isinstance(delivery.event, Forgotten):
        return delivery
    event = own(delivery.event, pipeline)
    return None if event is None else delivery._replace(event=event)


def _bearing(outgoing: Emitted, pipeline: str) -> Emitted:
    if (
        not isinstance(outgoing, Emit)
        or not isinstance(outgoing.event, Forgotten)
        or outgoing.event.because != "derived"
    ):
        return outgoing
    return replace(
        outgoing,
        event=bearing(outgoing.event, pipeline),
        identity=outgoing.identity and f"{pipeline}/{outgoing.identity}",
    )
