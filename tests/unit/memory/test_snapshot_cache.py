"""Which snapshots are kept, and how many."""

import sys

from eden_memory.memory.memory_batch import scope_fields
from eden_memory.memory.snapshot_store import SNAPSHOT_BYTES, SnapshotCache
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.scopes import Scope
from tests.unit.memory.memory_histories import minute


def snapshot(number: int = 0, revision: int = 1, text: str | None = None) -> Snapshot:
    scope = Scope.of_user("s.assistant", f"i.{number}")
    fields = scope_fields(scope)
    return Snapshot(_id=scope.key, **fields, revision=revision, changed_at=minute(0), blob=text)


SIZE = SNAPSHOT_BYTES + sys.getsizeof(None)


def test_a_scope_that_grows_where_there_is_no_room_stays_and_the_oldest_go() -> None:
    cache = SnapshotCache(10 * SIZE)
    for number in range(10):
        cache.add(snapshot(number))
    for revision in range(2, 9):
        cache.add(snapshot(9, revision, "word " * 200 * revision))
    assert cache.among([snapshot(9).id])[snapshot(9).id].revision == 8
    left = [number for number in range(9) if cache.among([snapshot(number).id])]
    assert left
    assert left == list(range(left[0], 9))


def test_scopes_taken_in_turns_are_found_although_not_all_have_room() -> None:
    scopes, room = [snapshot(number) for number in range(100)], 80
    cache, found = SnapshotCache(room * SIZE), 0
    for _ in range(20):
        for scope in scopes:
            found += len(cache.among([scope.id]))
            cache.add(scope)
            assert len(cache.among([scope.id for scope in scopes])) <= room
    assert found > 20 * 50


def test_scopes_that_are_not_written_any_more_make_room() -> None:
    cache = SnapshotCache(10 * SIZE)
    for number in range(10):
        cache.add(snapshot(number))
    for number in range(1_000):
        cache.add(snapshot(10 + number % 10))
    assert not cache.among(snapshot(number).id for number in range(10))
