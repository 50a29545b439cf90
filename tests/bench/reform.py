"""A reform beside live formation: what live windows wait, and how well its cost is estimated.

`python -m tests.bench.reform [--sessions N] [--each N]`. Private servers, live stages in one process, the reform as
the command in another, the model server in a third. History of N sessions is formed; then as many sessions are
written at a pace, first alone, then while all the history is formed anew with another prompt. The estimate is
measured on the demo conversation, with a micro-dollar a token of input and four of output.
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

from eden_memory import handlers
from eden_memory.demo.conversation import plain_text, read_conversation
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from tests.bench.formation import (
    Formed,
    Stand,
    _until_followed,  # pyright: ignore[reportPrivateUsage]
    _until_formed,  # pyright: ignore[reportPrivateUsage]
    _watching,  # pyright: ignore[reportPrivateUsage]
    _write,  # pyright: ignore[reportPrivateUsage]
    running,
    stand,
)
from tests.bench.formation_load import conversations, mark, place_of, staggered
from tests.bench.report import Report, Row, percentile
from tests.integration.formation.running_system import fast, system
from tests.integration.replay.reform_kit import Priced, calls, expected, quiet, reform
from tests.model_server.script import MARK, Asked, Said, default_script
from tests.model_server.serving import model_server_process, serving
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


def guided(asked: Asked) -> Said:
    """The usual answers; other words where the prompt has the guidance, as a model would find."""
    said = default_script(asked)
    if GUIDANCE not in asked.system + asked.user or not isinstance(said, dict):
        return said
    told: dict[str, Any] = {}
    for name, items in said.items():
        told[name] = [_decided(one) for one in items] if isinstance(items, list) else items  # pyright: ignore
    return told


def _decided(one: dict[str, Any]) -> dict[str, Any]:
    return {**one, "text": f"{one['text']} Decided."}


async def lived(made: Stand, load: Sequence[dict[str, Any]], pace: float | None) -> Formed:
    """Write, and watch until it is formed."""
    formed = Formed(sum(1 for one in load if MARK.search(one["content"])))
    async with _watching(made, formed):
        await _write(made, load, pace)
        await _until_formed(formed)
    first = min(place_of(one)[0] for one in formed.markers)
    assert first == min(int(one["session_id"][-4:]) for one in load), "nothing but this load was formed"
    return formed


def streams(folder: Path, agent: str) -> Path:
    """Another prompt for facts of users."""
    file = folder / "streams.json"
    row = {"_id": f"{agent}/user", "agent_id": agent, "scope": "user", "extraction_guidance": GUIDANCE}
    file.write_text(json.dumps([row]))
    return file


async def delays(report: Report, servers: TestServers, sessions: int, each: int, seconds: float) -> None:
    """p99 of live windows' delay, alone and beside a reform."""
    with tempfile.TemporaryDirectory() as name, model_server_process(base_seconds=seconds) as models:
        folder = Path(name)
        async with stand(servers, models, {}) as made:
            with running(made, folder / "run.log"):
                await _until_followed(made)
                await lived(made, numbered(sessions, each, 0), None)
                alone = await lived(made, numbered(sessions, each, 2_000), PACE)
                with (folder / "reform.log").open("wb") as log:
                    process = await asyncio.create_subprocess_exec(
                        *EDEN,
                        *("reform", "trial", "--yes", "--streams", str(streams(folder, "s.default"))),
                        env={**os.environ, **made.environment},
                        stdout=log,
                        stderr=log,
                    )
                    await _until_forming(made)
                    beside = await lived(made, numbered(sessions, each, 4_000), PACE)
                    going_on = process.returncode is None
                    await process.wait()
                assert process.returncode == 0, (folder / "reform.log").read_text()
    found = [[delay for delay, _ in one.delays()] for one in (alone, beside)]
    p99 = [percentile(one, 0.99) for one in found]
    report.results |= {"alone_p99_s": p99[0], "beside_p99_s": p99[1], "reform_outlasted": float(going_on)}
    report.results |= {"alone_p50_s": percentile(found[0], 0.5), "beside_p50_s": percentile(found[1], 0.5)}
    report.ratios |= {"p99_beside_to_alone": p99[1] / p99[0]}
    report.bounds |= {"p99_beside_to_alone": MORE}
    report.rows += [
        Row("delay of a live window, p99, alone", p99[0], "s"),
        Row("the same while a reform runs", p99[1], "s", p99[0], f"alone (target ≤ {MORE})"),
        Row(
            "p50 while a reform runs",
            report.results["beside_p50_s"],
            "s",
            report.results["alone_p50_s"],
            "alone",
        ),
    ]


async def _until_forming(made: Stand) -> None:
    """Until the reform has fed its first windows."""
    outcomes = made.database["memory_ns_trial_outcomes"]
    for _ in range(1_200):
        if await outcomes.count_documents({"stage": "fact-extraction"}):
            return
        await asyncio.sleep(0.1)
    raise SystemExit("the reform does not begin")


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


async def measure(
    servers: TestServers, settings: Settings, sessions: int, each: int, seconds: float, folder: Path
) -> Report:
    """Both, on servers that run."""
    report = Report("reform", f"a reform of {sessions * each:,} messages beside live formation")
    await estimated(report, settings, folder)
    await delays(report, servers, sessions, each, seconds)
    return report


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--each", type=int, default=90)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a call")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        running_servers({}, Path(name), Path(".eden/jars")) as servers,
    ):
        settings = settings_for(servers, "demo")
        work = measure(servers, settings, given.sessions, given.each, given.seconds, Path(name))
        asyncio.run(work).show()


if __name__ == "__main__":
    main()
