"""Two memories compared by meaning, scope by scope: what a report of a reform says of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from eden_memory.replay.comparing.differing import (
    Differing,
    ScopeSeen,
    ScopeTexts,
    Texts,
    blobs_differing,
    differing,
    set_aside,
)
from eden_memory.replay.comparing.matching import (
    DIMENSIONS,
    WORDS,
    Pair,
    VectorFile,
    best_first,
    related,
    word_vector,
)
from eden_memory.replay.comparing.report import MemoryReport, ScopeDiffers
from eden_memory.schemas.scopes import Scope

FACTS_OF_A_PAGE, SCOPES_OF_A_PAGE = 20_000, 200


class ComparedMemory(Protocol):
    """A memory as it is stored at this moment."""

    def scopes(self, beginnings: Sequence[str]) -> AsyncGenerator[ScopeSeen]:
        """In the order of their keys; only those whose key begins with one of these, if any are given."""
        ...

    async def facts(self, scope_keys: Sequence[str]) -> Mapping[str, ScopeTexts]:
        """Active ones, by scope key."""
        ...

    async def reflections(self, scope_keys: Sequence[str]) -> Mapping[str, ScopeTexts]:
        """All of them, absorbed or not, by scope key."""
        ...

    async def blobs(self, scope_keys: Sequence[str]) -> Mapping[str, str]:
        """By scope key."""
        ...

    def vectors(self, fact_ids: Sequence[str]) -> AsyncGenerator[tuple[str, bytes]]:
        """Packed float32 vectors of those that (still) have one, in any order."""
        ...


class Comparing:
    """`least`: (1 + cosine) / 2 from which facts are the same in other words; None: by the embedding model."""

    def __init__(
        self,
        live: ComparedMemory,
        shadow: ComparedMemory,
        *,
        most: int | None = 20,
        least: float | None = None,
    ) -> None:
        self._live, self._shadow, self._most, self._least = live, shadow, most, least

    async def into(
        self,
        report: MemoryReport,
        beginnings: Sequence[str] = (),
        wanted: Callable[[Scope], bool] = lambda _: True,
    ) -> None:
        """Compare all scopes whose key begins so; of those that only live memory has, the `wanted` ones."""
        page: list[str] = []
        facts = 0
        async for live, shadow in _side_by_side(
            self._live.scopes(beginnings), self._shadow.scopes(beginnings)
        ):
            seen = live or shadow
            assert seen is not None
            if shadow is None and not wanted(seen.scope):
                continue
            page.append(seen.key)
            facts += sum(side.facts for side in (live, shadow) if side is not None)
            if facts >= FACTS_OF_A_PAGE or len(page) == SCOPES_OF_A_PAGE:
                await self._page(report, page)
                page, facts = [], 0
        await self._page(report, page)

    async def _page(self, report: MemoryReport, keys: Sequence[str]) -> None:
        if not keys:
            return
        both = self._live, self._shadow
        facts = await asyncio.gather(*(telling.facts(keys) for telling in both))
        reflections = await asyncio.gather(*(telling.reflections(keys) for telling in both))
        blobs = await asyncio.gather(*(telling.blobs(keys) for telling in both))
        for key in keys:
            scope = ScopeDiffers(
                key,
                facts=await self._facts(*(of.get(key, ScopeTexts()) for of in facts)),
                reflections=await self._reflections(*(of.get(key, ScopeTexts()) for of in reflections)),
                blobs=blobs_differing(key, *(of.get(key) for of in blobs)),
            )
            report.take(scope)

    async def _facts(self, live: ScopeTexts, shadow: ScopeTexts) -> Differing:
        """By their vectors, if one model made them all; else by their words."""
        models = live.models | shadow.models
        (model,) = models if len(models) == 1 else (None,)
        if model is None:
            return await self._reflections(live, shadow)
        same, ours, theirs = set_aside(live.by_key, shadow.by_key)
        pairs = await self._by_meaning(ours, theirs, related(model) if self._least is None else self._least)
        return differing(same, ours, theirs, pairs, model, self._most)

    async def _reflections(self, live: ScopeTexts, shadow: ScopeTexts) -> Differing:
        """Nobody has vectors of reflections: by their words."""
        same, ours, theirs = set_aside(live.by_key, shadow.by_key)
        pairs = await asyncio.to_thread(_by_words, ours, theirs)
        return differing(same, ours, theirs, pairs, WORDS, self._most)

    async def _by_meaning(self, ours: Texts, theirs: Texts, least: float) -> list[Pair]:
        if not ours or not theirs:
            return []
        dimensions = await self._dimensions(ours)
        with VectorFile(len(ours), dimensions) as left, VectorFile(len(theirs), dimensions) as right:
            await _put(left, self._live, ours)
            await _put(right, self._shadow, theirs)
            return await asyncio.to_thread(best_first, left, right, (list(ours), list(theirs)), least)

    async def _dimensions(self, texts: Texts) -> int:
        """Of the first vector there is; 1 where they are all gone meanwhile."""
        async for _, packed in self._live.vectors([text.id for text in islice(texts.values(), 100)]):
            return len(packed) // 4
        return 1


async def _put(rows: VectorFile, memory: ComparedMemory, texts: Texts) -> None:
    places = {text.id: place for place, text in enumerate(texts.values())}
    async for fact_id, packed in memory.vectors(list(places)):
        rows.put(places[fact_id], packed)


def _by_words(ours: Texts, theirs: Texts) -> list[Pair]:
    if not ours or not theirs:
        return []
    with VectorFile(len(ours), DIMENSIONS) as left, VectorFile(len(theirs), DIMENSIONS) as right:
        for rows, texts in ((left, ours), (right, theirs)):
            for place, text in enumerate(texts.values()):
                rows.put(place, word_vector(text.text).tobytes())
        return best_first(left, right, (list(ours), list(theirs)), related(WORDS))


async def _side_by_side(
    live: AsyncGenerator[ScopeSeen], shadow: AsyncGenerator[ScopeSeen]
) -> AsyncGenerator[tuple[ScopeSeen | None, ScopeSeen | None]]:
    """Each scope once, in the order of their keys."""
    ours, theirs = await anext(live, None), await anext(shadow, None)
    while ours is not None or theirs is not None:
        if ours is not None and theirs is not None and ours.key == theirs.key:
            yield ours, theirs
            ours, theirs = await anext(live, None), await anext(shadow, None)
        elif theirs is None or (ours is not None and ours.key < theirs.key):
            yield ours, None
            ours = await anext(live, None)
        else:
            yield None, theirs
            theirs = await anext(shadow, None)
