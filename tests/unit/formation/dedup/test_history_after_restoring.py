"""Whatever was said and then forgotten: `as_of` and history show what held, also of facts that hold again."""

import asyncio
from datetime import datetime
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.forgetting.forgetting_rules import Contradicted, taken_up_again
from eden_memory.forgotten import Mark
from eden_memory.formation.fact_statements import KnownFact
from eden_memory.memory.memory_views import versions_of
from eden_memory.schemas.documents import Fact
from eden_memory.schemas.events import Forgotten
from eden_memory.search.fact_candidates import When, candidate
from eden_memory.search.unindexed_list_store import as_known
from tests.unit.formation.dedup.dedup_kit import ANA, Bench, Memory, ScriptedModel, at, delivery, proposal
from tests.unit.formation.dedup.test_any_order_of_windows import by_key_and_date
from tests.unit.memory.memory_histories import delivered
from tests.unit.memory.memory_in_mind import Mind

VALUES = ("red", "blue", "green", "black")
FORGET = "forget"


class Erasing(Memory):
    """What the writer has applied, without what is forgotten."""

    async def applied(self, scope_key: str) -> int:
        return len(self.decisions.get(scope_key, ()))

    def _stored(self) -> dict[str, KnownFact]:
        self.apply()
        gone = {one.target for one in self.forgotten}
        return {name: one for name, one in super()._stored().items() if name not in gone}


class Scope:
    """Values of one thing that are said one after the other, some of them forgotten."""

    def __init__(self) -> None:
        self.kit = Bench(Erasing(), ScriptedModel(by_key_and_date))
        self.said: dict[str, list[int]] = {}
        """By fact: the minutes at which its value was said."""

    def facts(self) -> dict[str, Fact]:
        mind, known = Mind(), self.kit.memory
        gone = {one.target for one in known.forgotten}
        events = [one for decided in known.decisions.values() for events in decided for one in events]
        if left := [delivered(one) for one in events if one.fact_id not in gone]:
            mind.take(left)
        return mind.facts

    async def say(self, value: str, minute: int) -> None:
        text = f"gate gate gate code {value}"
        await self.kit.decide(proposal(f"p{minute}", text, minutes=1_000 + minute, said=minute))
        (held,) = [name for name, one in self.facts().items() if one.active and one.content == text]
        self.said.setdefault(held, []).append(minute)

    async def forget(self, fact_id: str, minute: int) -> None:
        facts = self.facts()
        gone = facts[fact_id]
        self.kit.memory.forgotten.append(Mark("fact", fact_id, "for_ever"))
        forgotten = Forgotten(
            kind="fact",
            id=fact_id,
            reach="for_ever",
            because="asked",
            asked_by=None,
            forgotten_at=at(1_000 + minute),
        )
        before = gone.replaced_by if gone.retired_because == "contradicted" else None
        left = [_contradicted(one) for one in facts.values() if one.replaced_by == fact_id]
        for number, command in enumerate(taken_up_again(forgotten, {fact_id: before}, left)):
            await self.kit.decide(delivery(f"again-{minute}-{number}", command, 1_000 + minute))
        del self.said[fact_id]

    def held(self, moment: datetime) -> set[str]:
        when = When(as_of=moment)
        rows = [one.stored() for one in self.facts().values()]
        known = [as_known(candidate(row), row["active"], row["history"], when) for row in rows]
        return {one.text.split()[-1] for one in known if one is not None}

    def truth(self, minute: int) -> set[str]:
        """The value that was said last until then, of those that are not forgotten."""
        facts = self.facts()
        said = [(one, name) for name, minutes in self.said.items() for one in minutes if one <= minute]
        return {facts[max(said)[1]].content.split()[-1]} if said else set()


def _contradicted(fact: Fact) -> Contradicted:
    held_from = min([fact.valid_from, *(one.valid_from for one in fact.history[:1])])
    assert fact.replaced_by is not None
    return Contradicted(fact.id, fact.version, ANA, fact.replaced_by, held_from)


@given(
    st.lists(st.sampled_from((*VALUES, FORGET)), min_size=2, max_size=9), st.randoms(use_true_random=False)
)
def test_what_held_is_found_at_any_time_also_of_facts_that_hold_again(
    steps: list[str], chance: Random
) -> None:
    scope = Scope()

    async def run() -> None:
        for number, step in enumerate(steps):
            if step != FORGET:
                await scope.say(step, number * 10)
            elif scope.said:
                await scope.forget(chance.choice(sorted(scope.said)), number * 10)

    asyncio.run(run())
    for minute in range(0, len(steps) * 10, 5):
        assert scope.held(at(minute)) == scope.truth(minute), minute
    for fact in scope.facts().values():
        shown = versions_of(fact)
        assert [one.version for one in shown] == list(range(fact.version, 0, -1))
        holding = [(one.valid_from, one.version) for one in shown if not one.undone]
        assert holding[0] == (fact.valid_from, fact.version)
        assert holding == sorted(holding, reverse=True)
