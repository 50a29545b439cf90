"""`eden reform`: memory formed anew from the chat topic, in a namespace beside the live one."""

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from typer.core import TyperGroup

from eden_memory.assembly.handlers import MongoClient, models_of, settings_version
from eden_memory.cli.confirming import confirm
from eden_memory.cli.memory.terminal import width
from eden_memory.cli.replay import reform_shown as shown
from eden_memory.cli.replay.live import live_settings
from eden_memory.cli.replay.reform_kept import to_be_set
from eden_memory.cli.replay.reform_report import report
from eden_memory.cli.replay.reform_settings import overridden, overrides_of, streams_of
from eden_memory.errors import EdenError
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.logs import warnings_only
from eden_memory.mongo.client import connect
from eden_memory.mongo.given_ids import typed
from eden_memory.placement import Placement
from eden_memory.processors.pipeline import ATLAS_WRITER
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.dropping import clear
from eden_memory.replay.namespaces.namespace_names import checked, prefix_of
from eden_memory.replay.namespaces.namespace_store import MongoNamespaces
from eden_memory.replay.namespaces.switching import switch
from eden_memory.replay.reform import reform_assembly as reform_work
from eden_memory.replay.reform.exclusive_store import alone
from eden_memory.replay.reform.reform_assembly import Work, own_settings
from eden_memory.replay.reform.reform_plan import Plan, plan, refuse_unpriced
from eden_memory.replay.reform.reform_store import MongoReforms
from eden_memory.replay.reform.selection import whole
from eden_memory.replay.restore.restored_store import MongoRestored
from eden_memory.schemas.documents import Namespace, Outcome, Placed, Reform, ReformAsked, Stream
from eden_memory.settings import Settings
from eden_memory.task_ending import heeding

AT_CAP, STOPPED = 3, 130
NICE = 10
"""Live formation on the same machine goes first."""
Row = dict[str, Any]
Ended = Literal["formed", "switched", "capped"]


