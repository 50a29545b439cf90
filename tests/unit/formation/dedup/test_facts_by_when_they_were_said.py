"""Between older and newer decides when something was said, not when its window closed."""

import pytest

from eden_memory.forgotten import Mark
from eden_memory.formation.prompt_material import DecisionMaterial
from eden_memory.processors import fact_dedup
from eden_memory.schemas.answers import FactDecision
from eden_memory.schemas.events import FactChanged
from tests.unit.formation.dedup.dedup_kit import (
    Bench,
    Script,
    ScriptedModel,
    at,
    command,
    none_of,
    proposal,
    said,
)
from tests.unit.formation.dedup.test_any_order_of_windows import by_key_and_date

ONE, TWO = "gate gate gate code one", "gate gate gate code two"
DOG, OLD_DOG, RED_DOG = (f"dog dog dog dog noted {what}" for what in ("quick", "old quick", "quick red"))


def bench(script: Script = by_key_and_date) -> Bench:
    return Bench(model=ScriptedModel(script))


def versions(kit: Bench, text: str) -> list[FactChanged]:
    return [
        one
        for events in kit.memory.decisions.values()
        for event in events
        for one in event
        if one.text == text
    ]


async def test_an_older_statement_is_recorded_as_retired_by_the_newer_one() -> None:
    kit = bench()
    (newer,) = await kit.decide(proposal("may", TWO, minutes=900, said=500))
    (older,) = await kit.decide(proposal("january", ONE, minutes=950, said=100))
    assert kit.memory.texts() == [TWO]
    assert (older.decision, older.version, older.embedding) == ("DELETE", 1, None)
    assert (older.retired_because, older.replaced_by, older.retired_at) == (
        "contradicted",
        newer.fact_id,
        at(500),
    )
    assert (older.formed_at, older.said_at, older.valid_from) == (at(950), at(100), at(100))
    assert [one.message_id for one in older.sources] == ["s.january-1"]


async def test_a_newer_statement_retires_the_older_one_as_of_when_it_was_said() -> None:
    kit = bench()
    await kit.decide(proposal("january", ONE, minutes=900, said=100))
    retired, begun = await kit.decide(proposal("may", TWO, minutes=950, said=500))
    assert (retired.valid_from, retired.retired_at, retired.said_at) == (at(500), at(500), at(100))
    assert (begun.formed_at, begun.said_at, begun.valid_from) == (at(950), at(500), at(500))


async def test_the_same_text_said_again_holds_since_later_and_said_earlier_changes_no_time() -> None:
    kit = bench(none_of)
    await kit.decide(proposal("middle", ONE, minutes=900, said=300))
    (earlier,) = await kit.decide(proposal("earlier", ONE, minutes=910, said=100))
    assert (earlier.decision, earlier.valid_from, earlier.said_at) == ("NONE", at(300), at(300))
    (later,) = await kit.decide(proposal("later", ONE, minutes=920, said=500))
    assert (later.decision, later.valid_from, len(later.sources)) == ("NONE", at(500), 3)


async def test_an_older_addition_is_merged_and_one_that_adds_nothing_only_joins() -> None:
    kit = bench()
    await kit.decide(proposal("may", RED_DOG, minutes=900, said=500))
    (merged,) = await kit.decide(proposal("january", OLD_DOG, minutes=910, said=100))
    assert (merged.decision, merged.text) == ("UPDATE", "dog dog dog dog noted old quick red")
    assert merged.valid_from == at(500)
    (joined,) = await kit.decide(proposal("march", DOG, minutes=920, said=300))
    assert (joined.decision, joined.text, joined.valid_from) == ("NONE", merged.text, at(500))


@pytest.mark.parametrize("text", [ONE, TWO], ids=["the older one's", "the newer one's"])
async def test_a_merged_text_that_leaves_one_out_retires_the_older_one_from_the_start(text: str) -> None:
    def one_alone(material: DecisionMaterial) -> list[FactDecision]:
        return [said(1, "UPDATE", 1, text)] if material.known else []

    kit = bench(one_alone)
    (newer,) = await kit.decide(proposal("may", TWO, minutes=900, said=500))
    (older,) = await kit.decide(proposal("january", ONE, minutes=910, said=100))
    assert kit.memory.texts() == [TWO]
    assert (older.text, older.decision, older.replaced_by) == (ONE, "DELETE", newer.fact_id)
    assert (older.valid_from, older.retired_at) == (at(100), at(500))


