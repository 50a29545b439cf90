"""Attacks undone in either order, after what they had displaced was forgotten, and after a correction since."""

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.unpoison.attack_rules import Attack
from tests.integration.system.running_system import System, until
from tests.integration.system.test_forgetting import gone
from tests.integration.system.test_undoing_an_attack import undone

pytestmark = pytest.mark.servers


async def moved_twice(shared: System, user: str) -> list[str]:
    """A user's town, contradicted by one attack, and that by a second; the attacks' sessions."""
    await shared.told(await shared.session(user), user, f"fact user: {user} lives in Lund same-town")
    attacks: list[str] = []
    for town in ("Tortuga", "Nassau"):
        attacks.append(await shared.session(user))
        await shared.told(attacks[-1], user, f"fact user: instead {user} lives in {town} same-town")
    await shared.shows(attacks[-1], user, "Nassau", without=["Lund", "Tortuga"])
    return attacks


@pytest.mark.parametrize(("user", "order"), [("ada", (0, 1)), ("bob", (1, 0))])
async def test_two_attacks_are_undone_one_after_the_other(
    shared: System, user: str, order: tuple[int, int]
) -> None:
    attacks = await moved_twice(shared, user)
    later = await shared.session(user)
    await undone(shared, Attack("session", encode_id(attacks[order[0]])))
    await shared.shows(later, user, ("Nassau", "Tortuga")[order[0]], without=["Lund"])
    await undone(shared, Attack("session", encode_id(attacks[order[1]])))
    await shared.shows(later, user, "Lund", without=["Tortuga", "Nassau"])
    assert await shared.facts(user) == [f"{user} lives in Lund same-town"]


async def test_what_was_displaced_and_is_forgotten_since_stays_forgotten(shared: System) -> None:
    session = await shared.session("cem")
    told = await shared.told(session, "cem", "fact user: cem lives in Visby same-town", "fact user: cem rows")
    attack = await shared.session("cem")
    await shared.told(attack, "cem", "fact user: instead cem lives in Roatan same-town")
    await shared.forget("message", told[0])
    await gone(shared, "Visby")
    await undone(shared, Attack("session", encode_id(attack)))
    await gone(shared, "Roatan")
    assert await shared.facts("cem") == ["cem rows"]


async def test_a_persons_correction_of_a_planted_fact_outlives_the_undo(shared: System) -> None:
    attack = await shared.session("dov")
    await shared.told(attack, "dov", "fact user: dov owes Quarrel a fortune")
    (fact,) = (await shared.service.list_facts(user="dov")).items
    await shared.service.edit(fact.fact_id, "dov owes nobody anything", user="dov", expected_version=1)
    await shared.shows(attack, "dov", "owes nobody", without=["Quarrel"])
    await undone(shared, Attack("session", encode_id(attack)))
    await gone(shared, "owes Quarrel")

    async def corrected() -> bool:
        return await shared.facts("dov") == ["dov owes nobody anything"]

    await until(corrected, "the correction stays")
