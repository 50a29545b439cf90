"""The MongoDB server: version, replica set, clock, oplog, permissions."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import Timestamp
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from eden_memory.doctor.finding import Finding
from eden_memory.doctor.privileges import Privilege, missing
from eden_memory.formation.sharing_store import Learning, learning
from eden_memory.memory.version_store import stored_sharing
from eden_memory.placement import Placement
from eden_memory.replay.namespaces.namespace_names import goes_on
from eden_memory.replay.namespaces.namespace_store import MongoLive
from eden_memory.replay.reform.reform_store import neglected
from eden_memory.schemas.documents import Namespace
from eden_memory.schemas.scopes import SharingMode
from eden_memory.settings import Settings

OLDEST = (6, 0)
SKEW_WARN, SKEW_FAIL = timedelta(seconds=1), timedelta(seconds=30)
OPLOG_WARN, OPLOG_FAIL = timedelta(hours=72), timedelta(hours=24)
FULL = 0.9
"""Share of its size from which an oplog counts as full."""

Client = AsyncMongoClient[dict[str, Any]]
Answer = Mapping[str, Any]


async def server_version(client: Client) -> Finding:
    """Change streams with pre-images need MongoDB 6.0."""
    return judge_version(str((await client.admin.command("buildInfo"))["version"]))


def judge_version(text: str) -> Finding:
    """Of a version as the server writes it, `6.0.5`."""
    major, minor = (int(part) for part in text.split(".")[:2])
    if (major, minor) < OLDEST:
        return Finding("MongoDB version", "fail", f"MongoDB {text}", "Upgrade to MongoDB 6.0 or newer.")
    return Finding("MongoDB version", "ok", f"MongoDB {text}")


async def live_namespace(client: Client, settings: Settings) -> Finding:
    """Which memory is read and formed, and whether what is forgotten leaves all that there is beside it."""
    database, prefix = client[settings.mongodb.database], settings.mongodb.prefix
    placement = await MongoLive(database, prefix).placement()
    return judge_namespaces(placement, await neglected(database, prefix))


async def sharing(client: Client, settings: Settings) -> Finding:
    """Which agents learn from what their users say, and whether their models may share it."""
    memory, chosen = client[settings.mongodb.database], settings.memory.sharing
    stored = await stored_sharing(memory, settings.names)
    found = await learning(client[settings.source_database], memory, settings, stored or chosen or "private")
    return judge_sharing(chosen, stored, found)


def judge_sharing(chosen: SharingMode | None, stored: SharingMode | None, found: Learning) -> Finding:
    """`chosen` by the settings, and what the store says; `found` with the mode that holds."""
    if chosen is not None and stored not in (None, chosen):
        what = f"{found.says}; settings say {chosen}"
        return Finding("sharing", "warn", what, "Restart every `eden run`.")
    if found.lacking:
        what = f"{found.says}; but their models share nothing of it: {'; '.join(found.lacking)}"
        return Finding("sharing", "warn", what, "Run `eden models check --sharing`, or choose another model.")
    return Finding("sharing", "ok", found.says)


def judge_namespaces(live: Placement, left: Sequence[Namespace]) -> Finding:
    """`left`: those in which what is forgotten stays."""
    what = f"{live.memory} is live, pipeline {live.pipeline}"
    if not left:
        return Finding("namespace", "ok", what)
    named = ", ".join(namespace.id for namespace in left)
    return Finding(
        "namespace",
        "warn",
        f"{what}; begun and left, so that what is forgotten stays in them: {named}",
        "; ".join(goes_on(namespace) for namespace in left),
    )


async def replica_set(client: Client) -> Finding:
    """Change streams exist on replica sets and sharded clusters only."""
    return judge_topology(await client.admin.command("hello"))


def judge_topology(hello: Answer) -> Finding:
    """Of the server's answer to `hello`."""
    if hello.get("msg") == "isdbgrid":
        return Finding("replica set", "ok", "sharded cluster")
    if "setName" not in hello:
        return Finding(
            "replica set",
            "fail",
            "a standalone server: it has no change streams",
            "Start mongod with --replSet rs0 and run rs.initiate() once; one member is enough.",
        )
    members = len(hello.get("hosts", []))
    return Finding("replica set", "ok", f"{hello['setName']}, {members} member{'s' if members != 1 else ''}")


