"""How well a reform's cost is estimated, and the load that benchmarks of reforms share.

`python -m tests.bench.reform`. Private servers, all in one process; the estimate is measured on the demo
conversation, with a micro-dollar a token of input and four of output. Delays: reform_delays; rate: reform_rate.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pydantic import SecretStr

from eden_memory.assembly import handlers
from eden_memory.demo.conversation import plain_text, read_conversation
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from tests.bench.formation_load import conversations, mark, place_of, staggered
from tests.bench.formation_run import (
    Formed,
    Stand,
    until_formed,
    watching,
    write,
)
from tests.bench.report import Report, Row
from tests.integration.replay.reform_kit import Priced, calls, expected, quiet, reform
from tests.integration.system.running_system import fast, system
from tests.model_server.script import MARK
from tests.model_server.serving import serving
from tests.servers import TestServers, running_servers

EDEN = (sys.executable, "-m", "eden_memory.cli.main")
WINDOW, PACE = 45, 50.0
MORE, WITHIN = 1.3, 0.2
"""The targets: of the p99 delay alone; of what was spent."""
GUIDANCE = "Prefer what was decided over what was considered."


def numbered(sessions: int, each: int, first: int) -> list[dict[str, Any]]:
    """Conversations of sessions from `first` on, one after the other."""
    load: list[dict[str, Any]] = []
    for one in staggered(conversations(sessions, each), sessions, WINDOW):
        session, index = map(int, one["_id"].removeprefix("m-").split("-"))
        name, text = (
            f"{session + first:04d}",
            one["content"].replace(mark(session, index), mark(session + first, index)),
        )
        user = one["user_id"] and f"user-{name}"
        ids = {"_id": f"m-{name}-{index:04d}", "session_id": f"session-{name}", "user_id": user}
        load.append({**one, **ids, "content": text})
    return load


async def lived(made: Stand, load: Sequence[dict[str, Any]], pace: float | None) -> Formed:
    """Write, and watch until it is formed."""
    formed = Formed(sum(1 for one in load if MARK.search(one["content"])))
    async with watching(made, formed):
        await write(made, load, pace)
        await until_formed(formed)
    first = min(place_of(one)[0] for one in formed.markers)
    assert first == min(int(one["session_id"][-4:]) for one in load), "nothing but this load was formed"
    return formed


def streams(folder: Path, agent: str, guidance: str = GUIDANCE) -> Path:
    """Another prompt for facts of users."""
    file = folder / "streams.json"
    row = {"_id": f"{agent}/user", "agent_id": agent, "scope": "user", "extraction_guidance": guidance}
    file.write_text(json.dumps([row]))
    return file


async def estimated(report: Report, settings: Settings, folder: Path) -> None:
    """Estimate and spending of the demo conversation, with another prompt."""
    messages = read_conversation().messages
    with patch.object(handlers, "Prices", Priced):
        async with (
            serving(base_seconds=0.0) as models,
            system(fast(settings, models), models) as running_system,
        ):
            names = dict.fromkeys(one.session for one in messages)
            for one in names:
                users = dict.fromkeys(m.user for m in messages if m.session == one and m.user)
                await running_system.session(*users, id=one)
            rows = [
                {
                    "_id": f"m{number:05d}",
                    "session_id": one.session,
                    "role": one.role,
                    "user_id": one.user,
                    "content": plain_text(one.content),
                    "created_at": one.created_at,
                }
                for number, one in enumerate(messages)
            ]
            await running_system.source["messages"].insert_many(rows)
            for one in names:
                await running_system.form(one)
            await _until_windows(running_system.memory("windows"), len(names))
            await quiet(running_system)
            file = streams(folder, "s.helper")
            ended, said = await reform(running_system.settings, "trial", streams=file)
            assert ended == "formed", said
            paid = await calls(running_system.database, running_system.settings, "trial")
    if os.environ.get("STAGES"):
        shown = Counter[str]()
        for one in paid:
            shown[f"{one['stage']}/{one['operation']}"] += 1
        print(said, shown)  # noqa: T201
    spent = sum((one["cost_usd"].to_decimal() for one in paid), Decimal(0))
    estimate = expected(said)
    report.results |= {"estimated_usd": float(estimate), "spent_usd": float(spent)}
    report.ratios |= {"estimated_to_spent": float(estimate / spent)}
    report.bounds |= {"estimate_within": WITHIN}
    report.rows.append(
        Row(
            "estimate, demo conversation",
            float(estimate),
            "USD",
            float(spent),
            f"spent (target ± {WITHIN:.0%})",
        )
    )


async def _until_windows(windows: Any, sessions: int) -> None:
    for _ in range(1_200):
        if len(await windows.distinct("session_id", {"requested": {"$ne": None}})) >= sessions:
            return
        await asyncio.sleep(0.1)
    raise SystemExit("the demo's windows do not close")


def settings_for(servers: TestServers, name: str) -> Settings:
    """Names of their own on these servers."""
    return Settings(
        mongodb=MongoSettings(uri=SecretStr(servers.mongodb_uri), database=name),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(  # pyright: ignore[reportCallIssue]
            bootstrap=servers.kafka_bootstrap, topic_prefix=f"{name}.", group_prefix=f"{name}."
        ),
    )


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    report = Report("reform", "what a reform of the demo conversation is expected to cost")
    with (
        tempfile.TemporaryDirectory() as name,
        running_servers(os.environ, Path(name), Path(".eden/jars")) as servers,
    ):
        asyncio.run(estimated(report, settings_for(servers, "demo"), Path(name)))
    report.show()


if __name__ == "__main__":
    main()
