"""What must hold of formed memory after any faults, as pure functions; each returns one line a violation.

Rows are MongoDB's documents, standing are those that no tombstone ended.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson

from tests.chaos.formation_chat import Message
from tests.chaos.formation_script import of_agent
from tests.chaos.seen import Seen
from tests.chaos.stages_reader import Arrived
from tests.chaos.stages_verdict import doubled, first_arrivals
from tests.chaos.verdict import last_records
from tests.model_server.script import MARK

Row = Mapping[str, Any]
MOST_CALLS = 6
OWN = re.compile(r"\s*(<UserMemory\b|- \[user\])")
"""A line of a context that is a user's own memory."""
SHOWN = ("messages", "windows", "facts", "reflections", "consolidated", "blobs", "snapshots", "contexts")
"""Collections that hold texts from which memory is formed or shown."""


def with_value(arrived: Iterable[Arrived]) -> list[Arrived]:
    """Without tombstones."""
    return [one for one in arrived if one.value is not None]


def twice(arrived: Sequence[Arrived]) -> list[str]:
    """Keys that stand for two different records; a tombstone beside a record is none.

    Nor is a record that forgetting has emptied, once a tombstone ended it: a decision that is published again after
    something in it was forgotten keeps its numbers, and the writer ends it when it meets it.
    """
    last = {one.key: one for one in arrived}
    ended = {key for key, one in last.items() if one.value is None}
    return doubled(one for one in with_value(arrived) if one.key not in ended or not _emptied(one))


def _emptied(one: Arrived) -> bool:
    return orjson.loads(one.value or b"{}").get("text") == ""


def markers(facts: Sequence[Row], said: Iterable[Message], poisoned: Collection[str]) -> dict[str, list[str]]:
    """Each marker of a message that stands is one active fact in its scope, resting on all who said it."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in facts:
        for marker in MARK.findall(row["content"]) if row["active"] else ():
            found[marker].append(row)
    told: dict[str, list[Message]] = defaultdict(list)
    for one in said:
        if one.marker and one.session not in poisoned:
            told[one.marker].append(one)
    lines: dict[str, list[str]] = {"lost": [], "doubled": [], "wrong": [], "not forgotten": []}
    for marker, ones in told.items():
        _judge(marker, ones, found.pop(marker, []), lines)
    lines["wrong"] += [f"{marker} was said by nobody" for marker in found]
    return lines


def _judge(
    marker: str, told: Sequence[Message], facts: Sequence[Row], lines: Mapping[str, list[str]]
) -> None:
    standing = [one for one in told if not one.gone]
    if not standing:
        lines["not forgotten"].extend(f"{marker} is {row['_id']}, and is gone" for row in facts)
        return
    if not facts:
        lines["lost"].append(f"{marker} of {[one.id for one in standing]} is no active fact")
    if len(facts) > 1:
        lines["doubled"].append(f"{marker} is {[row['_id'] for row in facts]}")
    scopes = _scopes(marker, standing[0])
    for row in facts:
        rests, expected = set(row["message_ids"]), {f"s.{one.id}" for one in standing}
        if row["scope_key"] not in scopes or not expected <= rests <= {f"s.{one.id}" for one in told}:
            lines["wrong"].append(f"{marker}: {row['_id']} of {row['scope_key']} rests on {sorted(rests)}")


def _scopes(marker: str, one: Message) -> set[str]:
    """Where its fact may be: never a user's own memory once a second author is in the session."""
    agent, user = "agent:s.default", f"user:s.default:s.{one.user}"
    if of_agent(marker) or one.shared == "after":
        return {agent}
    return {user} if one.shared == "no" else {agent, user}


def leaked(xml: str, session: str, said: Iterable[Message]) -> list[str]:
    """What a context of a session with two authors shows of a user's own memory."""
    told: dict[str, list[Message]] = defaultdict(list)
    for one in said:
        if one.marker:
            told[one.marker].append(one)
    found = [f"{session}: {line.strip()}" for line in xml.splitlines() if OWN.match(line)]
    for marker in dict.fromkeys(MARK.findall(xml)):
        ones = told[marker]
        private = all(one.shared == "no" and session not in one.sessions for one in ones)
        if private and not of_agent(marker):
            found.append(f"{session}: {marker} of {sorted({one.user for one in ones})}")
    return found


