"""`eden reform`: memory formed anew from the recorded chat, in a namespace beside the live one."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

from eden_memory.assembly.handlers import models_of, settings_version
from eden_memory.errors import EdenError
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.mongo.ids import typed_or_text
from eden_memory.names import Placement
from eden_memory.processors.pipeline import ATLAS_WRITER
from eden_memory.replay.installation import Database, Installation
from eden_memory.replay.namespaces.dropping import clear
from eden_memory.replay.namespaces.namespace_store import checked, live_settings, prefix_of
from eden_memory.replay.namespaces.switching import Switchover, refuse_blocking, switch_to_reform
from eden_memory.replay.reform.reform_assembly import own_settings, prepare, reform_run, restore
from eden_memory.replay.reform.reform_plan import ReformPlan, plan, refuse_unpriced
from eden_memory.replay.reform.reform_run import ReformProgress
from eden_memory.replay.reform.reform_settings import (
    STREAMS,
    covers_everything,
    overridden,
    overrides_of,
    refuse_ineffective,
    selected,
    streams_of,
    to_be_set,
)
from eden_memory.replay.reform.reform_store import MongoReforms, alone
from eden_memory.replay.restore.restored_store import MongoRestored
from eden_memory.replay.user_edits.user_edits import AppliedEdits
from eden_memory.schemas.documents import Namespace, Outcome, Placed, Reform, ReformAsked
from eden_memory.settings import Settings


@dataclass(frozen=True, slots=True)
class ReformRequest:
    """The options of `eden reform`."""

    agent: str | None = None
    user: str | None = None
    session: str | None = None
    rewindow: bool = False
    overrides: tuple[str, ...] = ()
    """As `memory.similar=0.8`."""
    settings: Path | None = None
    streams: Path | None = None
    at_once: int | None = None
    cap: Decimal | None = None
    """US dollars."""
    switch: bool = False
    accept: bool = False


@dataclass(frozen=True, slots=True)
class Estimated:
    """A reform that has not begun: what it would form, ask and cost."""

    asked: ReformAsked
    plan: ReformPlan
    cap: Decimal | None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The next step needs consent; a caller that refuses closes the generator."""

    text: str
    because: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Formed:
    """All is formed."""

    reform: Reform
    missing: int
    """Windows left out, as their texts are gone."""
    dead: int
    """Steps given up."""
    user_edits: AppliedEdits


@dataclass(frozen=True, slots=True)
class PausedAtCap:
    """The cap leaves no room for the next window; with a higher one the reform goes on."""

    reform: Reform
    missing: int
    dead: int


@dataclass(frozen=True, slots=True)
class Switched:
    """The reform is live; edits that people made since `Formed` are in it too, or are reported."""

    switchover: Switchover


ReformStep = Estimated | Confirmation | Formed | PausedAtCap | Switched


async def reform(
    settings: Settings,
    name: str,
    request: ReformRequest,
    on_reading: Callable[[int, int], None],
    on_progress: Callable[[ReformProgress], None],
) -> AsyncGenerator[ReformStep]:
    """Begin a reform or go on with it, until everything is formed or the cap is reached; yield each step.

    `on_reading` gets the records read and their number while formation-trigger's state is restored.
    """
    if checked(name) in ("run", "report"):
        raise EdenError(f"{name!r} is a command of `eden reform`", "Give the namespace another name.")
    # SDKs take seconds to load, in which nobody would renew the lease
    await asyncio.to_thread(import_module, "eden_memory.models.providers")
    address = endpoints(settings).mongodb
    # the lease has connections of its own: it is renewed however busy the stages are
    async with connect(address) as client, connect(address) as lease_client:
        database = client[settings.mongodb.database]
        async with alone(lease_client[settings.mongodb.database], settings.names, name):
            at = Installation(await live_settings(settings, database), database)
            work = _Reform(settings, at, name, request)
            before = await work.recorded()
            digest, streams = streams_of(request.streams) if request.streams else (None, None)
            if before is None:
                found = await work.planned(work.asked(digest), request.at_once, streams)
                yield Estimated(found.asked, found.plan, request.cap)
                refuse_unpriced(found.plan, request.cap)
                if not found.plan.windows:
                    raise EdenError("there is no window to form anew", "Look at what was selected.")
                yield Confirmation("Form them anew?")
                recorded = await work.begin(found)
            else:
                recorded, found = await work.go_on(before, digest)
            await prepare(database, found.settings, streams)
            await MongoReforms(database, settings.mongodb.prefix).goes_on(name)
            if not recorded.asked.rewindow:
                await restore(client, at.settings, found.settings, recorded, on_reading)
            async with reform_run(
                client, at.settings, found.settings, recorded, found.plan, on_progress
            ) as run:
                done = await run.run()
            caught_up_at = run.edits_read_at if done else None
            recorded, dead = await work.ended(found, caught_up_at)
            if caught_up_at is None:
                yield PausedAtCap(recorded, run.feeding.missing, dead)
                return
            yield Formed(recorded, run.feeding.missing, dead, run.user_edits)
            if not request.switch:
                return
            for question in work.doubts(recorded, found.settings, run.user_edits):
                yield question
            yield Switched(await switch_to_reform(at, name, run.user_edits, run.forms, part=request.accept))


