"""What must hold of the stages after any faults, as pure functions; each returns one line a violation."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from tests.chaos.stages_reader import Arrived


def text_of(one: Arrived) -> str:
    """The answer's; empty for what could not be answered."""
    return str(orjson.loads(one.value or b"{}").get("text", ""))


def lost(expected: Iterable[str], arrived: Iterable[Arrived]) -> list[str]:
    """Inputs without any output."""
    seen = {one.key for one in arrived}
    return [f"{key} has no output" for key in expected if key not in seen]


def doubled(arrived: Iterable[Arrived]) -> list[str]:
    """Keys under which two different records were published."""
    found: dict[str, dict[bytes | None, Arrived]] = defaultdict(dict)
    for one in arrived:
        found[one.key].setdefault(one.value, one)
    return [
        f"{key}: {len(values)} different records at "
        + ", ".join(f"{one.partition}@{one.offset}" for one in values.values())
        + _differences(list(values))
        for key, values in found.items()
        if len(values) > 1
    ]


def _differences(values: Sequence[bytes | None]) -> str:
    """Fields in which records of one key differ, with their values: the beginning of an explanation."""
    try:
        events = [orjson.loads(one or b"{}") for one in values]
    except orjson.JSONDecodeError:
        return ""
    names = sorted({name for one in events for name in one})
    unequal = [name for name in names if any(one.get(name) != events[0].get(name) for one in events)]
    return "".join(f"; {name}: " + " | ".join(str(one.get(name)) for one in events) for name in unequal)


def unlike_the_ledger(arrived: Iterable[Arrived], decided: Mapping[str, bytes]) -> list[str]:
    """Published records that are not what the ledger holds."""
    return [
        f"{one.key} at {one.partition}@{one.offset} is not the stored outcome"
        for one in arrived
        if decided.get(one.key) != one.value
    ]


def misjudged(arrived: Iterable[Arrived], poisoned: Collection[str]) -> list[str]:
    """Good questions given up, and poisoned ones answered."""
    return [
        f"{one.key} is {'poisoned' if one.key in poisoned else 'good'} and was {one.name}"
        for one in first_arrivals(arrived)
        if (one.name == "Unanswered") != (one.key in poisoned)
    ]


def first_arrivals(arrived: Iterable[Arrived]) -> list[Arrived]:
    """The first record of each key, as they came."""
    first: dict[str, Arrived] = {}
    for one in arrived:
        first.setdefault(one.key, one)
    return list(first.values())


def reordered(arrived: Iterable[Arrived]) -> list[str]:
    """Answers of one session that came first out of their order."""
    by_session: dict[str, list[tuple[int, Arrived]]] = defaultdict(list)
    for one in first_arrivals(arrived):
        session, _, number = one.key.rpartition("-")
        by_session[session].append((int(number), one))
    return [
        f"session {session}: {after[0]} came at {after[1].partition}@{after[1].offset}, after {before[0]}"
        for session, ones in by_session.items()
        for before, after in pairwise(sorted(ones, key=lambda pair: pair[1].offset))
        if after[0] < before[0]
    ]


def versions(arrived: Iterable[Arrived], texts: Mapping[str, str]) -> dict[str, list[str]]:
    """The second hop: each question in one version, versions without gaps, in order, with the right texts."""
    found: dict[str, list[str]] = {"lost": [], "doubled": [], "reordered": [], "wrong": []}
    by_session: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in first_arrivals(arrived):
        kept = orjson.loads(one.value or b"{}")
        by_session[kept["session"]].append(kept)
    for session, kept in by_session.items():
        numbers = [number for one in kept for number in one["numbers"]]
        if [one["version"] for one in kept] != list(range(1, len(kept) + 1)):
            found["reordered"].append(f"session {session}: versions {[one['version'] for one in kept]}")
        found["doubled"] += [
            f"{session}-{one} is in two versions" for one in set(numbers) if numbers.count(one) > 1
        ]
        if numbers != sorted(numbers):
            found["reordered"].append(f"session {session}: kept in the order {numbers}")
        pairs = [pair for one in kept for pair in zip(one["numbers"], one["texts"], strict=True)]
        found["wrong"] += [
            f"{session}-{number} was kept as {text!r}, published as {texts.get(f'{session}-{number}')!r}"
            for number, text in pairs
            if texts.get(f"{session}-{number}") != text
        ]
    kept_keys = {
        f"{session}-{n}" for session, kept in by_session.items() for one in kept for n in one["numbers"]
    }
    found["lost"] = [f"{key} is in no version" for key in texts if key not in kept_keys]
    return found


