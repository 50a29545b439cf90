"""The verdict on formed memory finds each kind of violation: a judge that cannot say no is none."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests.chaos import formation_verdict as verdict
from tests.chaos.formation_chat import Message
from tests.chaos.formation_rebuild import COLLECTIONS, differences
from tests.chaos.seen import Seen
from tests.chaos.stages_reader import Arrived

USER, AGENT = "user:s.default:s.ann", "agent:s.default"
BOTH = ("user", "session")


def said(name: str, number: int, *, deleted: bool = False) -> Message:
    marker = f"MARK-{number:05d}"
    return Message(name, "one", "ann", f"{marker} tea", marker, deleted, sessions={"one"})


def fact(name: str, number: int, *messages: str, scope: str = USER) -> dict[str, Any]:
    text = f"MARK-{number:05d} was mentioned"
    ids = [f"s.{one}" for one in messages]
    return {"_id": name, "scope_key": scope, "content": text, "active": True, "message_ids": ids}


def record(topic: str, key: str, offset: int, value: Any, name: str = "") -> Arrived:
    headers = {"ce_type": f"eden.{name}.v1", "ce_id": key}
    return Arrived(topic, 0, offset, key, None if value is None else orjson.dumps(value), headers, 0.0)


SAID = [said("m0", 1), said("m1", 1), said("m2", 4), said("m3", 5, deleted=True)]
FACTS = [fact("f0", 1, "m0", "m1"), fact("f1", 4, "m2", scope=AGENT)]


def test_facts_as_they_were_said_pass() -> None:
    assert not any(verdict.markers(FACTS, SAID, ()).values())


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("lost", FACTS[1:]),
        ("doubled", [*FACTS, fact("f2", 1, "m0", "m1")]),
        ("wrong", [fact("f0", 1, "m0"), FACTS[1]]),
        ("wrong", [fact("f0", 1, "m0", "m1", scope=AGENT), FACTS[1]]),
        ("wrong", [*FACTS, fact("f2", 99, "m0")]),
        ("not forgotten", [*FACTS, fact("f2", 5, "m3")]),
    ],
)
def test_facts_lost_doubled_misplaced_or_not_forgotten_are_found(
    kind: str, facts: list[dict[str, Any]]
) -> None:
    found = verdict.markers(facts, SAID, ())
    assert [name for name, lines in found.items() if lines] == [kind]


def test_a_users_own_fact_after_another_joined_is_wrong() -> None:
    for shared, scope, wrong in (
        ("before", USER, False),
        ("before", AGENT, False),
        ("after", AGENT, False),
        ("after", USER, True),
    ):
        one = replace(said("m0", 1), shared=shared)
        assert bool(verdict.markers([fact("f0", 1, "m0", scope=scope)], [one], ())["wrong"]) is wrong


TWO = [
    said("p", 1),
    said("p4", 4),
    replace(said("b", 2), session="two", sessions={"two"}, shared="before"),
    replace(said("a", 3), session="two", sessions={"two"}, shared="after"),
]


def context(*lines: str) -> str:
    return "\n".join(["<MemoryContext>", *lines, "</MemoryContext>"])


def test_what_two_authors_may_both_see_is_no_leak() -> None:
    facts = [f"    - [agent] MARK-{number:05d} was mentioned (1m ago)" for number in (2, 3, 4)]
    assert verdict.leaked(context("  <AgentMemory>", *facts), "two", TWO) == []


@pytest.mark.parametrize(
    "line",
    [
        '  <UserMemory user="ann">',
        "    - [user] MARK-00002 was mentioned (1m ago)",
        "    - [session] MARK-00001 was mentioned (1m ago)",
    ],
)
def test_a_users_own_memory_before_two_authors_is_a_leak(line: str) -> None:
    assert len(verdict.leaked(context(line), "two", TWO)) == 1


FORGOTTEN = [replace(said("m0", 1), forgotten=True), said("m1", 2), replace(said("m2", 2), forgotten=True)]
TOPIC = [
    Seen(0, 0, "s.m0", "message", "01", "s.one", "MARK-00001 tea"),
    Seen(0, 1, "s.m0", "ended", "01", "s.one", reason="forgotten"),
    Seen(0, 2, "s.m1", "message", "02", "s.one", "MARK-00002 tea"),
]


def stored(**more: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in verdict.SHOWN}
    rows["messages"] = [{"_id": "s.m0", "text": None}, {"_id": "s.m1", "text": "MARK-00002 tea"}]
    rows["facts"] = [fact("f1", 2, "m1", "m2")]
    for name, row in more.items():
        rows[name] = [*rows[name], row]
    return rows


def test_forgotten_messages_that_left_nothing_pass() -> None:
    assert verdict.returned(FORGOTTEN, TOPIC, stored()) == []


@pytest.mark.parametrize("late", [3, 4])
def test_a_record_of_a_forgotten_message_that_came_later_is_found(late: int) -> None:
    again = TOPIC[0]._replace(offset=late, version="09")
    assert len(verdict.returned(FORGOTTEN, [*TOPIC, again], stored())) == 1
    assert len(verdict.returned(FORGOTTEN, [*TOPIC, again._replace(partition=1)], stored())) == 1


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("messages", {"_id": "s.m2", "text": "no marker"}),
        ("windows", {"_id": "w", "messages": [{"message_id": "s.m2", "text": "no marker"}]}),
        ("facts", {"_id": "f0", "message_ids": ["s.m0"]}),
        ("reflections", {"_id": "r", "message_ids": ["s.m0", "s.m2"]}),
        ("facts", {"_id": "f0", "message_ids": ["s.m1"], "history": [{"content": "MARK-00001 tea"}]}),
        ("snapshots", {"_id": USER, "recent_facts": [{"content": "MARK-00001 tea"}]}),
        ("contexts", {"_id": "one/ann", "xml": "<MemoryContext>MARK-00001 tea"}),
    ],
)
def test_what_is_left_of_a_forgotten_message_is_found(name: str, row: dict[str, Any]) -> None:
    assert len(verdict.returned(FORGOTTEN, TOPIC, stored(**{name: row}))) == 1


def test_a_key_with_two_values_is_found_and_a_tombstone_is_none() -> None:
    first, gone = record("t", "f@1", 0, {"a": 1}), record("t", "f@1", 1, None)
    assert verdict.twice([first, gone, first]) == []
    assert verdict.twice([first, record("t", "f@1", 2, {"a": 2})])


def test_a_record_that_forgetting_emptied_is_none_once_a_tombstone_ended_it() -> None:
    first, emptied = record("t", "f@1", 0, {"text": "Tea."}), record("t", "f@1", 2, {"text": ""})
    gone, again = record("t", "f@1", 1, None), record("t", "f@1", 3, None)
    assert verdict.twice([first, gone, emptied, again]) == []
    assert verdict.twice([first, gone, emptied])
    assert verdict.twice([first, record("t", "f@1", 2, {"text": "Coffee."}), again])


def test_two_records_of_a_key_are_told_with_what_differs() -> None:
    (line,) = verdict.twice(
        [record("t", "f@1", 0, {"a": 1, "b": 2}), record("t", "f@1", 1, {"a": 1, "b": 3})]
    )
    assert line.endswith("0@0, 0@1; b: 2 | 3")


def test_versions_with_a_gap_are_found() -> None:
    assert verdict.fact_versions([record("t", "f@1", 0, {}), record("t", "f@2", 1, {})]) == []
    assert verdict.fact_versions([record("t", "f@1", 0, {}), record("t", "f@3", 1, {})])


def reflection(name: str, offset: int, scope: str, text: str) -> Arrived:
    value = {"formation_id": "w", "scope": {"kind": scope}, "text": text}
    return record("r", name, offset, value, "ReflectionFormed")


STATED = [{"scope": scope, "text": f"About {scope}.", "messages": [1]} for scope in BOTH]
ANSWERS = [{"unit": "reflection-extraction:w", "text": orjson.dumps({"reflections": STATED}).decode()}]
EXTRACTIONS = [record("e", "w", 0, {})]
FORMED = [reflection(f"r{place}", place, scope, f"About {scope}.") for place, scope in enumerate(BOTH)]


def test_reflections_as_one_answer_said_them_pass() -> None:
    assert not any(verdict.reflections([*FORMED, FORMED[0]], EXTRACTIONS, ANSWERS, (), ()).values())


@pytest.mark.parametrize(
    ("kind", "formed"),
    [
        ("lost", []),
        ("not what was said", FORMED[:1]),
        ("not what was said", [*FORMED, reflection("r9", 9, "user", "Invented.")]),
    ],
)
def test_reflections_lost_or_invented_are_found(kind: str, formed: list[Arrived]) -> None:
    found = verdict.reflections(formed, EXTRACTIONS, ANSWERS, (), ())
    assert [name for name, lines in found.items() if lines] == [kind]


def test_a_reflection_formed_twice_is_found() -> None:
    again = reflection("r7", 7, "user", "About user.")
    assert verdict.reflections([*FORMED, again], EXTRACTIONS, ANSWERS, (), ())["doubled"]


def test_fewer_reflections_are_right_only_where_a_message_was_deleted() -> None:
    assert not any(verdict.reflections(FORMED[:1], EXTRACTIONS, ANSWERS, {"w"}, ()).values())


def test_an_emptied_reflection_is_nothing_that_was_said() -> None:
    emptied = [FORMED[0], reflection("r1", 1, "session", "")]
    assert not any(verdict.reflections(emptied, EXTRACTIONS, ANSWERS, {"w"}, ()).values())


def test_nothing_is_known_of_a_window_whose_answers_were_deleted_with_a_message() -> None:
    assert verdict.reflections([], EXTRACTIONS, (), (), ())["lost"]
    assert not any(verdict.reflections([], EXTRACTIONS, (), {"w"}, ()).values())
    assert verdict.reflections([], EXTRACTIONS, ANSWERS, (), ())["lost"]


def test_blobs_with_gaps_and_what_two_of_them_absorbed_are_found() -> None:
    one, two = record("c", f"{USER}@1", 0, {"absorbed": ["r"]}), record("c", f"{USER}@2", 1, {"absorbed": []})
    assert not any(verdict.blobs([one, two, one]).values())
    assert verdict.blobs([one, record("c", f"{USER}@3", 1, {"absorbed": []})])["with gaps"]
    again = record("c", f"{USER}@2", 1, {"absorbed": ["r"]})
    assert verdict.blobs([one, again])["absorbed twice"]
    assert not any(verdict.blobs([one, record("c", one.key, 2, None), again]).values())


def rows() -> dict[str, list[dict[str, Any]]]:
    return {
        "facts": [fact("f0", 1, "m0")],
        "reflections": [{"_id": "r", "scope_key": USER, "absorbed": False}],
        "consolidated": [{"_id": USER, "version": 2, "content": "Tea."}],
        "blobs": [],
        "snapshots": [
            {
                "_id": USER,
                "active_facts": 1,
                "recent_facts": [{"fact_id": "f0"}],
                "buffer": [{"reflection_id": "r"}],
                "blob_version": 2,
                "blob": "Tea.",
            }
        ],
    }


@pytest.mark.parametrize(
    "wrong", [{"active_facts": 2}, {"recent_facts": []}, {"buffer": []}, {"blob_version": 1}, {"blob": "x"}]
)
def test_a_snapshot_that_says_something_else_is_found(wrong: dict[str, Any]) -> None:
    found = rows()
    assert verdict.snapshots(found) == []
    found["snapshots"][0] |= wrong
    assert len(verdict.snapshots(found)) == 1


def test_a_scope_without_a_snapshot_is_found() -> None:
    assert verdict.snapshots({**rows(), "snapshots": []}) == [f"{USER} has no snapshot"]


@pytest.mark.parametrize("name", COLLECTIONS)
def test_a_document_that_differs_or_that_one_side_lacks_is_found(name: str) -> None:
    live = {one: [{"_id": "x", "content": "a", "revision": 3}] for one in COLLECTIONS}
    assert differences(live, {**live, name: [{"_id": "x", "content": "a", "revision": 9}]}) == []
    assert differences(live, {**live, name: [{"_id": "x", "content": "b", "revision": 3}]})
    assert differences(live, {**live, name: []}) == [f"{name} x: only live"]
    assert differences({**live, name: []}, live) == [f"{name} x: only rebuilt"]


def test_only_a_snapshot_of_a_scope_that_has_nothing_may_be_live_alone() -> None:
    nothing: dict[str, list[dict[str, Any]]] = {one: [] for one in COLLECTIONS}
    empty: dict[str, Any] = {"_id": USER, "active_facts": 0, "recent_facts": [], "buffer": [], "blob": None}
    assert differences({**nothing, "snapshots": [empty]}, nothing) == []
    assert differences({**nothing, "snapshots": [empty | {"highest_blob_version": 1}]}, nothing) == []
    for had in ({"buffer": [{"reflection_id": "r"}]}, {"active_facts": 1}):
        assert len(differences({**nothing, "snapshots": [empty | had]}, nothing)) == 1
