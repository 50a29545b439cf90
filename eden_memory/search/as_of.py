"""A fact as it was known at a time, out of its document's history. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from eden_memory.models.reranking.candidates import Candidate, When

RETIRING = ("DELETE", "RETIRE")
"""Decisions after which a fact does not hold, unless it is a fact's first version: the successor's."""


def as_known(
    fact: Candidate, active: bool, history: Sequence[Mapping[str, Any]], when: When
) -> Candidate | None:
    """The version that `when` asks for; None if nothing of the fact was known, or it did not hold.

    `fact` is the newest version, `history` the earlier ones, newest first (version, content, valid_from, decision).
    A fact that is neither active nor retired repeats an older one, and is never shown. Where history is cut off,
    its oldest version stands for those before.
    """
    if not active and fact.retired_at is None:
        return None
    if when.as_of is not None and when.as_of < fact.said_at:
        return None
    then = fact if when.as_of is None else _as_of(fact, history, when.as_of)
    if then.retired_at is not None and not when.include_retired:
        return None
    return then


def _as_of(fact: Candidate, history: Sequence[Mapping[str, Any]], as_of: datetime) -> Candidate:
    """The last version that holds since then or earlier: `valid_from` goes back only where a version was undone."""
    if fact.valid_from > as_of:
        return _earlier(fact, history, as_of)
    if fact.retired_at is not None and fact.retired_at > as_of:
        return replace(fact, retired_at=None, replaced_by=None)
    return fact


def _earlier(fact: Candidate, history: Sequence[Mapping[str, Any]], as_of: datetime) -> Candidate:
    before = [version for version in history if version["valid_from"] <= as_of] or list(history[-1:])
    if not before:
        return replace(fact, retired_at=None, replaced_by=None)
    then = before[0]
    gone = then["decision"] in RETIRING and then["version"] > 1
    return replace(
        fact,
        text=then["content"],
        valid_from=then["valid_from"],
        version=then["version"],
        retired_at=then["valid_from"] if gone else None,
        replaced_by=fact.replaced_by if gone else None,
        vector=fact.vector if then["content"] == fact.text else None,
    )
