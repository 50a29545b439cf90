"""Facts that look like an application's, with vectors in clusters, written straight into a database."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.memory.memory_batch import fact_hash
from eden_memory.mongo.documents import row_of, vector_of
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.scopes import Scope
from tests.unit.context.parts import stored_snapshot

Vectors = NDArray[np.float32]
MODEL = "bench"
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def _listed(words: str) -> list[str]:
    return words.split()


AT_ONCE = 2_000
CLUSTERS = 400
NOISE = 0.06
"""Of each number; a cluster's facts have a cosine of about 0.4 in 384 dimensions."""
PEOPLE = _listed("Ana Ben Carla Dimitri Elif Farid Greta Hugo Ines Jonas Kira Liam Mona Nils Olga Pavel")
DOES = (
    ("plays", "playing"),
    ("practises", "practising"),
    ("collects", "collecting"),
    ("repairs", "repaired"),
    ("teaches", "teaching"),
    ("dislikes", "disliked"),
    ("recommends", "recommended"),
    ("photographs", "photographing"),
    ("borrows", "borrowing"),
    ("studies", "studying"),
    ("organises", "organising"),
    ("paints", "painting"),
)
WHAT = _listed(
    "violin accordion bicycle orchid telescope sourdough espresso marathon origami chessboard lantern kayak "
    "violoncello keyboard camera puzzle dictionary hammock saddle compass novel sculpture terrarium skateboard "
    "trumpet vineyard greenhouse notebook typewriter microscope drone aquarium guitar saxophone waterfall cathedral"
)
KINDS = _listed(
    "wooden antique broken borrowed electric portable enormous miniature handmade Italian Japanese Moroccan Swedish "
    "forgotten favourite expensive second-hand waterproof"
)
WHERE = _listed(
    "Lyon Porto Lisbon Bergen Kyoto Tallinn Marseille Valencia Salzburg Gdansk Utrecht Bologna Dresden Tampere "
    "Edinburgh Antwerp Seville Zagreb"
)
WHY = (
    "since the summer holidays",
    "because a colleague asked",
    "for a neighbour's birthday",
    "every second weekend",
    "before the winter begins",
    "with the children of a friend",
    "after work on Thursdays",
    "although the doctor advised against it",
)


class Told(NamedTuple):
    """A fact as it was said, and the words of it that another would ask with."""

    text: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """All facts of some scopes; row i of `vectors` is `ids[i]`'s."""

    scopes: tuple[Scope, ...]
    ids: list[str]
    scope_of: list[int]
    told: list[Told]
    vectors: Vectors


def told(dice: random.Random) -> Told:
    """One of some millions."""
    person, (does, doing) = dice.choice(PEOPLE), dice.choice(DOES)
    kind, what, where = dice.choice(KINDS), dice.choice(WHAT), dice.choice(WHERE)
    text = f"The user's friend {person} {does} the {kind} {what} in {where} {dice.choice(WHY)}"
    return Told(text, (doing, kind, what, where))


def facts(count: int, scopes: Sequence[Scope], dimensions: int, seed: int) -> Facts:
    """Spread evenly over the scopes."""
    dice, numbers = random.Random(seed), np.random.default_rng(seed)
    centres: Vectors = numbers.standard_normal((CLUSTERS, dimensions), dtype=np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    vectors: Vectors = centres[numbers.integers(CLUSTERS, size=count)]
    vectors += NOISE * numbers.standard_normal(vectors.shape, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = [f"{seed}-{number}" for number in range(count)]
    of = [number % len(scopes) for number in range(count)]
    return Facts(tuple(scopes), ids, of, [told(dice) for _ in range(count)], vectors)


def near(vector: Vectors, seed: int) -> bytes:
    """A vector near another, packed."""
    noise: Vectors = np.random.default_rng(seed).standard_normal(len(vector), dtype=np.float32)
    moved: Any = vector + 0.04 * noise
    return bytes((moved / np.linalg.norm(moved)).astype("<f4").tobytes())


async def store(database: AsyncDatabase[Any], made: Facts) -> None:
    """As the writer would have left them."""
    collection = database["memory_facts"]
    for start in range(0, len(made.ids), AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, len(made.ids)))
        await collection.insert_many([_row(made, number) for number in numbers], ordered=False)
    counts = Counter(made.scope_of)
    snapshots = [row_of(_snapshot(scope, counts[number])) for number, scope in enumerate(made.scopes)]
    await database["memory_snapshots"].insert_many(snapshots)


def _row(made: Facts, number: int) -> dict[str, Any]:
    scope, text = made.scopes[made.scope_of[number]], made.told[number].text
    formed = NOW - timedelta(minutes=number)
    return {
        "_id": made.ids[number],
        "scope": scope.kind,
        "scope_key": scope.key,
        "agent_id": scope.agent_id,
        "user_id": scope.user_id,
        "group_id": scope.group_id,
        "content": text,
        "hash": fact_hash(f"{number} {text}"),
        "embedding": vector_of(made.vectors[number].tobytes()),
        "embedding_model": MODEL,
        "active": True,
        "version": 1,
        "decision": "ADD",
        "session_ids": ["s.one"],
        "formed_at": formed,
        "said_at": formed,
        "valid_from": formed,
        "revision": 1,
    }


def _snapshot(scope: Scope, facts: int) -> Snapshot:
    return stored_snapshot(
        scope,
        active_facts=facts,
        changed_at=NOW,
    )
