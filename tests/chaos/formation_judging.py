"""The verdict of a fault run over formation: what topics, MongoDB, diaries and the model server say together."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.chaos import formation_verdict as verdict
from tests.chaos import stages_verdict
from tests.chaos.formation_chat import Chat
from tests.chaos.formation_rebuild import LIVE, PREFIX, compacted, differences, rebuild, rows_of
from tests.chaos.reader import read_whole
from tests.chaos.stages_reader import Arrived, diaries
from tests.chaos.waiting import NotInTime
from tests.model_server.serving import ModelServerProcess

FAILING = ("memory.formations", "memory.extractions")
"""Where the records of poisoned windows stand that are given up."""
FORMED = ("memory.facts", "memory.reflections", "memory.consolidations")
QUESTIONS = ("facts", "decisions", "reflections", "consolidation")
"""Not the probes of a provider that was away."""
Of = Mapping[str, Sequence[Arrived]]


@dataclass(frozen=True)
class Judged:
    """What was found."""

    violations: dict[str, list[str]]
    figures: dict[str, object]


async def judge(
    chat: Chat, of: Of, kafka: str, models: ModelServerProcess, folder: Path, partitions: int
) -> Judged:
    """After the workers have stopped: the topics are compacted and memory is made anew from them."""
    database = chat.database
    stored: list[dict[str, Any]] = await database["memory_windows"].find().to_list()
    answers: list[dict[str, Any]] = await database["memory_answers"].find({}, {"vectors": 0}).to_list()
    rows = await rows_of(database, LIVE)
    calls = stages_verdict.calls(diaries(folder))
    violations = {
        **_windows(chat, of, stored),
        **_memory(chat, of, rows, answers),
        "returned": await returned(chat, kafka, partitions),
        "leaked, in the end": await leaked(chat),
        "dead letters": await dead_letters(chat, of),
        "asked again after the answer": calls.after_the_answer,
        "calls of a question that cannot be answered": _too_many(folder),
        "rebuilt": await _rebuilt(database, kafka, partitions, rows),
    }
    letters = await database["memory_dead_letters"].count_documents({})
    return Judged(violations, {**_figures(chat, of, rows, calls, models), "dead letters": letters})


def _windows(chat: Chat, of: Of, stored: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    said = [one for one in chat.messages.values() if not one.gone]
    living = {f"s.{one.id}": {f"s.{name}" for name in one.sessions} for one in said}
    texts = {row["_id"]: [one["message_id"] for one in row["messages"]] for row in stored}
    found = stages_verdict.windows(of["memory.formations"], texts, living)
    return {
        **{f"windows, {name}": lines for name, lines in found.items()},
        "windows published twice and differently": verdict.twice(of["memory.formations"]),
    }


def _memory(
    chat: Chat, of: Of, rows: Mapping[str, Sequence[Any]], answers: Sequence[Mapping[str, Any]]
) -> dict[str, list[str]]:
    facts = verdict.markers(rows["facts"], chat.messages.values(), chat.poisoned)
    less, windows = _gone(chat) | _formed_again(of), _windows_of(of)
    left = {f"s.{one}" for one in chat.left}
    reduced = {key for key, (session, ids) in windows.items() if session in left or less & set(ids)}
    said = verdict.reflections(
        of["memory.reflections"], of["memory.extractions"], answers, reduced, _failing(chat, of)
    )
    blobs = verdict.blobs(of["memory.consolidations"])
    return {
        **{f"facts, {name}": lines for name, lines in facts.items()},
        "facts, versions with gaps": verdict.fact_versions(of["memory.facts"]),
        **{f"reflections, {name}": lines for name, lines in said.items()},
        **{f"blobs, {name}": lines for name, lines in blobs.items()},
        **{f"{topic}, one key twice and differently": verdict.twice(of[topic]) for topic in FORMED},
        "snapshots unlike the documents": verdict.snapshots(rows),
    }


def _formations(of: Of) -> dict[str, Mapping[str, Any]]:
    """Formation → its window, as it was published."""
    return {one.key: orjson.loads(one.value or b"") for one in verdict.with_value(of["memory.formations"])}


def _windows_of(of: Of) -> dict[str, tuple[str, list[str]]]:
    """Formation → session, messages."""
    return {
        key: (one["session_id"], [message["message_id"] for message in one["messages"]])
        for key, one in _formations(of).items()
    }


def _formed_again(of: Of) -> set[str]:
    """Messages whose edit took back what had been formed from them."""
    again = (one for one in _formations(of).values() if stages_verdict.forms_again(one))
    return {message["message_id"] for one in again for message in one["messages"]}


def _failing(chat: Chat, of: Of) -> set[str]:
    """Formations about which no question can be answered, and those without any message that stands."""
    poisoned, gone = {f"s.{one}" for one in chat.poisoned}, _gone(chat)
    return {key for key, (session, ids) in _windows_of(of).items() if session in poisoned or gone >= set(ids)}


def _gone(chat: Chat) -> set[str]:
    return {f"s.{one.id}" for one in chat.messages.values() if one.gone}


async def returned(chat: Chat, kafka: str, partitions: int) -> list[str]:
    """What is left of what was forgotten."""
    records = await read_whole(kafka, "chat.messages", partitions, "read_uncommitted")
    rows = {name: await chat.database[LIVE + name].find().to_list() for name in verdict.SHOWN}
    return verdict.returned(chat.messages.values(), records, rows)


async def leaked(chat: Chat) -> list[str]:
    """Ready contexts of sessions with two authors that show a user's own memory."""
    joined = [f"s.{one.id}" for one in chat.joined]
    found = chat.database["memory_contexts"].find({"session_id": {"$in": joined}})
    said = chat.messages.values()
    return [
        line
        async for one in found
        for line in verdict.leaked(one["xml"], one["session_id"].removeprefix("s."), said)
    ]


