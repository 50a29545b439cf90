"""The reason of an empty answer harms no answer."""

from eden_memory.operations.empty_because import EmptyBecause


def test_a_header_holds_printable_ascii_and_is_short() -> None:
    header = EmptyBecause("unknown_user", "there is no user a\r\nb\x00ü " + "x" * 9_000, "").header
    assert header.startswith("unknown_user; there is no user a??b?? xxx")
    assert len(header) == 500
    assert EmptyBecause("unknown_user", "there is no user \n ", "").header.endswith(" user ?")