async def clock(client: Client) -> Finding:
    """This machine's clock against the server's, half the answer's time taken off."""
    before = datetime.now(UTC)
    hello = await client.admin.command("hello")
    middle = before + (datetime.now(UTC) - before) / 2
    return judge_clock(middle - hello["localTime"].replace(tzinfo=UTC))


def judge_clock(skew: timedelta) -> Finding:
    """Of this machine's time less the server's."""
    seconds = skew.total_seconds()
    what = f"this machine is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} MongoDB"
    hint = "Let both machines follow the same time servers (chrony, systemd-timesyncd)."
    if abs(skew) >= SKEW_FAIL:
        return Finding("clock", "fail", what, hint)
    if abs(skew) >= SKEW_WARN:
        return Finding("clock", "warn", what, hint)
    return Finding("clock", "ok", f"{abs(seconds) * 1000:.0f} ms from MongoDB's")


async def oplog_window(client: Client) -> Finding:
    """For how long a stopped tailer finds its place again."""
    oplog = client["local"]["oplog.rs"]
    try:
        first = await oplog.find_one(sort=[("$natural", 1)], projection={"ts": 1})
        last = await oplog.find_one(sort=[("$natural", -1)], projection={"ts": 1})
        size = await client["local"].command("collStats", "oplog.rs")
    except OperationFailure as error:
        return _oplog_unknown(f"it cannot be read: {error.details or error}")
    if first is None or last is None:
        return _oplog_unknown("this server shows none (a sharded cluster has one on every shard)")
    return judge_oplog(_span(first["ts"], last["ts"]), float(size["size"]) / float(size["maxSize"]))


def judge_oplog(span: timedelta, filled: float) -> Finding:
    """Of the time between first and last entry, and how full it is (0 to 1): until full it is projected."""
    if filled < FULL and span < timedelta(hours=1):
        return Finding("oplog window", "ok", f"{filled:.1%} full after {_hours(span)}: too young to judge")
    window = span if filled >= FULL else span / max(filled, 1e-6)
    projected = "" if filled >= FULL else f" ({filled:.0%} full: {_hours(window)} at this pace)"
    state = "fail" if window < OPLOG_FAIL else "warn" if window < OPLOG_WARN else "ok"
    hint = "" if state == "ok" else "db.adminCommand({replSetResizeOplog: 1, minRetentionHours: 72})"
    return Finding("oplog window", state, f"{_hours(span)} held{projected}", hint)


async def permissions(client: Client, needed: list[Privilege]) -> Finding:
    """Compare the rights of the connection's user with the least that the program needs."""
    status = await client.admin.command("connectionStatus", showPrivileges=True)
    return judge_permissions(status["authInfo"], needed)


def judge_permissions(info: Answer, needed: list[Privilege]) -> Finding:
    """Of `authInfo` in the server's answer to `connectionStatus`."""
    if not info["authenticatedUsers"]:
        return Finding(
            "MongoDB permissions",
            "warn",
            "connected without a user",
            "Fine for trying out; elsewhere give the program the role that `eden doctor --rights` prints.",
        )
    lacking = missing(needed, info["authenticatedUserPrivileges"])
    user = info["authenticatedUsers"][0]["user"]
    if lacking:
        named = "; ".join(map(str, lacking))
        return Finding(
            "MongoDB permissions",
            "fail",
            f"{user} lacks {named}",
            "Grant the role that `eden doctor --rights` prints.",
        )
    return Finding("MongoDB permissions", "ok", f"{user} may do all that is needed")


def _span(first: Timestamp, last: Timestamp) -> timedelta:
    return timedelta(seconds=last.time - first.time)


def _hours(span: timedelta) -> str:
    return f"{span.total_seconds() / 3600:,.1f} h"


def _oplog_unknown(why: str) -> Finding:
    hint = (
        "It should hold 72 hours: a tailer that stood still for longer has to compare the whole collection."
    )
    return Finding("oplog window", "warn", why, hint)