@dataclass(frozen=True, slots=True)
class _Planned:
    """A reform's own settings, and what it has to do."""

    asked: ReformAsked
    settings: Settings
    at_once: int
    plan: ReformPlan


@dataclass(frozen=True, slots=True)
class _Reform:
    """The steps of one command; `settings` are those of the installation, `at` those of its live namespace."""

    settings: Settings
    at: Installation
    name: str
    request: ReformRequest

    @property
    def _database(self) -> Database:
        return self.at.database

    @property
    def _reforms(self) -> MongoReforms:
        return MongoReforms(self._database, self.settings.mongodb.prefix)

    async def recorded(self) -> Reform | None:
        """Return the reform as it was begun, None for a new one; EdenError if the name is taken."""
        found, namespace = await self._reforms.get(self.name), await self.at.namespaces.get(self.name)
        if namespace is not None and namespace.kind != "reform":
            raise EdenError(f"{self.name} is a {namespace.kind}", "Give the reform another name.")
        if namespace is not None and namespace.state == "dropped":
            raise EdenError(f"{self.name} is being dropped", f"eden namespace drop {self.name}")
        if self.at.settings.placement.memory == self.name:
            raise EdenError(f"{self.name} is live", "Form memory anew under another name.")
        if found is not None and namespace is None:  # dropped since
            await self._reforms.remove(self.name)
            return None
        return found

    def asked(self, digest: str | None) -> ReformAsked:
        """Return what the options ask for; `digest`: of the file of streams."""
        request = self.request
        ids = {"agent_id": request.agent, "user_id": request.user, "session_id": request.session}
        return ReformAsked(
            **{field: None if given is None else typed_or_text(given) for field, given in ids.items()},
            rewindow=request.rewindow,
            overrides=overrides_of(request.overrides, request.settings),
            streams=digest,
        )

    async def planned(
        self, asked: ReformAsked, at_once: int | None, streams: Sequence[dict[str, Any]] | None = None
    ) -> _Planned:
        """Return the reform's settings and plan; EdenError for settings that there are not."""
        refuse_ineffective(asked)
        settings = overridden(self.settings, asked.overrides)
        if not asked.rewindow and settings.windows != self.settings.windows:
            raise EdenError("windows are taken as they were recorded", "Cut them anew with --rewindow.")
        at_once = at_once or max(1, self.settings.run.at_once // 4)
        own = own_settings(settings, self.name, at_once, own_streams=asked.streams is not None)
        await (await models_of(own, self._database.client)).close()
        if asked.streams is not None and streams is None:  # begun before, with the streams that it stored
            streams = await self._database[own.names[STREAMS]].find().to_list()
        found = await plan(self._database, self.at.settings, own, asked, at_once, streams)
        return _Planned(asked, own, at_once, found)

    async def begin(self, found: _Planned) -> Reform:
        """Store a new reform and its namespace."""
        at = self.at.settings.placement
        begun = Reform(
            id=self.name,
            asked=found.asked,
            settings_version=settings_version(found.settings),
            source=Placed(memory=at.memory, pipeline=at.pipeline),
            state="restoring",
            at_once=found.at_once,
            cap_usd=self.request.cap,
            messages=found.plan.messages,
            windows=found.plan.windows,
            estimate=found.plan.rows,
            spent_usd=Decimal(0),
            created_at=datetime.now(UTC),
        )
        await clear(self.at, found.settings.placement)
        await MongoRestored(self._database, found.settings.names).forget()
        await self.at.namespaces.made(self._namespace(found.settings))
        await self._reforms.begun(begun)
        return begun

    async def go_on(self, before: Reform, digest: str | None) -> tuple[Reform, _Planned]:
        """Store the new options of a reform that was begun; EdenError where it cannot go on."""
        request = self.request
        self._refuse_others(before, digest)
        cap = before.cap_usd if request.cap is None else request.cap
        found = await self.planned(before.asked, request.at_once or before.at_once)
        if settings_version(found.settings) != before.settings_version:
            raise EdenError(
                f"settings that decide what is formed have changed since {self.name} began",
                f"Restore them, or begin anew: eden namespace drop {self.name}.",
            )
        refuse_unpriced(found.plan, cap)
        await self.at.namespaces.made(self._namespace(found.settings))
        await self._reforms.note(self.name, at_once=found.at_once, cap_usd=cap)
        return before.model_copy(update={"at_once": found.at_once, "cap_usd": cap}), found

    def _refuse_others(self, before: Reform, digest: str | None) -> None:
        """Refuse options that differ from those of the beginning; omitted options keep theirs."""
        asked, recorded = self.asked(digest), before.asked
        fields = ("agent_id", "user_id", "session_id", "rewindow", "overrides", "streams")
        others = [
            field
            for field in fields
            if getattr(asked, field) not in (None, False, (), getattr(recorded, field))
        ]
        if others:
            named = ", ".join(field.removesuffix("_id") for field in others)
            raise EdenError(
                f"{self.name} began with other options ({named})",
                f"Leave them out, or begin anew under another name (it began with: {selected(recorded)}).",
            )
        cap = self.request.cap
        if cap is not None and before.cap_usd is not None and cap < before.cap_usd:
            raise EdenError(f"the cap was {before.cap_usd} USD", "It can only be raised.")
        source = Placement(before.source.memory, before.source.pipeline)
        if self.at.settings.placement != source:
            raise EdenError(
                f"{self.name} forms what {source.memory} recorded, and that is no longer live",
                "Return to it with `eden namespace rollback`, or begin anew.",
            )

    def _namespace(self, own: Settings) -> Namespace:
        prefix = self.settings.mongodb.prefix
        return Namespace(
            id=self.name,
            kind="reform",
            prefix=prefix_of(prefix, self.name),
            group=self.at.topics(own.placement).group(ATLAS_WRITER),
            source=prefix,
            pipeline=self.name,
            state="filling",
            created_at=datetime.now(UTC),
        )

    async def ended(self, found: _Planned, caught_up_at: datetime | None) -> tuple[Reform, int]:
        """Store how the reform ended; return it with the number of steps given up. None: it paused."""
        recorded = await self._reforms.get(self.name)
        assert recorded is not None
        outcomes = self._database[found.settings.names[Outcome.COLLECTION]]
        dead = await outcomes.count_documents({"dead": {"$ne": None}})
        if caught_up_at is not None:
            await self.at.namespaces.caught_up(self.name, datetime.now(UTC))
            await self._reforms.caught_up(self.name, caught_up_at)
        else:
            await self._reforms.note(self.name, state="paused")
        return recorded, dead

    def doubts(self, recorded: Reform, own: Settings, user_edits: AppliedEdits) -> Iterator[Confirmation]:
        """Yield the questions before a switch; EdenError where only a part was formed anew, or what people took back
        matches nothing."""
        if not covers_everything(recorded.asked) and not self.request.accept:
            raise EdenError(
                f"{self.name} holds nothing but what was formed of {selected(recorded.asked)}",
                "All other memory would be missing. Switch all the same with --accept.",
            )
        if not self.request.accept:
            refuse_blocking(self.name, user_edits)
        if user_edits.of("unmatched") or user_edits.of("outdated"):
            yield Confirmation("Switch without these changes?")
        if lines := to_be_set(self.settings, own, recorded.asked):
            yield Confirmation("Switch all the same?", lines)
