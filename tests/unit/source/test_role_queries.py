"""The query for messages by our roles reads stored values as the mapping does."""

from eden_memory.directory.author_store import role_query
from eden_memory.settings import MessagesSettings


def test_an_author_of_64_bits_who_answers_is_no_user() -> None:
    names = ["9223372036854775807", "9223372036854775808"]
    settings = MessagesSettings(roles={**dict.fromkeys(names, "assistant"), "*": "user"})
    numbers = [value for value in role_query(settings, ("user",))["$nin"] if isinstance(value, int)]
    assert numbers == [2**63 - 1]
