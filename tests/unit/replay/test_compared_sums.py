"""Two memories compared hold no more for many scopes that are equal than for one."""

from eden_memory.replay.rebuild.document_comparing import ComparedMemories


def test_scopes_that_are_equal_leave_nothing_behind() -> None:
    compared = ComparedMemories()
    for number in range(1_000):
        compared.take("facts", f"f-{number}", f"user:s.a:i.{number}", (number, number))
    assert (len(compared.sums), compared.differing) == (1, {})
    assert compared.of("facts").equal
    assert compared.of("facts").live.count == 1_000


def test_what_differs_is_taken_back_once_it_is_equal() -> None:
    compared = ComparedMemories()
    compared.take("facts", "f-1", "user:s.a:i.1", (1, None))
    compared.take("facts", "f-2", "user:s.a:i.1", (2, 2))
    assert not compared.of("facts").equal
    compared.again("facts", "f-1", (1, 1))
    assert compared.of("facts").equal
    assert compared.differing == {}
