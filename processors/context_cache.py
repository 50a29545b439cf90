"""memory.changes → `memory_contexts`: contexts of active sessions are built anew; batch form, nothing is published.

At once where up to a hundred sessions are concerned, every few seconds where there are more. A session's own
change makes it active. Whoever builds reads first which building it replaces, so an older state never takes the
place of a newer one; a redelivery builds the same again.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import structlog

from eden_memory.domain.context.context import Showing, context_xml
from eden_memory.domain.context.ready_contexts import Built, Ready
from eden_memory.domain.context.visible import Asked, View
from eden_memory.domain.stage import Delivery, Outgoing
from eden_memory.ports import ContextSource, FreshnessWatch, ReadyContexts
from schemas.events import ScopeChanged

log = structlog.get_logger()

AT_ONCE = 100
"""Contexts of a scope that are built with the change; more wait for the next round."""
ROUND_SECONDS = 3.0
BREATH_SECONDS = 0.2
"""Between two batches of a partition: what changes meanwhile is built once."""
MOST_CONFLICTS = 10


class ContextCache:
    """`active`: how long after its last formation a session's contexts are kept fresh; `clock` is the wall's."""

    def __init__(
        self,
        source: ContextSource,
        contexts: ReadyContexts,
        showing: Showing,
        active: timedelta,
        clock: Callable[[], datetime],
        round_seconds: float = ROUND_SECONDS,
        breath_seconds: float = BREATH_SECONDS,
        watch: FreshnessWatch | None = None,
    ) -> None:
        self._source, self._contexts, self._showing = source, contexts, showing
        self._active, self._clock = active, clock
        self._round_seconds, self._breath_seconds = round_seconds, breath_seconds
        self._watch = watch
        self._later: set[str] = set()
        self._rounds: asyncio.Task[None] | None = None

    async def __call__(self, deliveries: Sequence[Delivery]) -> Sequence[Outgoing]:
        """One batch of one partition: each scope once, each context once."""
        now = self._clock()
        wanted, known = await self._opened(deliveries, now)
        keys = dict.fromkeys(_key(one) for one in deliveries)
        for key, concerned in (await self._contexts.concerned(keys, now, AT_ONCE + 1)).items():
            if len(concerned) > AT_ONCE:
                self._put_off(key)
            else:
                wanted |= {one.asked: max(one.active_until, wanted.get(one.asked, now)) for one in concerned}
                known += concerned
        await self._build(wanted, known)
        if wanted and self._watch is not None:
            _tell(self._watch, deliveries, self._clock())
        await asyncio.sleep(self._breath_seconds)
        return ()

    async def refresh_all(self) -> None:
        """Build everything active anew: what an earlier process had put off is lost with it."""
        async for page in self._contexts.active(None, self._clock()):
            await self._build(_until(page), page)

    async def sessions_changed(self, session_ids: Iterable[str]) -> None:
        """Who is in these sessions may have changed."""
        found = await self._contexts.of_sessions(session_ids, self._clock())
        await self._build(_until(found), found)

    async def close(self) -> None:
        """Build what was put off."""
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)
        await self._round()

    async def _opened(
        self, deliveries: Sequence[Delivery], now: datetime
    ) -> tuple[dict[Asked, datetime], list[Ready]]:
        """The contexts of sessions whose own memory changed: of those who may see it, and of those there are."""
        until: dict[str, datetime] = {}
        wanted: dict[Asked, datetime] = {}
        for one in deliveries:
            event = one.event
            if not isinstance(event, ScopeChanged) or event.scope.session_id is None:
                continue
            scope, active_until = event.scope, one.envelope.time + self._active
            if active_until > now:
                until[event.scope.session_id] = active_until
                for user in scope.audience or (None,):
                    wanted[Asked(scope.agent_id, scope.session_id, user)] = active_until
        known = list(await self._contexts.of_sessions(until, now)) if until else []
        for ready in known:
            wanted[ready.asked] = max(ready.active_until, until[ready.asked.session_id or ""])
        return wanted, known

    async def _build(self, wanted: dict[Asked, datetime], read: Iterable[Ready]) -> None:
        """Build these contexts from what is stored now; `read`: those of them that were read before it."""
        known = {one.asked: one for one in read}
        for _ in range(MOST_CONFLICTS):
            if not wanted:
                return
            known |= await self._contexts.known(one for one in wanted if one not in known)
            views = await self._source.look_up(list(wanted))
            before = {one: known.get(one) or Ready(one, until) for one, until in wanted.items()}
            await self._contexts.remove(
                [known[one] for one in wanted if one in known and not views[one].present]
            )
            present = [one for one in wanted if views[one].present]
            again = await self._contexts.put(
                [self._built(before[one], views[one], wanted[one]) for one in present]
            )
            if self._watch is not None:
                self._watch.built(len(present) - len(again))
            wanted, known = {one.asked: wanted[one.asked] for one in again}, {}
        log.warning("contexts were built elsewhere, again and again", contexts=len(wanted))

    def _built(self, before: Ready, view: View, until: datetime) -> Built:
        now = self._clock()
        return Built(
            before=before,
            xml=context_xml(view.shown, now, self._showing),
            revisions=view.revisions,
            scope_keys=view.scope_keys,
            built_at=now,
            active_until=max(until, before.active_until),
        )

    def _put_off(self, key: str) -> None:
        self._later.add(key)
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._in_rounds(), name="contexts put off")

    async def _in_rounds(self) -> None:
        while self._later:
            await asyncio.sleep(self._round_seconds)
            try:
                await self._round()
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: the next round tries again
                log.warning("contexts not built", reason=f"{type(error).__name__}: {error}")

    async def _round(self) -> None:
        keys, self._later = self._later, set()
        if not keys:
            return
        try:
            async for page in self._contexts.active(keys, self._clock()):
                await self._build(_until(page), page)
        except BaseException:
            self._later |= keys
            raise


def _until(page: Iterable[Ready]) -> dict[Asked, datetime]:
    """They stay active for as long as they were."""
    return {one.asked: one.active_until for one in page}


def _tell(watch: FreshnessWatch, deliveries: Sequence[Delivery], now: datetime) -> None:
    """How long each change took to be shown."""
    for one in deliveries:
        event = one.event
        if isinstance(event, ScopeChanged):
            said = event.newest_buffered_at if "reflections" in event.changed else None
            since = (now - said).total_seconds() if said is not None else None
            watch.fresh((now - event.committed_at).total_seconds(), since)


def _key(one: Delivery) -> str:
    """The scope, of a tombstone too."""
    return one.event.scope.key if isinstance(one.event, ScopeChanged) else one.key