class Letter(NamedTuple):
    """A dead letter: where its record stood, and under which key."""

    topic: str
    key: str


def dead_letters(letters: Iterable[Letter], poisoned: Collection[str], junk: Collection[str]) -> list[str]:
    """Each poisoned or unreadable record has its dead letter, no other record has one, and none has two."""
    found = Counter(letter.key for letter in letters)
    expected = {*poisoned, *junk}
    return [
        *(f"{key} has no dead letter" for key in expected - set(found)),
        *(f"{key} has a dead letter it should not have" for key in set(found) - expected),
        *(f"{key} has {count} dead letters" for key, count in found.items() if count > 1),
    ]


@dataclass
class Calls:
    """What the diaries say of the calls to the provider."""

    asked: int = 0
    failed: int = 0
    """They hung, were refused or were poisoned: tried again, as they should be."""
    repeated: int = 0
    """Asked again though an earlier one did not fail: it was in flight at a kill, a freeze or a move."""
    on_their_way: int = 0
    """Of these, how many had been answered and not yet been stored."""
    after_the_answer: list[str] = field(default_factory=list[str])
    after_the_outcome: list[str] = field(default_factory=list[str])


def calls(lines: Iterable[Mapping[str, Any]]) -> Calls:
    """Counts, and the calls that began although the answer, or the outcome, was acknowledged by the store."""
    by_key: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        by_key[line["key"]].append(line)
    total = Calls()
    for key, ones in by_key.items():
        asked = sorted((one for one in ones if one["what"] == "asked"), key=lambda one: one["looked"])
        failed = sum(one["what"] == "failed" for one in ones)
        first = {what: _first(ones, what) for what in ("answered", "stored", "decided")}
        first["stored"] = max([first["stored"], *_stored_anew(ones)])
        total.asked += len(asked)
        total.failed += failed
        total.repeated += max(0, len(asked) - failed - 1)
        total.on_their_way += sum(first["answered"] < one["looked"] <= first["stored"] for one in asked)
        total.after_the_answer += [
            f"{key} at {one['at']:.3f}" for one in asked if one["looked"] > first["stored"]
        ]
        total.after_the_outcome += [
            f"{key} at {one['at']:.3f}" for one in asked if one["found"] > first["decided"]
        ]
    return total


def _first(ones: Sequence[Mapping[str, Any]], what: str) -> float:
    return min((one["at"] for one in ones if one["what"] == what), default=float("inf"))


def _stored_anew(ones: Sequence[Mapping[str, Any]]) -> list[float]:
    """When an answer was stored that was not there any more: forgetting deletes what it finds in a window's."""
    return [one["at"] for one in ones if one["what"] == "stored" and one.get("new")]


def forms_again(window: Mapping[str, Any]) -> bool:
    """Tell whether a window holds a message that had formed before its text was edited."""
    return window["closed_because"] == "edited"


def windows(
    formations: Iterable[Arrived], stored: Mapping[str, Sequence[str]], living: Mapping[str, Collection[str]]
) -> dict[str, list[str]]:
    """formation-trigger: each living message in exactly one window, in order and whole.

    A message that was edited after it formed has one more window for each time that its text was still for a minute.
    `living`: message → the sessions that it has been in.
    """
    found: dict[str, list[str]] = {"lost": [], "doubled": [], "reordered": [], "wrong": []}
    seen: dict[str, list[str]] = defaultdict(list)
    seqs: dict[str, list[int]] = defaultdict(list)
    for one in first_arrivals(formations):
        window = orjson.loads(one.value or b"{}")
        ids = [message["message_id"] for message in window["messages"]]
        seqs[window["session_id"]].append(window["seq"])
        for message in ids:
            if message not in seen or not forms_again(window):
                seen[message].append(one.key)
            if message in living and window["session_id"] not in living[message]:
                found["wrong"].append(f"{message} is in a window of {window['session_id']}")
        if list(stored.get(one.key, ())) != ids:
            found["wrong"].append(f"{one.key}: its stored texts are of {stored.get(one.key)}, not {ids}")
    found["lost"] = [f"{message} is in no window" for message in living if message not in seen]
    found["doubled"] = [f"{one} is in {', '.join(names)}" for one, names in seen.items() if len(names) > 1]
    found["reordered"] = [
        f"session {session}: windows {numbers}"
        for session, numbers in seqs.items()
        if numbers != list(range(1, len(numbers) + 1))
    ]
    return found
