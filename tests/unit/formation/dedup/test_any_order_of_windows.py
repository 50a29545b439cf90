"""Whatever the order in which windows come, and however they are grouped, what was said last holds.

Each window goes through fact-extraction itself; its proposals go to fact-dedup in any order and in any units. The
model is a script that knows keys and dates, and nothing of the order.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.formation.prompt_material import DecisionMaterial, FactMaterial
from eden_memory.models.question import Prompt
from eden_memory.processors.fact_extraction import FactExtraction
from eden_memory.schemas.answers import ExtractedFacts, FactDecision
from eden_memory.schemas.events import FactChanged, FactsProposed
from eden_memory.stages.stage import Delivery
from eden_memory.windows.session_state import StoredMessage
from tests.unit.formation.dedup.dedup_kit import Bench, ScriptedModel, at, delivery, said
from tests.unit.formation.dedup.test_dedup_properties import groups
from tests.unit.formation.extraction.windows import (
    FENCE,
    SESSION,
    USER_SCOPE,
    Kept,
    Talk,
    delivered,
    fact,
    whole,
)
from tests.unit.formation.extraction.windows import ScriptedModel as ExtractionModel

VALUES = st.tuples(st.sampled_from(("gate", "shed")), st.sampled_from(("one", "two", "three")))
NOTES = st.tuples(st.sampled_from(("boat", "dog")), st.sampled_from(("red", "old", "quick", "small")))
Said = tuple[str, str]
READ_IN = 100_000.0
"""Minutes: when all of it was read in, long after it was said."""


def text_of(said_of: Said) -> str:
    key, what = said_of
    if key in ("gate", "shed"):
        return f"{key} {key} {key} code {what}"
    return f"{key} {key} {key} {key} noted {what}"


def about(text: str) -> tuple[str, frozenset[str]]:
    key, *words = text.split()
    return key, frozenset(words) - {key, "code", "noted"}


def by_key_and_date(material: DecisionMaterial) -> list[FactDecision]:
    """A value contradicts the value that was said last; a note is merged with all notes of its key."""
    shown = [*material.known, *material.new]
    decisions: list[FactDecision] = []
    for number, new in enumerate(material.new, 1):
        key, words = about(new.text)
        of_key = [one for one in new.candidates if about(shown[one - 1].text)[0] == key]
        if not of_key:
            continue
        newest = max(of_key, key=lambda one: shown[one - 1].said_at or datetime.min)
        if "code" in new.text:
            decisions.append(said(number, "DELETE", newest))
            continue
        known = frozenset[str]().union(*(about(shown[one - 1].text)[1] for one in of_key))
        whole = f"{key} {key} {key} {key} noted {' '.join(sorted(known | words))}"
        same = words <= about(shown[newest - 1].text)[1]
        decisions.append(said(number, "NONE" if same else "UPDATE", newest, None if same else whole))
    return decisions


def stating_every_line(prompt: Prompt) -> ExtractedFacts:
    assert isinstance(prompt.material, FactMaterial)
    lines = enumerate(prompt.material.lines, 1)
    return ExtractedFacts(facts=[fact(line.text, "user", number) for number, line in lines])


async def proposed(number: int, messages: Sequence[tuple[int, Said]]) -> list[Delivery]:
    """A window's proposals, as fact-extraction makes them: read in late, said when the history says."""
    formation = f"s.talk/{number}"
    stored = tuple(
        StoredMessage(
            message_id=f"s.m{place}",
            session_id=SESSION,
            version=f"{place:016x}",
            time=at(READ_IN + place),
            role="user",
            user_id="s.mara",
            text=text_of(one),
            characters=len(text_of(one)),
            truncated=False,
            formation_id=formation,
            created_at=at(place),
        )
        for place, one in messages
    )
    talk = Talk(stored)
    requested = talk.requested.model_copy(
        update={"formation_id": formation, "closed_at": at(2 * READ_IN + number)}
    )
    kept = Kept({formation: replace(talk.stored, formation_id=formation, requested=requested)})
    model = ExtractionModel(stating_every_line)
    stage = FactExtraction(kept, kept, kept, model, kept, FENCE, kept)
    events = whole(await stage([delivered(requested)]))
    found = [one for one in events if isinstance(one, FactsProposed)]
    return [delivery(f"proposed-{number}", one, READ_IN) for one in found if one.scope == USER_SCOPE]


def expected(history: Sequence[Said]) -> dict[str, tuple[datetime, frozenset[str]]]:
    """Text → since when, and the messages of the last unbroken run that says it."""
    held: dict[str, tuple[str, int, list[int]]] = {}
    for place, one in enumerate(history):
        key, what = one
        before = held.get(key)
        if key in ("boat", "dog"):
            parts = (about(before[0])[1] if before else frozenset[str]()) | {what}
            text = f"{key} {key} {key} {key} noted {' '.join(sorted(parts))}"
            held[key] = (text, place, [*(before[2] if before else ()), place])
        elif before is not None and before[0] == text_of(one):
            held[key] = (before[0], place, [*before[2], place])
        else:
            held[key] = (text_of(one), place, [place])
    return {text: (at(since), frozenset(f"s.m{one}" for one in run)) for text, since, run in held.values()}


def cut(history: Sequence[Said], dice: random.Random) -> list[list[tuple[int, Said]]]:
    """The messages of a history, dealt out to windows in any way."""
    numbered = list(enumerate(history))
    dice.shuffle(numbered)
    windows: list[list[tuple[int, Said]]] = []
    while numbered:
        size = dice.randint(1, 4)
        windows.append(sorted(numbered[:size]))
        numbered = numbered[size:]
    return windows


@given(st.lists(VALUES | NOTES, min_size=1, max_size=14), st.integers(0, 1_000_000))
def test_what_was_said_last_holds_in_any_order_and_grouping_of_windows(
    history: list[Said], seed: int
) -> None:
    dice = random.Random(seed)
    kit = Bench(model=ScriptedModel(by_key_and_date))

    async def run() -> None:
        windows = [await proposed(number, one) for number, one in enumerate(cut(history, dice), 1)]
        deliveries = [one for window in windows for one in window]
        for unit in groups(deliveries, [dice.randint(1, 5) for _ in deliveries]):
            await kit.decide(*unit)
            if dice.random() < 0.5:
                kit.memory.apply(USER_SCOPE)

    asyncio.run(run())
    wanted = expected(history)
    active = kit.memory.active(USER_SCOPE)
    assert sorted(one.text for one in active) == sorted(wanted)
    for one in active:
        since, run_of_it = wanted[one.text]
        assert one.valid_from == since
        assert since_then(one, run_of_it, history) == run_of_it


def since_then(fact: FactChanged, run_of_it: frozenset[str], history: Sequence[Said]) -> frozenset[str]:
    """Its sources of the last run; the same words from before a contradiction may count too, nothing else may."""
    places = {one.message_id: int(one.message_id.removeprefix("s.m")) for one in fact.sources}
    if "code" in fact.text:
        assert {text_of(history[place]) for place in places.values()} == {fact.text}
    first = min(int(one.removeprefix("s.m")) for one in run_of_it)
    return frozenset(name for name, place in places.items() if place >= first)
