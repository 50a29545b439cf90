"""A namespace compared with another by meaning: settings and names in, a report out."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly.handlers import Account
from eden_memory.directory.audience_store import MongoAudiences
from eden_memory.errors import EdenError
from eden_memory.placement import ORIGINAL, Placement
from eden_memory.processors import pipeline
from eden_memory.replay.comparing.compared_text_store import MongoComparedMemory
from eden_memory.replay.comparing.comparing import Comparing
from eden_memory.replay.comparing.report import MemoryReport, StageSpending
from eden_memory.replay.installation import settings_of
from eden_memory.replay.namespaces.namespace_store import MongoLive, MongoNamespaces, placed
from eden_memory.replay.reform.recorded_call_store import session_calls
from eden_memory.replay.reform.reform_settings import overridden
from eden_memory.replay.reform.reform_store import MongoReforms
from eden_memory.replay.reform.selection import formed_by
from eden_memory.replay.user_edits.reapplying import reapply
from eden_memory.replay.user_edits.user_edits import AppliedEdits
from eden_memory.schemas.documents import Reform, ReformAsked
from eden_memory.settings import Settings
from eden_memory.usage.totals_store import MongoTotals, UsageQuery
from eden_memory.usage.usage_store import LIVE

Database = AsyncDatabase[dict[str, Any]]
EVER = "0000-01-01", "9999-12-31"
FORMING = (
    pipeline.FACT_EXTRACTION,
    pipeline.FACT_DEDUP,
    pipeline.REFLECTION_EXTRACTION,
    pipeline.CONSOLIDATION,
)


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The scopes to compare in two memories, and how many differences to keep."""

    against: str | None = None
    """The other namespace; None: the live one, or what was live before where this one is."""
    beginnings: tuple[str, ...] = ()
    """Of scope keys; none: all."""
    most: int | None = 20
    least: float | None = None
    own: bool = True
    """Whether people's own changes are looked at, where the namespace is a reform's."""


async def compared(settings: Settings, database: Database, name: str, wanted: ReportRequest) -> MemoryReport:
    """The report on a namespace."""
    shadow = (await settings_of(settings, database, name)).placement
    live = await _other(settings, database, shadow, wanted.against)
    if live == shadow:
        raise EdenError(f"{name} cannot be compared with itself", "Name another with --against.")
    reform = await MongoReforms(database, settings.mongodb.prefix).get(name)
    asked = ReformAsked() if reform is None else reform.asked
    report = MemoryReport(
        live.memory, shadow.memory, wanted.most, complete=await _complete(settings, database, shadow)
    )
    telling = [
        MongoComparedMemory(database, placement.names(settings.mongodb.prefix))
        for placement in (live, shadow)
    ]
    comparing = Comparing(telling[0], telling[1], most=wanted.most, least=wanted.least)
    await comparing.into(
        report, wanted.beginnings, formed_by(asked, await _heard(settings, database, live, asked))
    )
    if reform is not None:
        report.spent = await _spent(settings, database, live, shadow, asked)
        report.reused = reform.reused
        report.own = await _own(settings, database, live, shadow, reform) if wanted.own else None
    return report


async def _heard(
    settings: Settings, database: Database, live: Placement, asked: ReformAsked
) -> Collection[str]:
    return await MongoAudiences(database, live.names(settings.mongodb.prefix)).heard_by(asked.user_id)


async def _complete(settings: Settings, database: Database, shadow: Placement) -> bool:
    namespace = await MongoNamespaces(database, settings.mongodb.prefix).get(shadow.memory)
    return namespace is None or namespace.state != "filling"


async def _other(settings: Settings, database: Database, shadow: Placement, against: str | None) -> Placement:
    if against is not None:
        return (await settings_of(settings, database, against)).placement
    live = await MongoLive(database, settings.mongodb.prefix).read()
    now = placed(live)
    if now != shadow or live is None or live.previous is None:
        return now
    try:
        return (await settings_of(settings, database, live.previous.memory)).placement
    except EdenError:
        raise EdenError(
            f"{shadow.memory} is live, and what was live before is dropped", "Name another with --against."
        ) from None


async def _spent(
    settings: Settings, database: Database, live: Placement, shadow: Placement, asked: ReformAsked
) -> dict[str, tuple[StageSpending, StageSpending]]:
    """By stage, since ever; of one session as far back as its calls are kept."""
    totals, session_id = MongoTotals(database, settings.names), asked.session_id

    async def of(account: str) -> Mapping[str, StageSpending]:
        query = UsageQuery(
            *EVER, by="stage", agent_id=asked.agent_id, user_id=asked.user_id, namespace=account
        )
        if session_id is None:
            found = await totals.sums(query)
        else:
            found = await session_calls(database, settings.names, account, session_id)
        return {row.of or "": StageSpending(**row.counts, cost_usd=row.cost_usd) for row in found}

    ours = await of(LIVE if live.pipeline == ORIGINAL else live.pipeline)
    theirs = await of(shadow.pipeline)
    return {
        stage: (ours.get(stage, StageSpending()), theirs.get(stage, StageSpending()))
        for stage in FORMING
        if stage in ours or stage in theirs
    }


async def _own(
    settings: Settings, database: Database, live: Placement, shadow: Placement, reform: Reform
) -> AppliedEdits:
    """Return which of people's edits a switch would reapply."""
    settings = overridden(settings, reform.asked.overrides).placed(shadow)
    source = live.names(settings.mongodb.prefix)
    wanted = formed_by(reform.asked, await _heard(settings, database, live, reform.asked))
    return await reapply(database, source, settings, None, account=Account(reform.id), wanted=wanted)