class _Reforms(TyperGroup):
    """`eden reform NAME …` means `eden reform run NAME …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Reforms,
    help="Form memory anew in a namespace: `eden reform NAME [OPTIONS]` (options: `eden reform run --help`).",
    no_args_is_help=True,
)
app.command("report")(report)


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says."""

    agent: str | None = None
    user: str | None = None
    session: str | None = None
    rewindow: bool = False
    overrides: tuple[str, ...] = ()
    settings: Path | None = None
    streams: Path | None = None
    at_once: int | None = None
    cap: Decimal | None = None
    yes: bool = False
    switch: bool = False
    accept: bool = False


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="the namespace; made if there is none")],
    agent: Annotated[str | None, typer.Option("--agent", help="only this agent's windows")] = None,
    user: Annotated[str | None, typer.Option("--user", help="only windows with this user")] = None,
    session: Annotated[str | None, typer.Option("--session", help="only this session's windows")] = None,
    rewindow: Annotated[bool, typer.Option("--rewindow", help="cut windows anew")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="a setting of its own, as memory.similar=0.8")
    ] = None,
    settings: Annotated[Path | None, typer.Option("--settings", help="settings of its own, TOML")] = None,
    streams: Annotated[
        Path | None, typer.Option("--streams", help="streams in place of the stored ones, a JSON list")
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="windows on their way; unset: a quarter of run.at_once")
    ] = None,
    cap: Annotated[float | None, typer.Option(min=0, help="US dollars at which it pauses")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    switch: Annotated[bool, typer.Option("--switch", help="then make it live")] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="switch even though only a part was formed anew")
    ] = False,
) -> None:
    """Form memory anew from the recorded chat, with other prompts, models or thresholds, beside live memory.

    What it will cost is estimated and asked first. Stopped or killed at any moment, the same command goes on.
    Exit code 3: it has paused at the cap; a higher --cap goes on.

    Examples:

    eden reform trial --set models.fast=gpt-5.1 --cap 5

    eden reform trial --user ada --set memory.similar=0.8 --yes

    eden reform trial --streams streams.json --rewindow --set windows.messages=20

    eden reform trial --switch
    """
    if accept and not switch:
        raise EdenError("--accept requires --switch", f"eden reform {name} --switch --accept")
    given = Given(
        agent,
        user,
        session,
        rewindow,
        tuple(set_ or ()),
        settings,
        streams,
        at_once,
        None if cap is None else _usd(cap),
        yes,
        switch,
        accept,
    )
    with suppress(AttributeError, OSError):  # not there on Windows
        os.nice(NICE)
    try:
        with warnings_only():
            ended = asyncio.run(
                heeding(
                    reformed(Settings(), name, given, Console(highlight=False, soft_wrap=True, width=width()))
                )
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped; `eden reform {name}` goes on", err=True)
        sys.exit(STOPPED)
    if ended == "capped":
        sys.exit(AT_CAP)


def _usd(cap: float) -> Decimal:
    if not isfinite(cap):
        raise EdenError(f"a cap of {cap} is none", "Leave --cap out to have none.")
    return Decimal(str(cap))


async def reformed(settings: Settings, name: str, given: Given, console: Console) -> Ended:
    """Begin or go on, until all is formed, or the cap is reached."""
    if checked(name) in ("run", "report"):
        raise EdenError(f"{name!r} is a command of `eden reform`", "Give the namespace another name.")
    # SDKs take seconds to load, in which nobody would renew the lease
    await asyncio.to_thread(import_module, "eden_memory.models.providers.providers")
    where = settings.mongodb, endpoints(settings).mongodb
    # the lease has connections of its own: it is renewed however busy the stages are
    async with connect(*where) as client, connect(*where) as own:
        database = client[settings.mongodb.database]
        async with alone(own[settings.mongodb.database], settings.names, name):
            live = await live_settings(settings, database)
            return await _Command(settings, live, client, name, given, console).run()


class _Command:
    """One call of the command, its servers connected."""

    def __init__(
        self,
        settings: Settings,
        live: Settings,
        client: MongoClient,
        name: str,
        given: Given,
        console: Console,
    ) -> None:
        self._settings, self._live, self._client = settings, live, client
        self._name, self._given, self._console = name, given, console
        self._database = client[settings.mongodb.database]
        self._reforms = MongoReforms(self._database, settings.mongodb.prefix)
        self._namespaces = MongoNamespaces(self._database, settings.mongodb.prefix)
        self._told = 0

    async def run(self) -> Ended:
        """Begin or go on."""
        before, namespace = await self._reforms.get(self._name), await self._namespaces.get(self._name)
        self._refuse(namespace)
        if before is not None and namespace is None:  # dropped since
            await self._reforms.remove(self._name)
            before = None
        digest, streams = streams_of(self._given.streams) if self._given.streams else (None, None)
        if before is None:
            reform, own, plan = await self._begin(digest, streams)
        else:
            reform, own, plan = await self._go_on(before, digest)
        await reform_work.prepare(self._database, own, streams)
        return await self._form(reform, own, plan)

    def _refuse(self, namespace: Namespace | None) -> None:
        if namespace is not None and namespace.kind != "reform":
            raise EdenError(f"{self._name} is a {namespace.kind}", "Give the reform another name.")
        if namespace is not None and namespace.state == "dropped":
            raise EdenError(f"{self._name} is being dropped", f"eden namespace drop {self._name}")
        if self._live.placement.memory == self._name:
            raise EdenError(f"{self._name} is live", "Form memory anew under another name.")

    def _asked(self, digest: str | None) -> ReformAsked:
        given = self._given
        ids = {"agent_id": given.agent, "user_id": given.user, "session_id": given.session}
        return ReformAsked(
            **{field: None if one is None else typed(one) for field, one in ids.items()},
            rewindow=given.rewindow,
            overrides=overrides_of(given.overrides, given.settings),
            streams=digest,
        )

    async def _own(self, asked: ReformAsked, at_once: int) -> Settings:
        """The reform's settings; what cannot be asked so is refused here."""
        settings = overridden(self._settings, asked.overrides)
        if not asked.rewindow and settings.windows != self._settings.windows:
            raise EdenError("windows are taken as they were recorded", "Cut them anew with --rewindow.")
        own = own_settings(settings, self._name, at_once, own_streams=asked.streams is not None)
        models = await models_of(own, self._client)
        await models.close()
        return own

    async def _begin(
        self, digest: str | None, streams: Sequence[Row] | None
    ) -> tuple[Reform, Settings, Plan]:
        given, asked = self._given, self._asked(digest)
        at_once = given.at_once or max(1, self._settings.run.at_once // 4)
        own = await self._own(asked, at_once)
        found = await plan(self._database, self._live, own, asked, at_once, streams)
        self._tell(shown.estimated(self._name, asked, found, given.cap))
        refuse_unpriced(found, given.cap)
        if not found.expecting.windows:
            raise EdenError("there is no window to form anew", "Look at what was selected.")
        self._confirm("Form them anew?")
        at = self._live.placement
        reform = Reform(
            id=self._name,
            asked=asked,
            settings_version=settings_version(own),
            source=Placed(memory=at.memory, pipeline=at.pipeline),
            state="restoring",
            at_once=at_once,
            cap_usd=given.cap,
            messages=found.expecting.messages,
            windows=found.expecting.windows,
            estimate=found.rows,
            spent_usd=Decimal(0),
            created_at=reform_work.now(),
        )
        await clear(self._installation(), own.placement)
        await MongoRestored(self._database, own.names).forget()
        await self._namespaces.made(self._namespace(own))
        await self._reforms.begun(reform)
        return reform, own, found

    async def _go_on(self, before: Reform, digest: str | None) -> tuple[Reform, Settings, Plan]:
        given = self._given
        self._refuse_others(before, digest)
        at_once = given.at_once or before.at_once
        own = await self._own(before.asked, at_once)
        if settings_version(own) != before.settings_version:
            raise EdenError(
                f"settings that decide what is formed have changed since {self._name} began",
                f"Restore them, or begin anew: eden namespace drop {self._name}.",
            )
        source = Placement(before.source.memory, before.source.pipeline)
        if self._live.placement != source:
            raise EdenError(
                f"{self._name} forms what {source.memory} recorded, and that is no longer live",
                "Return to it with `eden namespace rollback`, or begin anew.",
            )
        cap = before.cap_usd if given.cap is None else given.cap
        kept = self._database[own.names[Stream.COLLECTION]]
        streams = None if before.asked.streams is None else await kept.find().to_list()
        found = await plan(self._database, self._live, own, before.asked, at_once, streams)
        refuse_unpriced(found, cap)
        await self._namespaces.made(self._namespace(own))
        await self._reforms.note(self._name, at_once=at_once, cap_usd=cap)
        return before.model_copy(update={"at_once": at_once, "cap_usd": cap}), own, found

    def _refuse_others(self, before: Reform, digest: str | None) -> None:
        """Options that are given have to be those of the beginning; those left out are."""
        asked, recorded = self._asked(digest), before.asked
        fields = ("agent_id", "user_id", "session_id", "rewindow", "overrides", "streams")
        others = [
            one for one in fields if getattr(asked, one) not in (None, False, (), getattr(recorded, one))
        ]
        if others:
            named = ", ".join(one.removesuffix("_id") for one in others)
            raise EdenError(
                f"{self._name} began with other options ({named})",
                f"Leave them out, or begin anew under another name (it began with: {shown.selected(recorded)}).",
            )
        cap = self._given.cap
        if cap is not None and before.cap_usd is not None and cap < before.cap_usd:
            raise EdenError(f"the cap was {before.cap_usd} USD", "It can only be raised.")

    def _installation(self) -> Installation:
        return Installation(self._live, self._database)

    def _namespace(self, own: Settings) -> Namespace:
        prefix = self._settings.mongodb.prefix
        return Namespace(
            id=self._name,
            kind="reform",
            prefix=prefix_of(prefix, self._name),
            group=load_topics(own.kafka, own.placement).group(ATLAS_WRITER),
            source=prefix,
            pipeline=self._name,
            places=(),
            state="filling",
            created_at=reform_work.now(),
        )

    async def _form(self, reform: Reform, own: Settings, plan: Plan) -> Ended:
        await self._reforms.goes_on(self._name)
        with shown.Shown(self._console, self._name) as bar:
            if not reform.asked.rewindow:
                await reform_work.restore(self._client, self._live, own, reform, bar.reading)

            async def tick(work: Work) -> None:
                money, keeping = work.feeding.money, work.keeping
                reused = reform.reused + work.reused
                bar(money.formed, work.feeding.whole, keeping.spent, keeping.paid, reused, work.held())
                self._told = await reform_work.note(self._reforms, work, self._told)

            async with reform_work.reforming(self._client, self._live, own, reform, plan, tick) as work:
                done = await work.reforming.run()
        return await self._ended(work, own, done=done)

    async def _ended(self, work: Work, own: Settings, *, done: bool) -> Ended:
        reform = await self._reforms.get(self._name)
        assert reform is not None
        dead = await self._database[own.names[Outcome.COLLECTION]].count_documents({"dead": {"$ne": None}})
        self._tell(shown.formed(reform, work.feeding.missing, dead))
        if not done:
            await self._reforms.note(self._name, state="paused")
            self._tell([f"it has paused at the cap; go on with: eden reform {self._name} --cap USD"])
            return "capped"
        await self._namespaces.caught_up(self._name, reform_work.now())
        await self._reforms.caught_up(self._name, reform_work.now())
        self._tell([line for one in work.own for line in shown.own_changes(one)])
        if not self._given.switch:
            self._tell([f"eden reform report {self._name}; eden reform {self._name} --switch"])
            return "formed"
        return await self._switch(reform, own, work)

    async def _switch(self, reform: Reform, own: Settings, work: Work) -> Ended:
        if not whole(reform.asked) and not self._given.accept:
            raise EdenError(
                f"{self._name} holds nothing but what was formed of {shown.selected(reform.asked)}",
                "All other memory would be missing. Switch all the same with --accept.",
            )
        if any(one.unmatched or one.outdated for one in work.own):
            self._confirm("Switch without these changes?")
        if lines := to_be_set(self._settings, own, reform.asked):
            self._tell(lines)
            self._confirm("Switch all the same?")
        await switch(self._installation(), self._name, part=self._given.accept)
        self._tell([f"{self._name} is live; back: eden namespace rollback"])
        return "switched"

    def _confirm(self, question: str) -> None:
        if not self._given.yes:
            confirm(question)

    def _tell(self, lines: Sequence[Any]) -> None:
        for line in lines:
            self._console.print(line, markup=False) if isinstance(line, str) else self._console.print(line)
