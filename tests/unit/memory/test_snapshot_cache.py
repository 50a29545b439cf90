"""Which snapshots are kept, and how many."""

from eden_memory.memory.snapshot_cache import SNAPSHOT_BYTES, SnapshotCache
from eden_memory.memory.stored_memory import scope_fields
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.scopes import Scope
from tests.unit.memory.memory_histories import minute


def snapshot(number: int = 0, revision: int = 1) -> Snapshot:
    scope = Scope.of_user("s.assistant", f"i.{number}")
    return Snapshot(_id=scope.key, **scope_fields(scope), revision=revision, changed_at=minute(0))


def test_an_earlier_revision_replaces_no_later_one() -> None:
    cache, key = SnapshotCache(), snapshot().id
    for revision in (1, 3, 2):
        cache.add(snapshot(revision=revision))
    assert cache.among([key])[key].revision == 3
    cache.drop([key, "other"])
    cache.add(snapshot(revision=1))
    assert cache.among([key])[key].revision == 1


def test_scopes_taken_in_turns_are_found_although_not_all_have_room() -> None:
    scopes, room = [snapshot(number) for number in range(100)], 80
    cache, found = SnapshotCache(room * SNAPSHOT_BYTES), 0
    for _ in range(20):
        for scope in scopes:
            found += len(cache.among([scope.id]))
            cache.add(scope)
            assert len(cache.among([scope.id for scope in scopes])) <= room
    assert found > 20 * 50


def test_scopes_that_are_not_written_any_more_make_room() -> None:
    cache = SnapshotCache(10 * SNAPSHOT_BYTES)
    for number in range(10):
        cache.add(snapshot(number))
    for number in range(1_000):
        cache.add(snapshot(10 + number % 10))
    assert not cache.among(snapshot(number).id for number in range(10))
