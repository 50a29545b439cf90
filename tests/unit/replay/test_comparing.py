"""Two memories compared: the sides can change places, order does not matter, every text is counted once."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from eden_memory.memory.memory_batch import fact_hash
from eden_memory.replay.comparing import comparing as module
from eden_memory.replay.comparing.comparing import ComparedScope, ReportRequest, ScopeTexts, compare
from eden_memory.replay.comparing.matching import WORDS
from eden_memory.replay.comparing.report import KINDS, MemoryReport, MemoryText, TextCounts
from tests.unit.formation.dedup.dedup_kit import embedded

WORD = st.sampled_from(
    ["ana", "lives", "in", "rome", "oslo", "with", "kiko", "the", "parrot", "and", "sings"]
)
TEXT = st.lists(WORD, min_size=1, max_size=6).map(" ".join)
KEYS = [f"user:s.agent:s.{name}" for name in ("ana", "ben", "cleo")]
SAID = st.dictionaries(st.sampled_from(KEYS), st.sets(TEXT, max_size=6), max_size=3)


@dataclass
class Memory:
    """A memory of these texts."""

    said: Mapping[str, set[str]]
    turned: bool = False
    model: str = "test"

    async def scopes(self, beginnings: Sequence[str]) -> AsyncGenerator[ComparedScope]:
        for key in sorted(self.said):
            if not beginnings or any(key.startswith(one) for one in beginnings):
                yield ComparedScope(key, "s.agent", (), len(self.said[key]))

    async def facts(self, scope_keys: Sequence[str]) -> Mapping[str, ScopeTexts]:
        return {key: self._texts(key) for key in scope_keys if key in self.said}

    async def reflections(self, scope_keys: Sequence[str]) -> Mapping[str, ScopeTexts]:
        return await self.facts(scope_keys)

    async def blobs(self, scope_keys: Sequence[str]) -> Mapping[str, str]:
        return {key: " ".join(sorted(self.said[key])) for key in scope_keys if self.said.get(key)}

    async def vectors(self, fact_ids: Sequence[str]) -> AsyncGenerator[tuple[str, bytes]]:
        for fact_id in fact_ids:
            yield fact_id, embedded(fact_id.partition("/")[2]).vector

    def _texts(self, key: str) -> ScopeTexts:
        texts = sorted(self.said[key], reverse=self.turned)
        by_key = {fact_hash(text): MemoryText(id=f"{key}/{text}", text=text) for text in texts}
        return ScopeTexts(by_key, {self.model} if by_key else set())


def compared(live: Memory, shadow: Memory, beginnings: Sequence[str] = ()) -> MemoryReport:
    report = MemoryReport(live="live", shadow="shadow", most=None)
    wanted = ReportRequest(beginnings=tuple(beginnings), most=None)
    asyncio.run(compare(report, live, shadow, wanted))  # pyright: ignore[reportArgumentType]
    return report


@given(SAID, SAID)
def test_what_is_added_on_one_side_is_lost_on_the_other(
    one: dict[str, set[str]], other: dict[str, set[str]]
) -> None:
    found, turned = compared(Memory(one), Memory(other)), compared(Memory(other), Memory(one))
    for kind in KINDS:
        of, back = found.counts[kind], turned.counts[kind]
        assert (of.same, of.changed, of.added, of.lost) == (back.same, back.changed, back.lost, back.added)
    for scope in found.scopes:
        (back,) = [other for other in turned.scopes if other.scope_key == scope.scope_key]
        assert scope.facts.added == back.facts.lost
        assert {(one.live.text, one.shadow.text) for one in scope.facts.changed} == {
            (one.shadow.text, one.live.text) for one in back.facts.changed
        }
    told = sum(map(len, one.values())), sum(map(len, other.values()))
    of = found.counts["facts"]
    assert (of.same + of.changed + of.lost, of.same + of.changed + of.added) == told


@settings(max_examples=25)
@given(SAID, SAID, st.integers(1, 3))
def test_neither_the_order_of_reading_nor_pages_make_a_difference(
    one: dict[str, set[str]], other: dict[str, set[str]], page: int
) -> None:
    whole = compared(Memory(one), Memory(other)).json_object()
    before = module.SCOPES_OF_A_PAGE
    module.SCOPES_OF_A_PAGE = page
    try:
        assert compared(Memory(one, turned=True), Memory(other, turned=True)).json_object() == whole
    finally:
        module.SCOPES_OF_A_PAGE = before


@settings(max_examples=25)
@given(SAID)
def test_a_memory_does_not_differ_from_itself(said: dict[str, set[str]]) -> None:
    report = compared(Memory(said), Memory(said))
    assert (report.equal, report.scopes_compared, report.scopes) == (True, len(said), [])
    assert report.counts["facts"] == TextCounts(same=sum(map(len, said.values())))


def test_other_models_vectors_are_not_compared_but_words_are() -> None:
    live, shadow = {KEYS[0]: {"ana lives in rome"}}, {KEYS[0]: {"ana lives in the rome"}}
    assert compared(Memory(live), Memory(shadow)).matched_by >= {"test"}
    (scope,) = compared(Memory(live), Memory(shadow, model="other")).scopes
    assert (scope.facts.matched_by, scope.facts.counts.changed) == (WORDS, 1)


def test_only_the_scopes_asked_for_are_compared() -> None:
    said = {key: {"a"} for key in KEYS}
    assert compared(Memory(said), Memory({}), (KEYS[1],)).counts["facts"] == TextCounts(lost=1)
