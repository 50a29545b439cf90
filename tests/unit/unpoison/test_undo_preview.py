"""A preview names what an undo changes, without texts; it is another one as soon as something else would change."""

from eden_memory.cli.undo_attack import question
from eden_memory.unpoison.attack_rules import Attack, AttackPlan, RestoredText, WithdrawnBlob, preview_of
from tests.unit.unpoison.test_attack_rules import AGENT, BAD, GOOD, version

ATTACK = Attack("session", BAD)


def test_it_names_each_kind_of_change_by_ids_and_versions() -> None:
    plan = AttackPlan(
        removed=[version(1, "a", BAD, name="f2"), version(1, "b", BAD, name="f1")],
        restored=[RestoredText(version(3, "c secret", GOOD, name="f3"), "c")],
        blobs=[WithdrawnBlob(AGENT, 4, anew=True, direct=False)],
    )
    found = preview_of(ATTACK, plan)
    assert [(change.change, change.ids) for change in found.changes] == [
        ("fact_removed", ("f1", "f2")),
        ("text_restored", ("f3@3",)),
        ("blob_consolidated_again", (f"{AGENT.key}@4",)),
    ]
    assert "secret" not in str(found)


def test_it_is_another_one_for_another_plan_or_attack_and_the_same_in_another_order() -> None:
    one, other = version(1, "a", BAD, name="f1"), version(1, "b", BAD, name="f2")
    preview = preview_of(ATTACK, AttackPlan(removed=[one, other])).preview
    assert preview == preview_of(ATTACK, AttackPlan(removed=[other, one])).preview
    assert preview != preview_of(ATTACK, AttackPlan(removed=[one])).preview
    assert preview != preview_of(ATTACK, AttackPlan(removed=[one], returning=[other])).preview
    assert preview != preview_of(Attack("session", GOOD), AttackPlan(removed=[one, other])).preview


def test_nothing_to_undo_is_no_change() -> None:
    assert preview_of(ATTACK, AttackPlan()).changes == ()


def test_only_what_forgets_is_called_final() -> None:
    assert "cannot be undone" in question("import", "mem0")
    assert "cannot be undone" in question("session", "audit:1")
    assert question("import", "audit:1") == "Make active again what audit:1 retired?"
