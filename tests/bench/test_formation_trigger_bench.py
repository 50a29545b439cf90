"""The benchmark of formation-trigger in a short form: its bounds write what the stage wrote."""

from typing import Any

import pytest

from tests.bench.formation_trigger import (
    Database,
    Left,
    conversations,
    documents_left,
    namespace,
    report,
    stage_rate,
    write_all,
    write_left,
)
from tests.servers import TestServers

Documents = dict[str, list[dict[str, Any]]]
NOT_YET_CLEARED = ("outbox", "unpublished")


async def stored(database: Database) -> Documents:
    """What a database holds; outboxes apart, the last of which the stage clears with its next batch."""
    names = ("messages", "sessions", "windows")
    found = {name: await database["memory_" + name].find().sort("_id").to_list() for name in names}
    sessions = [
        {key: value for key, value in row.items() if key not in NOT_YET_CLEARED} for row in found["sessions"]
    ]
    return {**found, "sessions": sessions}


def texts(rows: list[dict[str, Any]]) -> list[bool]:
    return [bool(row["text"]) for row in rows]


@pytest.mark.servers
@pytest.mark.slow
async def test_the_bounds_leave_the_documents_that_the_stage_left(servers: TestServers) -> None:
    async with namespace(servers.mongodb_uri, servers.kafka_bootstrap) as kit:
        await stage_rate(kit, conversations(600, 100, 1))
        left = await documents_left(kit)
        everything, once = (kit.mongo[f"{kit.settings.mongodb.database}_{one}"] for one in ("all", "once"))
        try:
            await write_all(everything, left)
            await write_left(once, left)
            stage = await stored(kit.database)
            assert any(row["formation_id"] for row in stage["messages"])
            assert await stored(everything) == stage
            written = await stored(once)
            assert (written["windows"], written["sessions"]) == (stage["windows"], stage["sessions"])
            assert all(texts(written["messages"]))
        finally:
            await kit.mongo.drop_database(everything.name)
            await kit.mongo.drop_database(once.name)


def test_every_document_has_one_writer_and_a_sessions_documents_the_same() -> None:
    rows = [{"_id": f"s.{number}/1-a", "session_id": f"s.{number}"} for number in range(20)]
    sessions = [{"_id": f"s.{number}"} for number in range(20)]
    left = Left([], sessions, rows)
    shares = [left.share(number) for number in range(3)]
    assert sum(len(one.sessions) for one in shares) == sum(len(one.windows) for one in shares) == 20
    for share in shares:
        assert {row["_id"] for row in share.sessions} == {row["session_id"] for row in share.windows}


def test_the_report_says_what_all_writes_come_to() -> None:
    made = report({"stage": 1.0, "left": 8.0, "all": 4.0}, 10)
    assert made.ratios == {
        "of_documents_left": 0.125,
        "of_all_writes": 0.25,
        "all_writes_of_documents_left": 0.5,
    }
