"""People's own changes: what of a fact is theirs and still in force, and what they mean for another memory."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from eden_memory.formation.fact_statements import KnownFact, Near
from eden_memory.memory.memory_batch import fact_hash
from eden_memory.replay.user_edits.reapplying import SAID_AGAIN, Commands, EditedMemory, reapply_edits
from eden_memory.replay.user_edits.user_edits import (
    COMMAND,
    ENDED,
    REWORDED,
    AppliedEdits,
    SettledEdit,
    UserEdit,
    change_of,
    user_edit,
)
from eden_memory.replay.user_edits.user_edits import _versions as versions_of  # pyright: ignore[reportPrivateUsage]
from eden_memory.schemas.documents import Fact, FactVersion
from eden_memory.schemas.events import CommandRef
from eden_memory.schemas.scopes import Scope
from tests.unit.formation.dedup.dedup_kit import ANA, WordEmbedder, at, embedded, source

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
    stored = fact(*steps, **fields)
    change = user_edit(stored, versions_of(stored), ANA, merged)
    assert change is not None
    return change


FORMED: Step = ("ADD", "ana lives in rome", None)


def test_the_fact_that_takes_over_sources_of_a_retired_one_is_not_retired() -> None:
    joined = CommandRef(command_id="c2", action="retire", by="person", asked_at=at(2))
    stored = fact(FORMED, ("NONE", "ana lives in rome", None), command=joined)
    assert user_edit(stored, versions_of(stored), ANA) is None
    retired = fact(FORMED, ("RETIRE", "ana lives in rome", None), command=joined)
    change = user_edit(retired, versions_of(retired), ANA)
    assert change is not None
    assert change.kind == "retire"


def test_what_formations_did_alone_is_nobodys_own() -> None:
    for stored in (
        fact(FORMED, ("UPDATE", "ana lives in oslo", None)),
        fact(FORMED, ("RETIRE", "ana lives in rome", "limit")),
        fact(FORMED, ("RETIRE", "ana lives in rome", "audit")),
    ):
        assert user_edit(stored, versions_of(stored), ANA) is None


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


def known(text: str) -> KnownFact:
    name = fact_hash(text)
    return KnownFact(name, 1, ANA.key, text, name, None, "test", (), at(0), at(0), at(0))


@dataclass
class Memory:
    """A memory of these facts, that people changed so."""

    said: Sequence[KnownFact] = ()
    changes: Sequence[UserEdit] = ()
    done: Mapping[str, str] = field(default_factory=dict[str, str])

    def side(self) -> EditedMemory:
        made: Any = self
        return EditedMemory(made, made)

    async def scopes(self) -> Sequence[Scope]:
        return [ANA] if self.changes else []

    async def edits(self, scope: Scope) -> AsyncGenerator[UserEdit]:
        for change in self.changes:
            assert change.scope == scope
            yield change

    async def commanded(self, scope_key: str) -> Mapping[str, str]:
        return self.done

    async def facts(self, fact_ids: Iterable[str]) -> Mapping[str, KnownFact]:
        return {known.fact_id: known for known in self.said if known.fact_id in set(fact_ids)}

    async def with_hash(self, scope_key: str, hashes: Iterable[str]) -> Sequence[KnownFact]:
        return [known for known in self.said if known.hash in set(hashes)]

    async def nearest(
        self, scope_key: str, vectors: Sequence[bytes], most: int, least: float
    ) -> list[list[Near]]:
        found = [[Near(known, cosine(vector, known.text)) for known in self.said] for vector in vectors]
        return [[near for near in of if near.similarity >= least][:most] for of in found]


def cosine(vector: bytes, text: str) -> float:
    return float(1 + np.frombuffer(vector, "<f4") @ np.frombuffer(embedded(text).vector, "<f4")) / 2


async def settled(
    changes: Sequence[UserEdit],
    shadow: Sequence[str] = (),
    still: Sequence[str] = (),
    done: Mapping[str, str] | None = None,
) -> list[SettledEdit]:
    """`shadow`, `still`: the texts of active facts in the other memory, and in that which people changed."""
    live = Memory([known(text) for text in still], changes)
    other = Memory([known(text) for text in shadow], done=done or {})
    commands = Commands(None, lambda _: "memory.candidates")
    return await reapply_edits(live.side(), other.side(), WordEmbedder(), commands)


EDIT = of(FORMED, ("EDIT", "ana lives in bergen", "person"))
RETIRE = of(FORMED, ("RETIRE", "ana lives in rome", "person"))
ADD = of(("ADD", "ana likes tea", "person"))
THEIRS = of(("ADD", "ana likes tea", "person"), ("RETIRE", "ana likes tea", "person"))
ROME, BERGEN = "Ana lives in Rome.", "ana lives in bergen"


@pytest.mark.parametrize(
    ("change", "shadow", "outcome", "meets"),
    [
        (EDIT, [ROME], "applied", ROME),
        (EDIT, [BERGEN], "already", BERGEN),
        (EDIT, [ROME, BERGEN], "applied", ROME),
        (RETIRE, [ROME], "applied", ROME),
        (ADD, ["ana likes tea"], "already", "ana likes tea"),
        (EDIT, ["in rome lives ana"], "applied", "in rome lives ana"),
        (RETIRE, ["in rome lives ana"], "applied", "in rome lives ana"),
        (ADD, ["tea ana likes"], "already", "tea ana likes"),
        (ADD, [], "applied", None),
        (THEIRS, [], "already", None),
        (EDIT, [], "unmatched", None),
        (RETIRE, ["ana keeps a cat"], "unmatched", None),
    ],
)
async def test_a_change_meets_the_same_text_else_what_means_the_same(
    change: UserEdit, shadow: list[str], outcome: str, meets: str | None
) -> None:
    (found,) = await settled([change], shadow)
    assert (found.outcome, found.fact_id) == (outcome, meets and known(meets).fact_id)
    assert AppliedEdits((found,)).blocking == (change is RETIRE and outcome == "unmatched")


async def test_other_figures_are_another_fact() -> None:
    born = of(("ADD", "ana was born in 1990", None), ("RETIRE", "ana was born in 1990", "person"))
    (found,) = await settled([born], ["in 1991 ana was born"])
    assert (found.outcome, found.text) == (
        "unmatched",
        None if found.text is None else "in 1991 ana was born",
    )


async def test_a_retired_text_that_the_source_says_again_is_left_alone() -> None:
    (found,) = await settled([RETIRE], [ROME], still=["ana lives in rome"])
    assert (found.outcome, found.why) == ("outdated", SAID_AGAIN)
    (found,) = await settled([EDIT], ["in rome lives ana"], still=["in rome lives ana"])
    assert found.outcome == "unmatched", "another fact of the source says that"


async def test_what_was_applied_before_is_done() -> None:
    for name in (f"{COMMAND}{EDIT.id}/f", EDIT.command.command_id):
        (found,) = await settled([EDIT], [ROME], done={name: known(ROME).fact_id})
        assert found.outcome == "already"


async def test_each_fact_takes_one_change() -> None:
    changes = [replace(EDIT, fact_id=f"f{number}") for number in range(3)]
    found = await settled(changes, [ROME, "in rome lives ana"])
    assert [edit.outcome for edit in found] == ["applied", "applied", "unmatched"]
    assert len({edit.fact_id for edit in found[:2]}) == 2


async def test_commands_are_the_same_each_time_and_say_whose_they_are() -> None:
    ((edit,), (again,)) = await settled([EDIT], [ROME]), await settled([EDIT], [ROME])
    command = edit.command
    assert command == again.command
    assert (command.action, command.fact_id, command.text) == ("edit", known(ROME).fact_id, BERGEN)
    assert (command.by, command.asked_by, command.asked_at) == ("person", "ann", at(2))
    assert command.command_id.startswith(COMMAND)
    assert change_of(command.command_id) == EDIT.id
    assert change_of(EDIT.command.command_id) is None
    (retire,), (added,) = await settled([RETIRE], [ROME]), await settled([ADD])
    assert retire.command.text is None
    command = added.command
    assert (command.action, command.fact_id, command.text, len(command.sources)) == (
        "add",
        None,
        "ana likes tea",
        1,
    )
