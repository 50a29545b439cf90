"""A message that the tailer refuses is no recent message either."""

from datetime import UTC, datetime

from eden_memory.context.written_message_store import MessageFields
from eden_memory.settings import MessagesSettings


def test_a_message_in_a_session_of_added_texts_is_not_read() -> None:
    fields = MessageFields(MessagesSettings())  # pyright: ignore[reportCallIssue]
    row = {"_id": "m1", "role": "user", "user_id": "mia", "content": "Hi.", "created_at": datetime.now(UTC)}
    assert fields.message({**row, "session_id": "chat"}) is not None
    assert fields.message({**row, "session_id": "eden:added:s.default:s.ben"}) is None