def returned(said: Iterable[Message], chat: Iterable[Seen], rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """What is left of forgotten messages: in their newest records, in any text, in what rests on them alone.

    `rows`: collection without prefix → documents.
    """
    told = list(said)
    forgotten = {f"s.{one.id}" for one in told if one.forgotten}
    gone = {f"s.{one.id}" for one in told if one.gone}
    standing = {one.marker for one in told if not one.gone}
    markers = {one.marker for one in told if one.marker and one.forgotten} - standing
    lines = [
        f"chat.messages: {key} stands in partition {place}, offset {last.offset}"
        for key, places in last_records(chat).items()
        if key in forgotten
        for place, last in places.items()
        if last.kind == "message"
    ]
    lines += [
        f"messages: {one['_id']}" for one in rows["messages"] if one["_id"] in forgotten and one["text"]
    ]
    lines += [
        f"windows: {one['message_id']} in {row['_id']}"
        for row in rows["windows"]
        for one in row["messages"]
        if one["message_id"] in forgotten and one.get("text")
    ]
    for name in ("facts", "reflections"):
        for row in rows[name]:
            rests = set(row["message_ids"])
            if rests and rests <= gone and rests & forgotten:
                lines.append(f"{name}: {row['_id']} rests on {sorted(rests)}")
    for name in SHOWN:
        for row in rows[name]:
            shown = markers & set(MARK.findall(str(row)))
            lines += [f"{name}: {one} in {row['_id']}" for one in sorted(shown)]
    return lines


def fact_versions(arrived: Iterable[Arrived]) -> list[str]:
    """Versions of a fact without gap, beginning with 1."""
    versions: dict[str, set[int]] = defaultdict(set)
    for one in arrived:
        fact, _, version = one.key.rpartition("@")
        versions[fact].add(int(version))
    return [
        f"{fact} has the versions {sorted(found)}"
        for fact, found in versions.items()
        if sorted(found) != list(range(1, len(found) + 1))
    ]


def reflections(
    arrived: Iterable[Arrived],
    extractions: Iterable[Arrived],
    answers: Sequence[Row],
    reduced: Collection[str],
    failed: Collection[str],
) -> dict[str, list[str]]:
    """Per formation exactly what one kept answer said; less only for `reduced` windows, `failed` say nothing.

    Of `reduced` windows a message or user was forgotten: answers about them may be deleted, and where nobody is
    left no question is asked. Nothing is known of these then.
    """
    formed: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for one in first_arrivals(with_value(arrived)):
        if one.name == "ReflectionFormed" and not _emptied(one):
            event = orjson.loads(one.value or b"")
            formed[event["formation_id"]][event["scope"]["kind"], event["text"]] += 1
    units = {f"reflection-extraction:{one.headers['ce_id']}": one.key for one in extractions if one.value}
    said: dict[str, list[Counter[tuple[str, str]]]] = defaultdict(list)
    for row in answers:
        if (formation := units.get(row.get("unit") or "")) and not row.get("invalid"):
            stated = orjson.loads(row["text"])["reflections"]
            said[formation].append(Counter((one["scope"], one["text"]) for one in stated))
    lines: dict[str, list[str]] = {"lost": [], "not what was said": []}
    for formation in set(units.values()) - set(failed) - (set(reduced) - set(said)):
        got, options = formed.get(formation, Counter()), said[formation]
        if got in options or (formation in reduced and any(got <= one for one in options)):
            continue
        kind = "lost" if not got else "not what was said"
        lines[kind].append(f"{formation}: {dict(got)}, answers {[dict(one) for one in options]}")
    texts = Counter(text for found in formed.values() for (_, text) in found.elements())
    lines["doubled"] = [f"{text!r} was formed {count} times" for text, count in texts.items() if count > 1]
    return lines


def blobs(arrived: Iterable[Arrived]) -> dict[str, list[str]]:
    """Versions of a scope without gap; a reflection is in one standing version at most."""
    versions: dict[str, set[int]] = defaultdict(set)
    last: dict[str, Arrived] = {}
    for one in arrived:
        scope, _, version = one.key.rpartition("@")
        versions[scope].add(int(version))
        last[one.key] = one
    absorbed: dict[str, list[str]] = defaultdict(list)
    for one in with_value(last.values()):
        for name in orjson.loads(one.value or b"")["absorbed"]:
            absorbed[name].append(one.key)
    return {
        "with gaps": [
            f"{scope} has the versions {sorted(found)}"
            for scope, found in versions.items()
            if sorted(found) != list(range(1, len(found) + 1))
        ],
        "absorbed twice": [f"{name} is in {keys}" for name, keys in absorbed.items() if len(keys) > 1],
    }


def snapshots(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Snapshots that do not say what the documents say (collection without prefix → rows)."""
    active: dict[str, set[str]] = defaultdict(set)
    waiting: dict[str, set[str]] = defaultdict(set)
    for one in rows["facts"]:
        if one["active"]:
            active[one["scope_key"]].add(one["_id"])
    for one in rows["reflections"]:
        if not one["absorbed"]:
            waiting[one["scope_key"]].add(one["_id"])
    blob = {one["_id"]: (one["version"], one["content"]) for one in rows["consolidated"]}
    lines: list[str] = []
    for one in rows["snapshots"]:
        key = one["_id"]
        recent = {fact["fact_id"] for fact in one["recent_facts"]}
        lines += [
            f"{key}: {what}"
            for what, right in {
                "its count of active facts": one["active_facts"] == len(active[key]),
                "its recent facts": recent <= active[key] and len(recent) == min(40, len(active[key])),
                "its buffer": {item["reflection_id"] for item in one["buffer"]} == waiting[key],
                "its blob": (one["blob_version"], one["blob"]) == blob.get(key, (0, None)),
            }.items()
            if not right
        ]
    known = {one["_id"] for one in rows["snapshots"]}
    return lines + [f"{key} has no snapshot" for key in {*active, *waiting, *blob} - known]
