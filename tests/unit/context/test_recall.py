"""What a message is searched for by."""

import pytest

from eden_memory.context.context_xml import QUERY_CHARACTERS, query_of
from eden_memory.settings import MessagesSettings, Settings


def test_of_a_long_message_the_end_is_searched_for() -> None:
    assert query_of("x " * 1_000 + "end", Settings()) == ("x " * 1_000 + "end")[-QUERY_CHARACTERS:]


def test_no_half_of_a_secret_is_left_where_a_long_message_is_cut() -> None:
    secret = "sk-" + "a1b2c3d4" * 5
    message = f"Do you remember my key {secret} " + "x" * (QUERY_CHARACTERS - 20)
    assert "c3d4" not in query_of(message, Settings())
    kept = Settings(messages=MessagesSettings(redact_secrets=False))
    assert "c3d4" in query_of(message, kept)


@pytest.mark.parametrize("shift", range(0, 40, 4))
def test_no_half_of_a_secret_is_searched_for_where_a_long_message_is_cut(shift: int) -> None:
    secret = "".join(f"{number:x}A" for number in range(30, 60))
    behind = f"{' ' * (1_270 + shift)}What did I say?"
    query = query_of(f"{'word ' * 9_000}password: {secret}{behind}", Settings())
    assert query.endswith("What did I say?")
    assert not any(secret[start : start + 16] in query for start in range(len(secret) - 15))
