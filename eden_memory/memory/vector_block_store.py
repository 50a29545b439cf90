"""The stored vectors of large scopes: which documents they are, and how forgetting deletes them."""

from collections.abc import Sequence
from typing import Any

from pymongo import DeleteMany, DeleteOne, ReplaceOne

from eden_memory.memory.stored_memory import ScopeWrite
from eden_memory.schemas.documents import Snapshot

Row = dict[str, Any]
LARGE_SCOPE = 5_000
"""Active facts from which a scope's vectors are stored as blocks."""
NEARLY_LARGE = LARGE_SCOPE // 2
"""One batch adds and retires far fewer facts than this difference."""


def blocks_of(scope_key: str, made: str = "") -> Row:
    """Return a query for a scope's blocks, of one making if that is given: `<scope key>/<made>/<number>`."""
    start = f"{scope_key}/{made}" + ("/" if made else "")
    return {"_id": {"$gt": start, "$lt": start[:-1] + "0"}}  # 0 is the character behind the slash


def deletions(changes: Sequence[ScopeWrite]) -> list[DeleteMany | DeleteOne | ReplaceOne[Row]]:
    """Delete the vectors of scopes in which facts are forgotten.

    In a large scope the document that every new block is counted in is written as well: then a process that copies
    vectors at this moment meets a conflict, and stores none that it had read before.
    """
    operations: list[DeleteMany | DeleteOne | ReplaceOne[Row]] = []
    for change in changes:
        if change.gone_facts and (snapshot := change.snapshot) is not None:
            operations += [_emptied(snapshot), DeleteMany(blocks_of(snapshot.id))]
    return operations


def _emptied(snapshot: Snapshot) -> DeleteOne | ReplaceOne[Row]:
    if snapshot.active_facts < NEARLY_LARGE:
        return DeleteOne({"_id": snapshot.id})
    empty: Row = {"agent_id": snapshot.agent_id, "reset_revision": snapshot.revision}
    return ReplaceOne({"_id": snapshot.id}, empty, upsert=True)
