"""The plan of a decision call: new facts, the facts near them, and the numbers of both. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from eden_memory.formation.fact_statements import KnownFact, Near, Stated
from eden_memory.formation.prompt_material import DecisionMaterial, KnownLine, NewFact
from eden_memory.limits import STANDARD
from eden_memory.memory.scope_matrix import matrix_of, nearest_before
from eden_memory.schemas.events import Considered

NO_TIMES: Mapping[str, datetime] = {}


@dataclass(frozen=True, slots=True)
class NumberedFact:
    """A new fact with the numbers of the known facts near it, and of earlier new ones behind those."""

    fact_id: str
    candidates: tuple[int, ...]
    similarities: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DecisionPlan:
    """One call: `known` facts are numbered from 1, `new` ones on behind them; `members` are decided together."""

    members: tuple[str, ...]
    known: tuple[tuple[str, int], ...]
    """Fact id and version."""
    new: tuple[NumberedFact, ...]

    def shown(self) -> tuple[str, ...]:
        """Return the lines stored beside the answer: members, known facts, new facts with their candidates."""
        return (
            *(f"member {name}" for name in self.members),
            *(f"known {fact_id}@{version}" for fact_id, version in self.known),
            *(f"new {fact.fact_id} {_joined(fact)}" for fact in self.new),
        )

    @classmethod
    def of(cls, shown: Sequence[str]) -> "DecisionPlan | None":
        """Read a plan back from its lines; None if they are not a plan's."""
        try:
            parts = [line.split(" ", 1) for line in shown]
            members = tuple(rest for kind, rest in parts if kind == "member")
            known = [rest.rsplit("@", 1) for kind, rest in parts if kind == "known"]
            new = tuple(_new(rest) for kind, rest in parts if kind == "new")
            return cls(members, tuple((fact_id, int(version)) for fact_id, version in known), new)
        except ValueError:
            return None

    def digest(self) -> str:
        """Return a short hash that tells plans of one unit apart."""
        return blake2b("\n".join(self.shown()).encode(), digest_size=8).hexdigest()

    def material(
        self,
        texts: Mapping[str, str],
        words: int,
        times: Mapping[str, datetime] = NO_TIMES,
        language: str | None = None,
    ) -> DecisionMaterial:
        """Return the prompt's values; `texts` of known and new facts by id, `times` at which they were said."""
        best = [0.0] * len(self.known)
        for fact in self.new:
            for number, similarity in zip(fact.candidates, fact.similarities, strict=True):
                if number <= len(best):
                    best[number - 1] = max(best[number - 1], similarity)
        return DecisionMaterial(
            known=tuple(
                KnownLine(texts[fact_id], similarity, times.get(fact_id))
                for (fact_id, _), similarity in zip(self.known, best, strict=True)
            ),
            new=tuple(
                NewFact(texts[fact.fact_id], fact.candidates, fact.similarities, times.get(fact.fact_id))
                for fact in self.new
            ),
            words=words,
            language=language,
        )

    def considered(self, fact: NumberedFact) -> tuple[Considered, ...]:
        """Return the stored facts that a new one was compared with."""
        return tuple(
            Considered(fact_id=self.known[number - 1][0], version=self.known[number - 1][1], similarity=value)
            for number, value in zip(fact.candidates, fact.similarities, strict=True)
            if number <= len(self.known)
        )


def plan(
    members: Sequence[str],
    stated: Sequence[Stated],
    vectors: Sequence[bytes],
    near: Sequence[Sequence[Near]],
    least: float,
    most: int = STANDARD.similar_facts,
) -> DecisionPlan:
    """Number the facts near each statement: known ones (`near`), and the statements before it."""
    known: dict[str, int] = {}
    for found in near:
        for hit in found:
            known.setdefault(hit.fact.fact_id, hit.fact.version)
    number = {fact_id: index for index, fact_id in enumerate(known, 1)}
    earlier = _earlier(stated, vectors, least, most)
    shown_new = {statement.fact_id for statement, hits in zip(stated, earlier, strict=True) if hits}
    shown_new |= {statement.fact_id for statement, found in zip(stated, near, strict=True) if found}
    shown_new |= {name for hits in earlier for name, _ in hits}
    new: list[NumberedFact] = []
    for statement, found, hits in zip(stated, near, earlier, strict=True):
        if statement.fact_id not in shown_new:
            continue
        named = [*((near_one.fact.fact_id, near_one.similarity) for near_one in found), *hits]
        new.append(
            NumberedFact(
                statement.fact_id,
                tuple(number[name] for name, _ in named),
                tuple(value for _, value in named),
            )
        )
        number[statement.fact_id] = len(known) + len(new)
    return DecisionPlan(tuple(members), tuple(known.items()), tuple(new))


def _earlier(
    stated: Sequence[Stated], vectors: Sequence[bytes], least: float, most: int
) -> list[list[tuple[str, float]]]:
    """Return for each statement the nearest of those before it that say something else."""
    hash_of = {statement.fact_id: statement.hash for statement in stated}
    repeats = len(stated) - len(set(hash_of.values()))
    found = nearest_before(list(hash_of), vectors, most + repeats, least)
    return [
        [(name, similarity) for name, similarity in hits if hash_of[name] != statement.hash][:most]
        for statement, hits in zip(stated, found, strict=True)
    ]


def merged_near(
    stored: Sequence[Sequence[Near]],
    decided: Mapping[str, KnownFact | None],
    vectors: Sequence[bytes],
    least: float,
    most: int = STANDARD.similar_facts,
) -> list[list[Near]]:
    """Return the nearest facts, stored or decided since; a decided version replaces the stored one.

    `decided` is None for facts that are no longer to be found.
    """
    usable = {name: fact for name, fact in decided.items() if fact is not None and fact.vector is not None}
    dimensions = len(vectors[0]) // 4 if vectors else 1
    packed = ((name, fact.vector) for name, fact in usable.items() if fact.vector is not None)
    hits = matrix_of(packed, dimensions).nearest(vectors, most, least)
    merged: list[list[Near]] = []
    for found, fresh in zip(stored, hits, strict=True):
        here = [near for near in found if near.fact.fact_id not in decided]
        here += [Near(usable[hit.fact_id], hit.similarity) for hit in fresh]
        here.sort(key=lambda near: (-near.similarity, near.fact.fact_id))
        merged.append(here[:most])
    return merged


def _joined(fact: NumberedFact) -> str:
    pairs = zip(fact.candidates, fact.similarities, strict=True)
    return ",".join(f"{number}:{similarity!r}" for number, similarity in pairs)


def _new(text: str) -> NumberedFact:
    fact_id, _, joined = text.partition(" ")
    pairs = [pair.split(":") for pair in joined.split(",") if pair]
    return NumberedFact(
        fact_id,
        tuple(int(number) for number, _ in pairs),
        tuple(float(similarity) for _, similarity in pairs),
    )
