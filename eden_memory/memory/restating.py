"""Commands that add what is left of a forgotten fact again. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from eden_memory.forgotten import Marks
from eden_memory.memory.document_projection import statements_of
from eden_memory.memory.fact_hash import fact_hash
from eden_memory.memory.memory_batch import ScopeBatch, is_left
from eden_memory.memory.stored_memory import StoredScope
from eden_memory.schemas.documents import Fact, FactStatement
from eden_memory.schemas.events import FactChanged, FactCommanded
from eden_memory.schemas.ids import split
from eden_memory.schemas.provenance import newest_said
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery, Erase

UNDO = "undo:"
MOST_ALIKE = 20
"""Statements with one text that are stated anew: each deletion of a message states all of them again."""


def to_state_anew(left: Iterable[FactStatement]) -> list[FactStatement]:
    """Return the statements by version; of equal ones, the newest `MOST_ALIKE`."""
    found: list[FactStatement] = []
    alike: dict[str, int] = {}
    for said in sorted(left, key=lambda said: said.version, reverse=True):
        text = fact_hash(said.text)
        alike[text] = alike.get(text, 0) + 1
        if alike[text] <= MOST_ALIKE:
            found.append(said)
    return found[::-1]


def dropped_from_store(batch: ScopeBatch, stored: StoredScope) -> Iterator[tuple[Fact, Delivery]]:
    """Yield stored facts whose newest version the batch drops, with the record dropped."""
    for (fact_id, version), delivery in batch.dropped.items():
        fact = stored.facts.get(fact_id)
        if fact is not None and fact.version == version:
            yield fact, delivery


def left_of_stored(fact: Fact, dropped: FactChanged, marks: Marks) -> list[FactStatement]:
    """Return the statements of a stored fact that rest on nothing forgotten."""
    return [said for said in statements_of(fact) if is_left(dropped, said, marks)]


def earlier_versions(dropped: Erase, fact: Fact) -> list[Erase]:
    """Return tombstones of a fact's versions before the one dropped, as forgetting publishes them."""
    return [
        replace(dropped, key=f"{fact.id}@{version}", entity_version=str(version))
        for version in range(1, fact.version)
    ]


def is_restated(command_id: str) -> bool:
    """Return whether a command adds again what was left of a fact."""
    return command_id.startswith("restated/")


def undo_id(cause: str, fact_id: str, version: int) -> str:
    """Return the `_id` of the request that changes a fact, or adds its words again, as an attack is undone."""
    return f"{UNDO}{cause}:{fact_id}@{version}"


def undone_fact(command_id: str) -> str | None:
    """Return the fact that the command of such a request is about; None for other commands."""
    try:
        _, text = split(command_id)
    except ValueError:
        return None
    return text.rpartition(":")[2].partition("@")[0] if text.startswith(UNDO) else None


def restated(
    fact_id: str,
    said: FactStatement,
    scope: Scope,
    *,
    asked_at: datetime,
    asked_by: str | None = None,
    expires_at: datetime | None = None,
    decide: bool = False,
    private: bool = False,
) -> FactCommanded:
    """Return the command that adds one statement of a fact again; the same statement gives the same id."""
    return FactCommanded(
        command_id=f"restated/{fact_id}/{said.version}",
        scope=scope,
        action="add",
        text=said.text,
        sources=said.sources,
        expires_at=expires_at,
        decide=decide,
        private=private or None,
        by="forgetting",
        asked_by=asked_by,
        reason="something else that the fact was merged from is forgotten",
        asked_at=asked_at,
        said_at=newest_said(said.sources) or said.said_at,
    )
