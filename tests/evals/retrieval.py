"""`make eval-retrieval`: how well ranking finds what answers a question, by setting, language and kind; update pairs.

    python -m tests.evals.retrieval

R@10 / nDCG@10 over five long conversations, as turns and as single facts. Five-fold: for each conversation the
setting that is best on the other four. EDEN_SEARCH_RERANKER names a cross-encoder to be measured, too. Vectors are
kept in the temporary folder; the first run takes a minute longer.
"""

import asyncio
import os
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from itertools import product

from rich.console import Console
from rich.table import Table

from eden_memory.evals.systems import PlainWords, Quality
from eden_memory.evals.systems import mean_quality as mean
from eden_memory.models.local_embedder import MODEL, MULTILINGUAL
from eden_memory.models.rerankers import reranker_of
from eden_memory.search.ranking import Ranking
from eden_memory.search.search_requests import Kind as Search
from eden_memory.settings import SearchSettings
from tests.evals import plain_questions
from tests.evals.conversations import CATEGORIES, DATA, Kind, there
from tests.evals.held import KnownVectors
from tests.evals.kinds import kinds_measured
from tests.evals.languages import found_in, languages
from tests.evals.newer_first import share_newer_first
from tests.evals.recalled import recalled
from tests.evals.runs import Judged, Loaded, Order, engine, judged, loaded, rrf_60, rrf_60_of
from tests.evals.update_forms import forms, memories
from tests.evals.update_pairs import JUDGED, TUNING, Pair, of_people

BARE = Ranking(hubs=0, siblings=0, times=0, subjects=0, shared=0, newer=False)
GRID = [
    replace(Ranking(), text_weight=weight, siblings=lift, times=times)
    for weight, lift, times in product((0.3, 0.4, 0.5), (0.3, 0.6), (0.1, 0.2))
]
"""What each fold chooses from."""
KINDS: tuple[Kind, ...] = ("turns", "facts")
ALONE: tuple[Search, ...] = ("text", "semantic")


def settings(plain: dict[str, PlainWords]) -> dict[str, Order]:
    """By name, in the order of the table: baselines, then one stage after the other, then what is off."""
    steps = {
        "RRF-60, lists of 20": replace(BARE, fusion="ranks"),
        "scores, lists of 20": replace(BARE, list_size=20),
        "scores, lists of 50": BARE,
        "+ siblings": replace(BARE, siblings=0.6),
        "+ times": replace(BARE, siblings=0.6, times=0.2),
        "+ subjects": replace(Ranking(), shared=0, newer=False, hubs=0),
        "+ shared words": replace(Ranking(), newer=False, hubs=0),
        "+ hubs": replace(Ranking(), newer=False),
        "+ newer first = the default": Ranking(),
        "default, semantic >= 0.65": replace(Ranking(), semantic_least=0.65),
        "default, recency 0.2": replace(Ranking(), recency_weight=0.2),
        "default, MMR 0.7": replace(Ranking(), diversity=0.7),
    }
    return {
        "BM25, plain": lambda one, asked: _known(plain[one.of.name].order(asked.text)),
        "words alone": engine(BARE, "text"),
        "meaning alone": engine(BARE, "semantic"),
        "RRF-60, plain BM25": rrf_60_of(plain),
        "RRF-60": rrf_60,
        **{name: engine(ranking) for name, ranking in steps.items()},
        **_with_a_cross_encoder(),
    }


def _with_a_cross_encoder() -> dict[str, Order]:
    """The default with the cross-encoder that EDEN_SEARCH_RERANKER names; none without it."""
    named = SearchSettings.model_validate({"reranker": os.environ.get("EDEN_SEARCH_RERANKER")})
    if (reranker := reranker_of(named)) is None:
        return {}
    return {"default, the cross-encoder that is named": engine(Ranking(), reranker=reranker)}


def _plain_words(one: Loaded) -> PlainWords:
    facts = [unit.fact for unit in one.of.units]
    return PlainWords([fact.fact_id for fact in facts], [fact.text for fact in facts])


async def _known(order: list[str]) -> list[str]:
    return order


async def folded(where: Sequence[Loaded]) -> list[Judged]:
    """Each conversation by the setting that is best on the others."""
    runs = [await judged(where, engine(ranking)) for ranking in GRID]
    return [found for one in where for found in _of(_best_without(runs, one.of.name), one.of.name)]


def _best_without(runs: Sequence[list[Judged]], name: str) -> list[Judged]:
    return max(runs, key=lambda run: mean([one.quality for one in run if one.conversation != name]).recall)


