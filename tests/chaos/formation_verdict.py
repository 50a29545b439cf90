"""What must hold of formed memory after any faults, as pure functions; each returns one line a violation.

Rows are MongoDB's documents, standing are those that no tombstone ended.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson

from tests.chaos.formation_chat import Message
from tests.chaos.formation_script import of_agent
from tests.chaos.stages_reader import Arrived
from tests.chaos.stages_verdict import doubled, first_arrivals
from tests.model_server.script import MARK

Row = Mapping[str, Any]
MOST_CALLS = 6


def with_value(arrived: Iterable[Arrived]) -> list[Arrived]:
    """Without tombstones."""
    return [one for one in arrived if one.value is not None]


def twice(arrived: Iterable[Arrived]) -> list[str]:
    """Keys that stand for two different records; a tombstone beside a record is none."""
    return doubled(with_value(arrived))


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
    standing = [one for one in told if not one.deleted]
    if not standing:
        lines["not forgotten"].extend(f"{marker} is {row['_id']}, and was deleted" for row in facts)
        return
    if not facts:
        lines["lost"].append(f"{marker} of {[one.id for one in standing]} is no active fact")
    if len(facts) > 1:
        lines["doubled"].append(f"{marker} is {[row['_id'] for row in facts]}")
    scope = "agent:s.default" if of_agent(marker) else f"user:s.default:s.{standing[0].user}"
    for row in facts:
        rests, expected = set(row["message_ids"]), {f"s.{one.id}" for one in standing}
        if row["scope_key"] != scope or not expected <= rests <= {f"s.{one.id}" for one in told}:
            lines["wrong"].append(f"{marker}: {row['_id']} of {row['scope_key']} rests on {sorted(rests)}")


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
    shortened: Collection[str],
    failed: Collection[str],
) -> dict[str, list[str]]:
    """Per formation exactly what one kept answer said; less only for `shortened` windows, `failed` say nothing."""
    formed: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for one in first_arrivals(with_value(arrived)):
        if one.name == "ReflectionFormed":
            event = orjson.loads(one.value or b"")
            formed[event["formation_id"]][event["scope"]["kind"], event["text"]] += 1
    units = {f"reflection-extraction:{one.headers['ce_id']}": one.key for one in extractions if one.value}
    said: dict[str, list[Counter[tuple[str, str]]]] = defaultdict(list)
    for row in answers:
        if (formation := units.get(row.get("unit") or "")) and not row.get("invalid"):
            stated = orjson.loads(row["text"])["reflections"]
            said[formation].append(Counter((one["scope"], one["text"]) for one in stated))
    lines: dict[str, list[str]] = {"lost": [], "not what was said": []}
    for formation in set(units.values()) - set(failed):
        got, options = formed.get(formation, Counter()), said[formation]
        if got in options or (formation in shortened and any(got <= one for one in options)):
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
