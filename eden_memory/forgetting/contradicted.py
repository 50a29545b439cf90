"""Facts that held no longer only because a fact contradicted them which is forgotten now. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter

from eden_memory.schemas.events import FactCommanded, Forgotten
from eden_memory.schemas.scopes import Scope


@dataclass(frozen=True, slots=True)
class Contradicted:
    """A stored fact that was retired because another one contradicted it."""

    fact_id: str
    version: int
    scope: Scope
    replaced_by: str
    held_from: datetime
    """Since when it held before that."""


def taken_up_again(
    forgotten: Forgotten, gone: Mapping[str, str | None], contradicted: Iterable[Contradicted]
) -> list[FactCommanded]:
    """Commands for the facts that facts of `gone` contradicted.

    `gone`: fact id → the fact that had contradicted it, if one had: that one takes its place. Where none had, the
    fact that was said last holds again; the others are contradicted by it now.
    """
    left = [(*_behind(gone, one.replaced_by), one) for one in contradicted if one.fact_id not in gone]
    left.sort(key=lambda found: (found[0], found[2].held_from, found[2].fact_id))
    commands: list[FactCommanded] = []
    for _, group in groupby(left, key=itemgetter(0)):
        *others, (_, instead, newest) = group
        commands.append(_command(forgotten, newest, instead))
        commands += [_command(forgotten, one, instead or newest.fact_id) for _, _, one in others]
    return commands


def _behind(gone: Mapping[str, str | None], name: str) -> tuple[str, str | None]:
    """The last of the facts that contradicted one another which is gone, and the one behind it that is not."""
    last, seen = name, {name}
    while (following := gone.get(last)) in gone and following is not None and following not in seen:
        seen.add(following)
        last = following
    return last, None if following in seen else following


def _command(forgotten: Forgotten, fact: Contradicted, replaced_by: str | None) -> FactCommanded:
    """The same for the same version of a fact, however often it is found."""
    return FactCommanded(
        command_id=f"contradicted/{fact.fact_id}/{fact.version}",
        scope=fact.scope,
        action="unmerge",
        fact_id=fact.fact_id,
        expected_version=fact.version,
        by="forgetting",
        asked_by=forgotten.asked_by,
        reason="what contradicted it is forgotten",
        asked_at=max(forgotten.forgotten_at, fact.held_from),
        said_at=fact.held_from,
        forgotten=(forgotten.key(),),
        replaced_by=replaced_by,
    )
