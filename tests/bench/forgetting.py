"""A user of 100,000 messages forgotten beside live traffic, and a session of 1,000 messages undone offline.

`python -m tests.bench.forgetting [--messages N] [--undo N] [--live SESSIONS] [--each N]`. Private servers; all
stages in one process, the model server in another. The user's messages go through the real stages, with calls of 0
s and a marked fact in every tenth. The application's messages have the indexes that `eden doctor` asks for. What
collections hold is counted before and after: docs/scaling.md is made of it. Then other users write at a pace: alone,
while that user is forgotten, and alone again, with calls of 1 s. The session of the undo is formed by the offline
rules with the local embedder, like what stood there before it.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from eden_memory.mongo.ids import encode_id
from eden_memory.receipts.looking_again_store import LookingAgain
from eden_memory.receipts.receipt import Receipt, StillThere
from eden_memory.receipts.receipt_store import Receipts
from eden_memory.replay.installation import Installation, installation
from eden_memory.source.inbox_store import ForgetRequests
from eden_memory.unpoison.attack_store import AttackUndo
from tests.bench.formation_run import Formed, Stand, running, stand, until_followed, write
from tests.bench.reform import PACE, lived, numbered
from tests.bench.reform_delays import interval
from tests.bench.report import Report, Row, percentile
from tests.model_server.script import MARK
from tests.model_server.serving import ModelServerProcess, model_server_process
from tests.servers import TestServers, running_servers

MESSAGES, OF_A_SESSION, ONE_IN, FIRST = 100_000, 450, 10, 5_000
SESSIONS, EACH, BESIDE = 20, 90, 3
"""Live chats, messages of each alone, and how many times as many meanwhile."""
MOST_SECONDS, MOST_RATIO = 120.0, 1.3
UNDONE, MOST_UNDO_SECONDS = 1_000, 10.0
USER, VISITOR = "user-forgotten", "user-visitor"
PATIENCE = 3_600.0
OFFLINE = {"EDEN_LLM": "offline", "EDEN_EMBEDDER": "local"}
SYLLABLES = (
    ("bre", "cor", "dal", "fen", "gar", "hol", "jor", "kel", "lun", "mar"),
    ("nal", "tis", "van", "dor", "lek", "min", "rus", "pel", "gan", "sel"),
    ("a", "o", "en", "is", "ul", "ar", "et", "ix", "on", "y"),
    ("", "ta", "mo", "ri", "su", "ne", "ko", "la", "di", "pe"),
)
JOBS = [
    "baker",
    "pilot",
    "nurse",
    "tailor",
    "welder",
    "printer",
    "farmer",
    "sailor",
    "teacher",
    "potter",
    "miner",
]
CITIES = [
    "Porto",
    "Lund",
    "Turin",
    "Visby",
    "Ghent",
    "Cork",
    "Basel",
    "Split",
    "Tartu",
    "Delft",
    "Bergen",
    "Nantes",
    "Graz",
]
Message = dict[str, Any]


def history(count: int) -> list[Message]:
    """So many messages of one user's sessions, a marker in every tenth."""
    sessions = -(-count // OF_A_SESSION)
    return [_of_user(message) for message in numbered(sessions, OF_A_SESSION, FIRST)[:count]]


def _of_user(message: Message) -> Message:
    text, marked = message["content"], int(message["_id"][-4:]) % ONE_IN == 0
    return {
        **message,
        "user_id": message["user_id"] and USER,
        "content": text if marked else MARK.sub("indeed", text),
    }


async def until(condition: Callable[[], Awaitable[bool]], what: str, pause: float = 0.1) -> None:
    """Look again and again until something holds."""
    end = time.monotonic() + PATIENCE
    while not await condition():
        if time.monotonic() > end:
            raise SystemExit(f"not within {PATIENCE:.0f} s: {what}")
        await asyncio.sleep(pause)


class Memories:
    """Counts of what is stored of a user or session."""

    def __init__(self, made: Stand, field: str, name: str) -> None:
        self._made, self._field, self._name = made, field, encode_id(name)

    def of(self, collection: str) -> Any:
        """A collection of memory."""
        return self._made.database[self._made.settings.names[collection]]

    async def counts(self) -> tuple[int, int]:
        """Facts and reflections."""
        query = {self._field: self._name}
        facts, reflections = self.of("facts"), self.of("reflections")
        return await facts.count_documents(query), await reflections.count_documents(query)

    async def settled(self, seconds: float) -> tuple[int, int]:
        """Facts and reflections, as soon as there are some and none has come for so long."""
        seen, since = (0, 0), time.monotonic()
        while time.monotonic() - since < seconds or not sum(seen):
            await asyncio.sleep(0.2)
            if (now := await self.counts()) != seen:
                seen, since = now, time.monotonic()
        return seen

    async def gone(self) -> bool:
        """Whether no fact, no reflection and no message is left."""
        query = {self._field: self._name}
        for collection in ("facts", "reflections"):
            if await self.of(collection).find_one(query, {"_id": 1}) is not None:
                return False
        own = self._field.rpartition(".")[2].replace("session_ids", "session_id")
        return (
            await self.of("messages").find_one({own: self._name, "text": {"$ne": None}}, {"_id": 1}) is None
        )


async def forgetting(report: Report, servers: TestServers, messages: int, live: tuple[int, int]) -> None:
    """Form the user's memory, then forget it between two turns of live traffic."""
    with tempfile.TemporaryDirectory() as name, model_server_process(base_seconds=0.0) as models:
        async with stand(servers, models, {}) as made:
            await _index(made)
            memories = Memories(made, "sources.user_id", USER)
            with running(made, Path(name) / "run.log"):
                await until_followed(made)
                began = time.monotonic()
                await write(made, history(messages), None)
                quiet = max(5.0, messages / 5_000)
                facts, reflections = await memories.settled(quiet)
                report.results["formed_in_s"] = time.monotonic() - began - quiet
            report.results |= {"messages": messages, "facts": facts, "reflections": reflections}
            report.results |= await _sizes(made, "formed")
            print(report.line(), file=sys.stderr, flush=True)  # noqa: T201 - a run that is ended early has this
            models.change(base_seconds=1.0)
            with running(made, Path(name) / "run.log"):
                await until_followed(made)
                await _by_turns(report, made, memories, *live)


async def _index(made: Stand) -> None:
    """Make the indexes that `eden doctor` and the log ask for."""
    paths, messages = made.settings.messages, made.database["messages"]
    await messages.create_index([(paths.session_id, 1), (paths.role, 1), (paths.user_id, 1)])
    await messages.create_index([(paths.user_id, 1), (paths.created_at, -1), ("_id", -1)])


async def _sizes(made: Stand, when: str) -> dict[str, float]:
    """Documents of each of our collections, and MB of them and of their indexes."""
    sizes: dict[str, float] = {}
    prefix = made.settings.mongodb.prefix
    for name in await made.database.list_collection_names(filter={"name": {"$regex": f"^{prefix}"}}):
        stored = await made.database.command({"collStats": name})
        for what, value in (("documents", stored["count"]), ("mb", stored["size"] / 1e6)):
            sizes[f"{name}_{what}_{when}"] = value
        sizes[f"{name}_indexes_mb_{when}"] = stored["totalIndexSize"] / 1e6
    return sizes


async def _by_turns(report: Report, made: Stand, memories: Memories, sessions: int, each: int) -> None:
    alone = [*_delays(await lived(made, numbered(sessions, each, 0), PACE))]
    live = asyncio.create_task(lived(made, numbered(sessions, BESIDE * each, 200), PACE))
    await asyncio.sleep(5)  # until windows close
    began = time.time()
    async with installation(made.settings) as at:
        request = await ForgetRequests(at.source, at.database, at.settings, "bench").ask("user", USER)
        await until(memories.gone, "the user is forgotten")
        seconds = time.time() - began
        receipt = await Receipts(at).of(request, PATIENCE)
        settled = time.time()
        beside = [*_delays(await live, began, settled)]
        left = await _left(LookingAgain(at), receipt)
    alone += _delays(await lived(made, numbered(sessions, each, 400), PACE))
    report.results |= await _sizes(made, "forgotten")
    report.results |= {"forgotten_s": seconds, "receipt_s": settled - began}
    _described(report, alone, beside)
    print(report.line(), file=sys.stderr, flush=True)  # noqa: T201 - the same
    assert not left, f"left: {left[:3]}"
    report.ratios["seconds_to_most"] = seconds / MOST_SECONDS
    report.ratios["seconds_to_formed"] = seconds / report.results["formed_in_s"]
    said = f"target; {report.results['facts']:,.0f} facts, {report.results['reflections']:,.0f} reflections"
    what = f"a user of {report.results['messages']:,.0f} messages"
    report.rows += [
        Row(f"{what} forgotten beside live traffic", seconds, "s", MOST_SECONDS, said),
        Row("until its receipt can be signed", settled - began, "s"),
    ]


async def _left(looking: LookingAgain, receipt: Receipt) -> Sequence[StillThere]:
    """Return what the receipt names and is still there a minute after its last decision was stored."""
    left: Sequence[StillThere] = ()
    for _ in range(12):
        if not (left := (await looking.at(receipt)).still_there):
            break
        await asyncio.sleep(5)
    return left


def _delays(formed: Formed, began: float = 0.0, ended: float = float("inf")) -> list[float]:
    return [delay for delay, _ in formed.delays(began, ended)]


def _described(report: Report, alone: list[float], beside: list[float]) -> None:
    for share, name in ((0.99, "p99"), (0.5, "p50")):
        before, after = percentile(alone, share), percentile(beside, share)
        low, high = interval(alone, beside, share)
        report.results |= {f"alone_{name}_s": before, f"beside_{name}_s": after}
        report.results |= {f"{name}_ratio_low": low, f"{name}_ratio_high": high}
        report.ratios[f"{name}_beside_to_alone"] = after / before
        said = f"alone ({len(alone)} windows); ratio {low:.2f}-{high:.2f} in 90 %"
        said += f"; target ≤ {MOST_RATIO}" if name == "p99" else ""
        report.rows.append(Row(f"{name} of {len(beside)} live windows meanwhile", after, "s", before, said))
    report.bounds["p99_beside_to_alone"] = MOST_RATIO


def statements(session: str, count: int, first: int) -> list[Message]:
    """So many messages that the offline rules find a fact or a preference in, each of another name."""
    began = datetime(2026, 2, 1, tzinfo=UTC)
    return [
        {
            "_id": f"{session}-{number:05d}",
            "session_id": session,
            "role": "user",
            "user_id": VISITOR,
            "content": _stated(number),
            "created_at": began + timedelta(seconds=number),
        }
        for number in range(first, first + count)
    ]


def _stated(number: int) -> str:
    digits = f"{number:04d}"[::-1]
    name = "".join(part[int(digit)] for part, digit in zip(SYLLABLES, digits, strict=False)).capitalize()
    if number % 9 == 8:
        return f"I prefer short answers about {name} engines."
    return f"{name} works as a {JOBS[number % len(JOBS)]} in {CITIES[number % len(CITIES)]}."


async def undoing(report: Report, servers: TestServers, models: ModelServerProcess, count: int) -> None:
    """Form a session and then another that is undone."""
    with tempfile.TemporaryDirectory() as name:
        async with stand(servers, models, OFFLINE) as made:
            with running(made, Path(name) / "run.log"):
                await until_followed(made)
                for session, first, size in (("session-1", 0, count // 10), ("session-2", count, count)):
                    await write(made, statements(session, size, first), None)
                    await _form(made, session)
                    formed = await Memories(made, "session_ids", session).settled(5)
                async with installation(made.settings) as at:
                    planned, seconds = await _undone(at, "session-2")
    facts, reflections = formed
    report.results |= {"undo_plan_s": planned, "undo_s": seconds}
    report.results |= {"undo_facts": facts, "undo_reflections": reflections}
    report.ratios["undo_to_most"] = seconds / MOST_UNDO_SECONDS
    said = f"target; {facts:,} facts, {reflections:,} reflections"
    report.rows.append(Row(f"a session of {count:,} messages undone", seconds, "s", MOST_UNDO_SECONDS, said))
    report.rows.append(Row("its plan, of that", planned, "s"))


async def _form(made: Stand, session: str) -> None:
    inbox = made.database[made.settings.names["inbox"]]
    await inbox.insert_one({"kind": "form_now", "session_id": session, "asked_by": "bench"})


async def _undone(at: Installation, session: str) -> tuple[float, float]:
    """Seconds until the plan is there, and until nothing of it is left."""
    work, began = AttackUndo(at), time.monotonic()
    attack = await work.named("session", session)
    plan = await work.plan(attack)
    planned = time.monotonic() - began
    await work.ask(attack, plan, "bench")
    await work.finish(attack, plan, "bench")
    return planned, time.monotonic() - began


async def measured(
    report: Report, servers: TestServers, messages: int, undone: int, live: tuple[int, int]
) -> None:
    """Both, into the report; 0 leaves one out."""
    if undone:
        with model_server_process() as models:
            await undoing(report, servers, models, undone)
    if messages:
        await forgetting(report, servers, messages, live)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--undo", type=int, default=UNDONE)
    parser.add_argument("--live", type=int, default=SESSIONS, help="chats beside it")
    parser.add_argument("--each", type=int, default=EACH, help="messages of a live chat alone")
    given = parser.parse_args()
    report = Report("forgetting", "forgetting beside live traffic, and undoing an attack")
    with (
        tempfile.TemporaryDirectory() as name,
        running_servers(os.environ, Path(name), Path(".eden/jars")) as servers,
    ):
        asyncio.run(measured(report, servers, given.messages, given.undo, (given.live, given.each)))
    report.show()


if __name__ == "__main__":
    main()