async def dead_letters(chat: Chat, of: Of) -> list[str]:
    """Both extractions of each poisoned window have one, nothing else has any."""
    poisoned = {f"s.{one}" for one in chat.poisoned}
    expected = {key for key, (session, ids) in _windows_of(of).items() if session in poisoned and ids}
    lines: list[str] = []
    rows = await chat.database["memory_dead_letters"].find().to_list()
    letters = [stages_verdict.Letter(row["topic"], (row["key"] or b"").decode()) for row in rows]
    for topic in sorted({*FAILING, *(letter.topic for letter in letters)}):
        due = expected if topic in FAILING else set[str]()
        found = [letter for letter in letters if letter.topic == topic]
        lines += [f"{topic}: {line}" for line in stages_verdict.dead_letters(found, due, ())]
    return lines


def _too_many(folder: Path) -> list[str]:
    """Questions that one process has asked more often than it may."""
    lines: list[str] = []
    for file in sorted(folder.glob("*.calls")):
        written = [orjson.loads(line) for line in file.read_bytes().splitlines() if line.endswith(b"}")]
        counts = Counter(line["key"] for line in written if line["what"] == "asked")
        refused = Counter(line["key"] for line in written if line.get("free"))
        lines += [
            f"{file.stem} asked {key} {count} times"
            for key, count in counts.items()
            if count - refused[key] > verdict.MOST_CALLS
        ]
    return lines


async def _rebuilt(
    database: Any, kafka: str, partitions: int, live: Mapping[str, Sequence[Any]]
) -> list[str]:
    try:
        records = await compacted(kafka, FORMED, partitions)
    except NotInTime as error:
        return [str(error)]
    await rebuild(database, records)
    return differences(live, await rows_of(database, PREFIX))


def _figures(
    chat: Chat,
    of: Of,
    rows: Mapping[str, Sequence[Any]],
    calls: stages_verdict.Calls,
    models: ModelServerProcess,
) -> dict[str, object]:
    asked = models.prompts().values()
    twice = sum(one["answered"] > 1 for one in asked if one["kind"] in QUESTIONS)
    first = {
        topic: len(stages_verdict.first_arrivals(verdict.with_value(ones))) for topic, ones in of.items()
    }
    formed = sum(first[topic] for topic in FORMED)
    copies = sum(len(verdict.with_value(of[topic])) for topic in FORMED) - formed
    return {
        "messages": len(chat.messages),
        "edits, deletions, said again": f"{chat.edits}, {chat.deletions}, {chat.repeats}",
        "moves, transactions": f"{chat.moves}, {chat.transactions}",
        "forgets, while formation-trigger was paused": f"{chat.forgets}, {chat.pauses}",
        "messages forgotten": sum(one.forgotten for one in chat.messages.values()),
        "sessions that gained an author": len(chat.joined),
        "windows": first["memory.formations"],
        "fact versions": first["memory.facts"],
        "active facts": sum(one["active"] for one in rows["facts"]),
        "reflections": len(rows["reflections"]),
        "blob versions": first["memory.consolidations"],
        "scopes": len(rows["snapshots"]),
        "forgotten records": first["memory.forgotten"],
        "records published again": copies,
        "calls, embedded texts among them": calls.asked,
        "calls that failed": calls.failed,
        "calls repeated, in flight at a fault": calls.repeated,
        "of these answered, not yet stored": calls.on_their_way,
        "requests to the model server": sum(one["asked"] for one in asked),
        "prompts of chats that it answered twice": twice,
    }
