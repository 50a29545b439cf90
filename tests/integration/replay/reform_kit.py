"""A lived installation and its reforms: the command's own function, in this process or as a process."""

import io
import re
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from rich.console import Console

from eden_memory.cli.replay.reform import Ended, reformed
from eden_memory.kafka.topics import load_topics
from eden_memory.models.provider_calls import Tokens
from eden_memory.names import Placement
from eden_memory.processors import pipeline
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.replay.reform.namespace_reform import ReformRequest
from eden_memory.settings import Settings
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System
from tests.model_server.script import Asked, Said

Row = dict[str, Any]
MICRO = Decimal("0.000001")
LOUDLY = "Say it loudly."
MEMORY = ("facts", "reflections", "consolidated", "blobs", "snapshots")
NOT_CONTENT = ("revision", "reset_revision", "changed_at", "applied")


class Priced:
    """A price for every model: a micro-dollar a token of input, four of output."""

    def cost(self, provider: str, model: str, tokens: Tokens, at: datetime | None = None) -> Decimal:
        del provider, model, at
        return MICRO * (tokens.input + 4 * tokens.output)


def loud(asked: Asked) -> Said:
    """The obedient model; where the prompt asks for it, facts are in capitals."""
    said = obey(asked)
    if asked.kind == "facts" and LOUDLY in asked.system + asked.user and isinstance(said, dict):
        return {"facts": [{**one, "text": one["text"].upper()} for one in said["facts"]]}  # pyright: ignore
    return said


async def quiet(system: System) -> None:
    """Until live formation has nothing left to do but chat."""
    topics = load_topics(system.settings.kafka)
    names = [one for one in pipeline.NAMES if one != pipeline.FORMATION_TRIGGER]
    async with GroupProgress(
        system.client, {topics.group(one): topics.read_by(one) for one in names}
    ) as look:
        await look.until_quiet()


async def live_through(system: System, users: Sequence[str], windows: int) -> None:
    """Windows one at a time, with facts that are repeated and reflections enough for blobs."""
    for number in range(windows):
        for user in users:
            session = await system.session(user)
            texts = [
                f"fact user: {user} has planted tree number {number}.",
                f"fact user: {user} keeps same-hive{number % 2} number {number} moreover.",
                f"note user: {user} wants answer {number} to be short.",
                f"note session: The talk is about tree {number}.",
            ]
            await system.told(session, user, *texts)
            await quiet(system)


async def reform(settings: Settings, name: str, **given: Any) -> tuple[Ended, str]:
    """What `eden reform` does and says."""
    said = io.StringIO()
    console = Console(file=said, width=200, highlight=False)
    ended = await reformed(settings, name, ReformRequest(**given), console, yes=True)
    return ended, said.getvalue()


def placed(settings: Settings, name: str) -> Settings:
    """The settings of a reform's namespace."""
    return settings.placed(Placement(name, name))


async def memory(database: AsyncDatabase[Row], settings: Settings) -> dict[str, dict[str, Row]]:
    """All that is remembered, by collection and id."""
    found: dict[str, dict[str, Row]] = {}
    for one in MEMORY:
        rows = await database[settings.names[one]].find().to_list()
        found[one] = {
            row["_id"]: {name: value for name, value in row.items() if name not in NOT_CONTENT}
            for row in rows
        }
    return found


async def calls(database: AsyncDatabase[Row], settings: Settings, name: str) -> list[Row]:
    """What a reform paid for."""
    return await database[settings.names["calls"]].find({"namespace": name}).to_list()


def expected(said: str) -> Decimal:
    """US dollars of the estimate that was shown."""
    found = re.search(r"expected: ([0-9.]+) USD", said)
    assert found is not None, said
    return Decimal(found[1])
