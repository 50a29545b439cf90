"""The differences between a memory and live memory: the largest first. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from decimal import Decimal
from heapq import heappush, heappushpop
from operator import add
from typing import Any

from eden_memory.call_costs import known_cost
from eden_memory.replay.comparing.differing import ChangedText, Differing, TextCounts
from eden_memory.replay.user_edits.user_edits import AppliedEdits, SettledEdit

KINDS = ("facts", "reflections", "blobs")


@dataclass(frozen=True, slots=True)
class ScopeDiffers:
    """One scope of both memories."""

    scope_key: str
    facts: Differing
    reflections: Differing
    blobs: Differing

    @property
    def words(self) -> int:
        """How many differ: by this the largest differences come first."""
        return self.facts.words + self.reflections.words + self.blobs.words

    @property
    def differing(self) -> int:
        """Texts that are not the same."""
        return sum(self.of(kind).counts.differing for kind in KINDS)

    def of(self, kind: str) -> Differing:
        """Facts, reflections or blobs."""
        return {"facts": self.facts, "reflections": self.reflections, "blobs": self.blobs}[kind]


@dataclass(frozen=True, slots=True)
class StageSpending:
    """Calls of models in one namespace, by one stage."""

    calls: int = 0
    failed_calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    unpriced_calls: int = 0
    cost_usd: Decimal = Decimal(0)
    """Of the calls whose price is known."""

    @property
    def known_usd(self) -> Decimal | None:
        """The cost, or None where the price of none of these calls is known."""
        tokens = self.input_tokens + self.output_tokens
        return known_cost(self.cost_usd, self.calls, self.unpriced_calls, tokens)

    def __add__(self, other: "StageSpending") -> "StageSpending":
        return StageSpending(*map(add, astuple(self), astuple(other)))


BothSpent = tuple[StageSpending, StageSpending]


@dataclass(slots=True)
class MemoryReport:
    """Two memories compared; `scopes` holds the `most` that differ most (None: all that differ)."""

    live: str
    shadow: str
    most: int | None
    complete: bool = True
    """Whether the shadow holds all there was when it last looked."""
    compared: int = 0
    """Scopes."""
    different: int = 0
    """Scopes."""
    counts: dict[str, TextCounts] = field(default_factory=lambda: {kind: TextCounts() for kind in KINDS})
    matched_by: set[str] = field(default_factory=set[str])
    spent: dict[str, BothSpent] = field(default_factory=dict[str, BothSpent])
    """By stage: live, shadow."""
    reused: int = 0
    """Answers that the shadow's formation found paid for already."""
    own: AppliedEdits | None = None
    """People's own changes; None: they were not looked at."""
    _scopes: list[tuple[int, int, ScopeDiffers]] = field(default_factory=list[tuple[int, int, ScopeDiffers]])

    def take(self, scope: ScopeDiffers) -> None:
        """A scope more."""
        self.compared += 1
        for kind in KINDS:
            self.counts[kind] += scope.of(kind).counts
        if not scope.differing:
            return
        self.different += 1
        self.matched_by |= {by for kind in KINDS if (by := scope.of(kind).by) is not None}
        ranked = scope.words, -self.compared, scope
        if self.most is None or len(self._scopes) < self.most:
            heappush(self._scopes, ranked)
        elif self.most:
            heappushpop(self._scopes, ranked)

    @property
    def scopes(self) -> list[ScopeDiffers]:
        """The largest differences first."""
        return [scope for _, _, scope in sorted(self._scopes, key=lambda ranked: ranked[:2], reverse=True)]

    @property
    def equal(self) -> bool:
        """Whether both say the same."""
        return not self.different

    def json(self) -> dict[str, Any]:
        """The keys that docs/replay.md names, and no others."""
        return {
            "live": self.live,
            "shadow": self.shadow,
            "complete": self.complete,
            "equal": self.equal,
            "scopes_compared": self.compared,
            "scopes_different": self.different,
            "matched_by": sorted(self.matched_by),
            **{kind: asdict(self.counts[kind]) for kind in KINDS},
            "spent": self._spent(),
            "own_changes": None if self.own is None else _own(self.own, self.most),
            "scopes": [_scope(scope) for scope in self.scopes],
        }

    def _spent(self) -> dict[str, Any]:
        total = total_of(self.spent)
        return {
            "live": _money(total[0]),
            "shadow": _money(total[1]),
            "reused_answers": self.reused,
            "stages": {
                stage: {"live": _money(live), "shadow": _money(shadow)}
                for stage, (live, shadow) in sorted(self.spent.items())
            },
        }


def total_of(spent: Mapping[str, BothSpent]) -> BothSpent:
    """Of all stages: live, shadow."""
    live, shadow = StageSpending(), StageSpending()
    for of_live, of_shadow in spent.values():
        live, shadow = live + of_live, shadow + of_shadow
    return live, shadow


def _money(spent: StageSpending) -> dict[str, Any]:
    return asdict(spent) | {"cost_usd": None if spent.known_usd is None else str(spent.known_usd)}


def _scope(scope: ScopeDiffers) -> dict[str, Any]:
    return {
        "scope_key": scope.scope_key,
        "words_different": scope.words,
        **{kind: _differing(scope.of(kind)) for kind in KINDS},
    }


def _differing(of: Differing) -> dict[str, Any]:
    return {
        "counts": asdict(of.counts),
        "words_different": of.words,
        "matched_by": of.by,
        "changed": [_changed(changed) for changed in of.changed],
        "added": [asdict(text) for text in of.added],
        "lost": [asdict(text) for text in of.lost],
    }


def _changed(changed: ChangedText) -> dict[str, Any]:
    return {
        "live": asdict(changed.live),
        "shadow": asdict(changed.shadow),
        "similarity": changed.similarity,
        "words": [[run.said, run.text] for run in changed.runs],
    }


def _own(own: AppliedEdits, most: int | None) -> dict[str, Any]:
    return {
        "to_apply": len(own.applied),
        "already": len(own.already),
        "unmatched": [_settled(settled) for settled in own.unmatched[:most]],
        "unmatched_count": len(own.unmatched),
        "outdated": [_settled(settled) for settled in own.outdated[:most]],
        "outdated_count": len(own.outdated),
        "additions": asdict(own.additions),
    }


def _settled(settled: SettledEdit) -> dict[str, Any]:
    change = settled.change
    nearest = None if settled.text is None else {"text": settled.text, "similarity": settled.similarity}
    return {
        "fact_id": change.fact_id,
        "scope_key": change.scope.key,
        "kind": change.kind,
        "before": list(change.before),
        "after": change.after,
        "by": change.command.by,
        "asked_by": change.command.asked_by,
        "at": change.at.isoformat(),
        "nearest": nearest,
        "why": settled.why,
    }