def _of(run: Sequence[Judged], name: str) -> list[Judged]:
    return [one for one in run if one.conversation == name]


async def measured(kind: Kind, vectors: KnownVectors) -> dict[str, list[Judged]]:
    """Every setting over all conversations."""
    where = await loaded(kind, vectors)
    plain = {one.of.name: _plain_words(one) for one in where}
    runs: dict[str, Awaitable[list[Judged]]] = {
        name: judged(where, order) for name, order in settings(plain).items()
    }
    found = {name: await run for name, run in runs.items()}
    return {**found, "five-fold choice": await folded(where)}


def table(kind: Kind, found: dict[str, list[Judged]]) -> Table:
    """A line a setting; the difference is to RRF-60 over the same words."""
    shown = Table("setting", "all", "to RRF-60", *CATEGORIES, title=f"R@10 / nDCG@10 on {kind}")
    base = mean([one.quality for one in found["RRF-60"]])
    for name, run in found.items():
        whole = mean([one.quality for one in run])
        parts = (mean([one.quality for one in run if one.category == category]) for category in CATEGORIES)
        gain = f"{whole.recall - base.recall:+.3f}"
        shown.add_row(name, _figure(whole), gain, *(_figure(part) for part in parts))
    return shown


def _figure(of: Quality) -> str:
    return f"{of.recall:.3f}/{of.ndcg:.3f}"


async def recall_table(kind: Kind, vectors: KnownVectors) -> Table:
    """What recall adds to a question."""
    found = await recalled(await loaded(kind, vectors))
    shown = Table(
        "still answered", "added to a stranger's question", "nothing added", title=f"recall of {kind}"
    )
    shown.add_row(f"{found.answered:.3f}", f"{found.others:.2f}", f"{found.nothing:.2f}")
    return shown


async def plain_table() -> Table:
    """What recall adds to plain questions and to small talk, by the embedder."""
    shown = Table("embedder", "answered", "small talk that gets something", title="plain questions")
    for model in (MODEL, MULTILINGUAL):
        found = await plain_questions.recalled(KnownVectors(model))
        shown.add_row(model, f"{found.answered:.2f}", f"{found.disturbed:.2f}")
    return shown


def update_pairs() -> dict[str, list[list[Pair]]]:
    """By where they are from, each memory's."""
    return {
        "of people, of which the rule was set": of_people(TUNING),
        "of people, others": of_people(JUDGED),
        "in other forms, of which the rule was set": memories(forms("tuning")),
        "in other forms, others": memories(forms("held")),
    }


async def language_table(vectors: KnownVectors) -> Table:
    """How often a question finds its fact, by language: the same memory in each, local vectors and words."""
    shown = Table("language", "first", "among ten", "by words alone", "by meaning alone", title="languages")
    for language in languages():
        found = await found_in(language, vectors, Ranking())
        alone = [(await found_in(language, vectors, Ranking(), kind)).among_ten for kind in ALONE]
        shown.add_row(language, *(f"{share:.3f}" for share in (*found, *alone)))
    return shown


async def kinds_table(vectors: KnownVectors) -> Table:
    """Compare searching reflections with keeping their statements as facts, for questions of either kind."""
    shown = Table(
        "searched", "answered by facts", "by reflections", "by both", title="R@10 / nDCG@10 by kind"
    )
    for name, found in (await kinds_measured(vectors)).items():
        by_kind = (found.by_facts, found.by_reflections, found.by_both)
        shown.add_row(name, *map(_figure, by_kind))
    return shown


async def main() -> None:
    """Print the tables."""
    console, vectors = Console(width=150), KnownVectors()
    pairs = Table("update pairs", "rule off", "rule on", title="newer above older")
    for name, made in update_pairs().items():
        off = await share_newer_first(made, vectors, replace(Ranking(), newer=False))
        on = await share_newer_first(made, vectors, Ranking())
        pairs.add_row(name, f"{off:.3f}", f"{on:.3f}")
    console.print(pairs)
    console.print(await language_table(vectors))
    console.print(await plain_table())
    if not there():
        console.print(f"No conversations at {DATA}: R@10 and nDCG@10 are left out.")
        return
    for kind in KINDS:
        console.print(table(kind, await measured(kind, vectors)))
        console.print(await recall_table(kind, vectors))
    console.print(await kinds_table(vectors))


if __name__ == "__main__":
    asyncio.run(main())
