"""People's own changes: what of a fact is theirs and still in force, and what they mean for another memory."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.formation.known_facts import KnownFact
from eden_memory.memory.fact_hash import fact_hash
from eden_memory.replay.user_edits.user_edits import (
    COMMAND,
    ENDED,
    REWORDED,
    SAID_AGAIN,
    Likely,
    Settling,
    UserEdit,
    change_of,
    command_of,
    in_order,
    user_edit,
)
from eden_memory.schemas.documents import Fact, FactVersion
from eden_memory.schemas.events import CommandRef
from tests.unit.formation.dedup.dedup_kit import ANA, at, source

Step = tuple[str, str, str | None]
"""Decision, text, and who asked for it."""
ACTIONS = {"ADD": "add", "EDIT": "edit", "RETIRE": "retire", "NONE": "add"}


def fact(*steps: Step, **fields: Any) -> Fact:
    """A stored fact after these versions, one a minute."""
    versions = [
        FactVersion(
            version=number,
            content=text,
            decision=decision,  # pyright: ignore[reportArgumentType]
            valid_from=at(number),
            command=by
            and CommandRef(
                command_id=f"c{number}",
                action=ACTIONS[decision],  # pyright: ignore[reportArgumentType]
                by=by,  # pyright: ignore[reportArgumentType]
                asked_by="ann",
                asked_at=at(number),
            ),
        )
        for number, (decision, text, by) in enumerate(steps, 1)
    ]
    newest = versions[-1]
    given: dict[str, Any] = {
        "_id": "f1",
        "scope": "user",
        "scope_key": ANA.key,
        "agent_id": ANA.agent_id,
        "user_id": ANA.user_id,
        "content": newest.content,
        "hash": fact_hash(newest.content),
        "active": newest.decision not in ("RETIRE", "DELETE"),
        "history": tuple(reversed(versions[:-1])),
        "sources": (source("m1"),),
        "formed_at": at(0),
        "said_at": at(0),
        **newest.model_dump(include={"version", "decision", "reason", "valid_from", "command"}),
        **fields,
    }
    return Fact.model_validate(given)


def of(*steps: Step, merged: Fact | None = None, **fields: Any) -> UserEdit:
    change = user_edit(fact(*steps, **fields), ANA, merged)
    assert change is not None
    return change


FORMED: Step = ("ADD", "ana lives in rome", None)


def test_what_formations_did_alone_is_nobodys_own() -> None:
    assert user_edit(fact(FORMED, ("UPDATE", "ana lives in oslo", None)), ANA) is None
    assert user_edit(fact(FORMED, ("RETIRE", "ana lives in rome", "limit")), ANA) is None


def test_an_edit_says_what_stood_there_and_what_stands_there_now() -> None:
    change = of(FORMED, ("UPDATE", "ana lives in oslo", None), ("EDIT", "ana lives in bergen", "person"))
    assert (change.kind, change.before) == ("edit", ("ana lives in oslo", "ana lives in rome"))
    assert (change.after, change.command.by, change.outdated) == ("ana lives in bergen", "person", None)
    joined = of(FORMED, ("EDIT", "ana lives in bergen", "person"), ("NONE", "ana lives in bergen", None))
    assert (joined.after, joined.outdated) == ("ana lives in bergen", None)


def test_an_addition_stays_one_whatever_people_made_of_it_later() -> None:
    change = of(("ADD", "likes tea", "import"), ("EDIT", "likes green tea", "mirror"))
    assert (change.kind, change.before, change.after) == ("add", ("likes tea",), "likes green tea")
    assert change.theirs
    assert change.sources
    ended = of(("ADD", "likes tea", "import"), ("RETIRE", "likes tea", "person"))
    assert (ended.kind, ended.before, ended.after, ended.theirs) == ("retire", ("likes tea",), None, True)


def test_what_a_formation_has_changed_since_is_outdated() -> None:
    edited: Step = ("EDIT", "ana lives in bergen", "person")
    assert of(FORMED, edited, ("UPDATE", "ana lives in bergen with a cat", None)).outdated == REWORDED
    gone: dict[str, Any] = {"active": False, "retired_at": at(9), "retired_because": "contradicted"}
    assert of(FORMED, edited, ("DELETE", edited[1], None), **gone).outdated == ENDED
    expired: dict[str, Any] = {**gone, "retired_because": "expired"}
    assert of(FORMED, edited, ("RETIRE", edited[1], "expiry"), **expired).outdated == ENDED


def test_an_edit_into_what_another_fact_says_is_an_edit_to_that() -> None:
    duplicate: dict[str, Any] = {
        "active": False,
        "retired_at": at(9),
        "retired_because": "duplicate",
        "replaced_by": "f2",
    }
    other = fact(("ADD", "ana lives in oslo", None), _id="f2")
    change = of(FORMED, ("EDIT", FORMED[1], "person"), merged=other, **duplicate)
    assert (change.kind, change.before, change.after) == ("edit", (FORMED[1],), "ana lives in oslo")
    assert change.outdated is None


def test_another_command_makes_another_change() -> None:
    edited: Step = ("EDIT", "ana lives in bergen", "person")
    once, twice = of(FORMED, edited), of(FORMED, edited, ("EDIT", "ana lives in riga", "person"))
    assert once.id != twice.id
    assert once.id == of(FORMED, edited).id


def known(text: str, name: str | None = None) -> KnownFact:
    return KnownFact(
        name or fact_hash(text), 1, ANA.key, text, fact_hash(text), None, "test", (), at(0), at(0), at(0)
    )


def settling(
    shadow: Iterable[KnownFact] = (), still: dict[str, str] | None = None, **fields: Any
) -> Settling:
    """`still`: text → fact of the source that says it."""
    says = {fact_hash(text): {name} for text, name in (still or {}).items()}
    return Settling({one.hash: one for one in shadow}, says, fields.pop("done", {}), **fields)


EDIT = of(FORMED, ("EDIT", "ana lives in bergen", "person"))
RETIRE = of(FORMED, ("RETIRE", "ana lives in rome", "person"))
ADD = of(("ADD", "ana likes tea", "person"))
ROME, BERGEN, TEA = known("Ana lives in Rome."), known("ana lives in bergen"), known("ana likes tea")


@pytest.mark.parametrize(
    ("change", "shadow", "outcome", "meets"),
    [
        (EDIT, [ROME], "applied", ROME),
        (EDIT, [BERGEN], "already", BERGEN),
        (EDIT, [ROME, BERGEN], "applied", ROME),
        (RETIRE, [ROME], "applied", ROME),
        (ADD, [TEA], "already", TEA),
    ],
)
def test_the_very_text_settles_a_change(
    change: UserEdit, shadow: list[KnownFact], outcome: str, meets: KnownFact
) -> None:
    settled = settling(shadow).by_text(change)
    assert settled is not None
    assert (settled.outcome, settled.fact_id, settled.similarity) == (outcome, meets.fact_id, None)


def test_nothing_is_settled_by_text_that_is_not_there() -> None:
    for change in (EDIT, RETIRE, ADD):
        assert settling().by_text(change) is None


def test_what_was_applied_before_is_done() -> None:
    for done in ({EDIT.id: BERGEN}, {EDIT.command.command_id: BERGEN}):
        settled = settling([ROME], done=done).by_text(EDIT)
        assert settled is not None
        assert settled.outcome == "already"


def test_a_retired_text_that_the_source_says_again_is_left_alone() -> None:
    settled = settling([ROME], {"ana lives in rome": "another"}).by_text(RETIRE)
    assert settled is not None
    assert (settled.outcome, settled.why) == ("outdated", SAID_AGAIN)
    assert settling([ROME], {"ana lives in rome": "another"}).by_text(EDIT) is None


def test_what_meets_nothing_is_added_or_left_to_people() -> None:
    near = Likely(EDIT, known("ana loves rome"), 0.8, "ana lives in rome")
    assert settling().left(ADD, None).outcome == "applied"
    left = settling().left(EDIT, near)
    assert (left.outcome, left.text, left.similarity) == ("unmatched", "ana loves rome", 0.8)
    assert settling().left(RETIRE, None).outcome == "unmatched"
    theirs = of(("ADD", "ana likes tea", "person"), ("RETIRE", "ana likes tea", "person"))
    assert settling().left(theirs, None).outcome == "already", "nobody else says it"


CHANGES = [
    replace(one, fact_id=f"f{number}") for number, one in enumerate((EDIT, RETIRE, ADD, EDIT, RETIRE, ADD))
]
FACTS = [known(f"text {number}") for number in range(5)]


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 4), st.sampled_from((0.93, 0.95, 0.97))),
        unique_by=lambda one: one[:2],
    ),
    st.randoms(use_true_random=False),
)
def test_each_change_takes_one_fact_and_each_fact_one_change_in_any_order(
    pairs: list[tuple[int, int, float]], chance: Any
) -> None:
    likely = [Likely(CHANGES[one], FACTS[other], similarity, "") for one, other, similarity in pairs]
    settled = settling().best_first(likely)
    facts, changes = [one.fact_id for one in settled], [one.change.fact_id for one in settled]
    assert len(set(facts)) == len(facts)
    assert len(set(changes)) == len(changes)
    for one in likely:
        assert one.fact.fact_id in facts or one.change.fact_id in changes, "nothing is left that could meet"
    assert in_order(settling().best_first(chance.sample(likely, len(likely)))) == in_order(settled)


def test_commands_are_the_same_each_time_and_say_whose_they_are() -> None:
    settled = settling([ROME]).by_text(EDIT)
    assert settled is not None
    command = command_of(settled)
    assert command == command_of(settled)
    assert (command.action, command.fact_id, command.text) == ("edit", ROME.fact_id, "ana lives in bergen")
    assert (command.by, command.asked_by, command.asked_at) == ("person", "ann", at(2))
    assert command.command_id.startswith(COMMAND)
    assert change_of(command.command_id) == EDIT.id
    assert change_of(EDIT.command.command_id) is None
    retire = settling([ROME]).by_text(RETIRE)
    assert retire is not None
    assert command_of(retire).text is None
    added = command_of(settling().left(ADD, None))
    assert (added.action, added.fact_id, added.text, len(added.sources)) == ("add", None, "ana likes tea", 1)
