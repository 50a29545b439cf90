"""What an attack led to, and what the other statements support, from the versions of facts, reflections and blobs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eden_memory.memory.memory_batch import fact_hash
from eden_memory.memory.projection import undone_fact
from eden_memory.mongo.ids import encode_id
from eden_memory.observability.lineage import Memory
from eden_memory.schemas.events import (
    CommandRef,
    FactChanged,
    Propagated,
    ReflectionFormed,
    ScopeConsolidated,
)
from eden_memory.schemas.provenance import Call, SourceMessage, Statement
from eden_memory.schemas.scopes import Scope
from eden_memory.unpoison.attack_rules import Attack, AttackPlan, plan_of, requests_of

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SCOPE, AGENT = Scope.of_user("s.a", "s.ada"), Scope.of_agent("s.a")
GOOD, BAD = "s.good", "s.bad"
ATTACK = Attack("session", BAD)


def source(session: str, message: str = "s.m", user: str | None = "s.ada") -> SourceMessage:
    return SourceMessage(message_id=message, version="1" * 16, session_id=session, user_id=user, time=NOON)


def version(
    number: int, text: str, session: str | None, *, says: str | None = None, name: str = "f1", **fields: Any
) -> FactChanged:
    """A version of a fact that a statement of this session led to; of none, a command."""
    stated = Statement(number=1, text=says or text, sources=(source(session),)) if session else None
    whole: dict[str, Any] = {"decision": "ADD" if number == 1 else "UPDATE", "statement": stated, **fields}
    return FactChanged(
        cause="c",
        fact_id=name,
        version=number,
        outcome=number,
        scope=SCOPE,
        text=text,
        hash=fact_hash(text),
        sources=(source(GOOD), source(BAD)),
        formed_at=NOON,
        said_at=NOON,
        valid_from=NOON,
        **whole,
    )


def by(who: Any) -> CommandRef:
    return CommandRef(command_id="c1", action="edit", by=who, asked_at=NOON)


def retired(number: int, text: str, session: str, name: str, replaced_by: str, **fields: Any) -> FactChanged:
    over = {"retired_at": NOON, "retired_because": "contradicted", "replaced_by": replaced_by}
    return version(number, text, session, name=name, decision="DELETE", **over, **fields)


def planned(*events: Memory, attack: Attack = ATTACK) -> AttackPlan:
    return plan_of(attack, events, NOON)


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        ([version(1, "A", GOOD), version(2, "A and X", BAD)], "A"),
        ([version(1, "A", GOOD), version(2, "A and X", BAD), version(3, "A, X, B", GOOD, says="B")], "B"),
        ([version(1, "A", GOOD), version(2, "X", BAD), version(3, "C", None, command=by("person"))], "C"),
        ([version(1, "A", GOOD), version(2, "A", BAD, decision="NONE")], None),
        ([version(1, "X", BAD), version(2, "X", GOOD, says="Y", decision="NONE")], "Y"),
        (
            [
                version(1, "A", GOOD),
                version(2, "A and X", BAD),
                version(3, "A", None, command=by("forgetting")),
            ],
            None,
        ),
    ],
    ids=[
        "merged",
        "written over since",
        "edited by a person since",
        "repeated",
        "confirmed since",
        "restored",
    ],
)
def test_a_fact_goes_back_to_what_others_said(versions: list[FactChanged], text: str | None) -> None:
    plan = planned(*reversed(versions))
    assert not plan.removed
    assert [found.text for found in plan.restored] == ([] if text is None else [text])


def test_a_fact_that_the_attack_alone_stated_is_removed_and_what_it_contradicted_holds_again() -> None:
    old = [version(1, "A", GOOD), retired(2, "A", BAD, "f1", "f2")]
    plan = planned(*old, version(1, "X", BAD, name="f2"))
    assert ([fact.fact_id for fact in plan.removed], [fact.fact_id for fact in plan.returning]) == (
        ["f2"],
        ["f1"],
    )


def test_what_expired_or_was_replaced_by_others_stays_retired() -> None:
    old = [version(1, "A", GOOD), retired(2, "A", BAD, "f1", "f2", expires_at=NOON - timedelta(days=1))]
    assert not planned(*old, version(1, "X", BAD, name="f2")).returning
    chain = [version(1, "A", GOOD), retired(2, "A", BAD, "f1", "f2")]
    chain += [
        version(1, "X", BAD, name="f2"),
        retired(2, "X", GOOD, "f2", "f3"),
        version(1, "B", GOOD, name="f3"),
    ]
    plan = planned(*chain)
    assert (plan.returning, [fact.fact_id for fact in plan.removed]) == ([], ["f2"])


def reflection(name: str, session: str, made_from: str | None = None) -> ReflectionFormed:
    return ReflectionFormed(
        cause="c",
        reflection_id=name,
        scope=AGENT if made_from else SCOPE,
        text=name,
        position=1,
        origin="propagated" if made_from else "formed",
        asked_by=None,
        propagated_from=Propagated(reflection_id=made_from, scope=SCOPE) if made_from else None,
        sources=(source(session),),
        formed_at=NOON,
        said_at=NOON,
    )


def blob(number: int, *absorbed: str, call: Call | None = None) -> ScopeConsolidated:
    return ScopeConsolidated(
        cause="c",
        scope=SCOPE,
        version=number,
        based_on=number - 1,
        text="text",
        words=1,
        word_limit=100,
        absorbed=absorbed,
        because="threshold",
        call=call,
        consolidated_at=NOON,
        said_at=NOON,
        settings_version="v",
    )


def test_reflections_go_with_what_was_propagated_from_them() -> None:
    plan = planned(reflection("r1", BAD), reflection("r2", GOOD), reflection("r3", GOOD, "r1"))
    assert {found.reflection_id for found in plan.reflections} == {"r1", "r3"}


@pytest.mark.parametrize(("later", "anew"), [((), False), (("good2",), True)])
def test_a_blob_that_absorbed_others_since_is_consolidated_anew(later: tuple[str, ...], anew: bool) -> None:
    formed = [reflection("bad", BAD), *(reflection(name, GOOD) for name in ("good1", *later))]
    blobs = [blob(1, "good1"), blob(2, "bad"), *([blob(3, *later)] if later else [])]
    (found,) = planned(*formed, *blobs).blobs
    assert (found.version, found.anew, found.direct) == (2, anew, False)


def test_a_call_is_found_in_statements_decisions_and_blobs() -> None:
    call = Call(call_id="k1", model="m", prompt="p/1")
    stated = Statement(number=1, text="X", sources=(source(GOOD),), call=call)
    plan = planned(
        version(1, "X", GOOD, statement=stated),
        version(1, "B", GOOD, name="f2"),
        version(2, "B merged", GOOD, name="f2", call=call),
        blob(1, "r1", call=call),
        attack=Attack("call", "k1"),
    )
    assert [fact.fact_id for fact in plan.removed] == ["f1"]
    assert [found.text for found in plan.restored] == ["B"]
    forgets = [request for request in requests_of(Attack("call", "k1"), plan, (), "ops") if "what" in request]
    assert [(one["what"], one["target"]) for one in forgets] == [("fact", "f1"), ("blob", f"{SCOPE.key}@1")]


def test_an_import_is_known_by_the_beginning_of_its_items_names() -> None:
    attack = Attack("import", "mem0")
    assert attack.of_source(source("s.x", "s.import%3Amem0%3A17%3Aabc"))
    assert not attack.of_source(source("s.x", "s.import%3Amem0x%3A17%3Aabc"))
    assert not attack.of_source(source("s.x", "s.import%3Azep%3A17%3Aabc"))


def test_a_users_messages_are_the_cause_whatever_their_session() -> None:
    attack = Attack("user", "s.eve")
    assert attack.of_source(source("s.x", user="s.eve"))
    assert not attack.of_source(source("s.x"))


def test_repeated_requests_to_restore_are_one() -> None:
    attack = Attack("call", "k1")
    call = Call(call_id="k1", model="m", prompt="p/1")
    plan = planned(version(1, "A", GOOD), version(2, "A and X", GOOD, call=call), attack=attack)
    (first,), (again,) = (requests_of(attack, plan, (), "ops") for _ in range(2))
    assert first == again
    assert (first["text"], first["expected_version"], first["asked_by"]) == ("A", 2, "ops")


def test_a_persons_words_that_forgetting_takes_along_are_added_again() -> None:
    plan = planned(version(1, "X", BAD), version(2, "C", None, command=by("person"), private=True))
    forget, add = requests_of(ATTACK, plan, (), "ops")
    assert (add["private"], undone_fact(encode_id(add["_id"]))) == (True, "f1")
    assert forget["kind"] == "forget"
    assert (add["action"], add["text"], add["by"], add["said_at"]) == ("add", "C", "person", NOON)
    assert not planned(version(1, "X", BAD), version(2, "X", None, command=by("expiry"))).restored


def test_a_session_is_forgotten_and_what_it_changed_follows_from_that() -> None:
    plan = planned(version(1, "A", GOOD), version(2, "A and X", BAD))
    asked = {"asked_by": "ops", "kind": "forget", "what": "session", "target": "bad"}
    assert requests_of(ATTACK, plan, (), "ops") == [asked]


def test_what_commands_of_an_audit_had_retired_is_active_again_and_what_others_had_stays() -> None:
    attack = Attack("import", "audit:1")

    def ended(name: str, command_id: str, **fields: Any) -> list[FactChanged]:
        command = CommandRef(command_id=command_id, action="retire", by="audit", asked_at=NOON)
        over: dict[str, Any] = {
            "decision": "RETIRE",
            "retired_at": NOON,
            "retired_because": "asked",
            **fields,
        }
        return [version(1, name, GOOD, name=name), version(2, name, None, name=name, command=command, **over)]

    own = encode_id("import:audit:1:f1")
    plan = planned(
        *ended("f1", own),
        *ended("f2", encode_id("import:audit:10:f2")),
        *ended("f3", "s.by-hand"),
        *ended("f4", own, expires_at=NOON),
        attack=attack,
    )
    assert [fact.fact_id for fact in plan.returning] == ["f1"]
    assert not plan.removed
    (asked,) = requests_of(attack, plan, (), "mia")
    assert (asked["action"], asked["fact_id"], asked["expected_version"]) == ("unmerge", "f1", 2)
    assert asked["by"] == "audit"


def test_a_persons_own_text_that_an_audit_joined_or_retired_leaves_nothing_to_undo() -> None:
    audit = CommandRef(command_id=encode_id("import:audit:1:f2"), action="retire", by="person", asked_at=NOON)
    own = [version(1, "A", GOOD), version(2, "B", None, decision="EDIT", command=by("person"))]
    joined = version(3, "B", None, decision="NONE", command=audit)
    again = CommandRef(command_id="undo", action="unmerge", by="audit", asked_at=NOON)
    ended = version(3, "B", None, decision="RETIRE", command=audit, retired_at=NOON, retired_because="asked")
    returned = version(4, "B", None, decision="UNMERGE", command=again)
    attack = Attack("import", "audit:1")
    assert not planned(*own, joined, attack=attack)
    assert planned(*own, ended, attack=attack).returning == [ended]
    assert not planned(*own, ended, returned, attack=attack)