async def test_a_merged_text_names_the_number_of_what_was_said_later() -> None:
    merged = "rent rent rent flat with garden 1050 euros"

    def with_garden(material: DecisionMaterial) -> list[FactDecision]:
        return [said(1, "UPDATE", 1, merged)] if material.known else []

    kit = bench(with_garden)
    await kit.decide(proposal("may", "rent rent rent flat 1050 euros", minutes=900, said=500))
    (event,) = await kit.decide(
        proposal("january", "rent rent rent flat with garden 900 euros", minutes=910, said=100)
    )
    assert (event.decision, kit.memory.texts(), event.valid_from) == ("UPDATE", [merged], at(500))


async def test_a_number_that_the_later_statement_does_not_contradict_stays() -> None:
    older, newer = "rent rent rent flat with garden 900 euros", "rent rent rent flat with garden"

    def answered(material: DecisionMaterial) -> list[FactDecision]:
        return [said(1, "UPDATE", 1, newer)] if material.known else []

    kit = bench(answered)
    await kit.decide(proposal("may", newer, minutes=900, said=500))
    (event,) = await kit.decide(proposal("january", older, minutes=910, said=100))
    assert (event.decision, event.retired_at) == ("ADD", None)
    assert kit.memory.texts() == [newer, older]


@pytest.mark.parametrize("known", ["", "outside"])
async def test_a_value_that_comes_back_within_one_decision_holds_alone(known: str) -> None:
    kit = bench()
    if known:
        await kit.decide(proposal("before", ONE, minutes=900, said=1))
    thirteenth, sixteenth, last = (
        proposal(name, text, minutes=910, said=day)
        for name, text, day in (("a", ONE, 13), ("b", TWO, 16), ("c", ONE, 17))
    )
    await kit.decide(last, sixteenth, thirteenth)
    assert kit.memory.texts() == [ONE]
    assert kit.memory.active()[0].valid_from == at(17)


async def test_a_decision_that_grows_too_large_is_made_again_with_fewer_proposals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fact_dedup, "MOST_BYTES", 6_000)
    kit = bench()
    days = (5, 1, 4, 2, 3)
    texts = (ONE, TWO, f"{ONE} x", f"{TWO} y", f"{ONE} z")
    units = [
        proposal(f"p{day}", text, minutes=900 + place, said=day)
        for place, (day, text) in enumerate(zip(days, texts, strict=True))
    ]
    await kit.decide(*units)
    assert len(kit.memory.decisions["user:s.agent:s.ana"]) > 1
    assert kit.memory.texts() == [ONE]


async def test_an_added_fact_holds_since_the_time_that_the_command_says() -> None:
    kit = bench(none_of)
    (added,) = await kit.decide(command("add", "add", text=ONE, minutes=900, said_at=at(100)))
    assert (added.formed_at, added.said_at, added.valid_from) == (at(900), at(100), at(100))
    assert added.command is not None
    assert added.command.asked_at == at(900)


@pytest.mark.parametrize("by", ["expiry", "limit"])
async def test_expiry_limits_and_new_vectors_change_no_time_of_what_was_said(by: str) -> None:
    kit = bench(none_of)
    (fact,) = await kit.decide(proposal("p", ONE, minutes=900, said=100))
    kit.embedder.model = "other"
    (again,) = await kit.decide(
        command("embed", "reembed", fact_id=fact.fact_id, embedding_model="other", minutes=950)
    )
    assert (again.decision, again.valid_from) == ("REEMBED", at(100))
    (retired,) = await kit.decide(command("end", "retire", fact_id=fact.fact_id, by=by, minutes=960))
    assert (retired.valid_from, retired.retired_at) == (at(100), at(960))


async def test_a_fact_that_a_forgotten_one_contradicted_holds_again() -> None:
    kit = bench()
    (older,) = await kit.decide(proposal("january", ONE, minutes=900, said=100))
    _, newer = await kit.decide(proposal("may", TWO, minutes=950, said=500))
    kit.memory.forgotten.append(Mark("fact", newer.fact_id, "for_ever"))
    (restored,) = await kit.decide(
        command("restore", "unmerge", fact_id=older.fact_id, expected_version=2, by="forgetting", minutes=990)
    )
    assert (restored.decision, restored.version, restored.retired_at, restored.replaced_by) == (
        "UNMERGE",
        3,
        None,
        None,
    )
    assert restored.embedding is not None
    assert (restored.valid_from, restored.text) == (at(100), ONE)
