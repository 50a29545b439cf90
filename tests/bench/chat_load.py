"""Chat messages of about 400 bytes of BSON, the same for everybody who asks with the same seed."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId

TEXT = """
the trip to Lisbon was moved again because Ana starts her new job on Monday and wants to keep the old flat
until spring could you please remind me of the invoice number before we call the bank about it tomorrow
"""
WORDS = TEXT.split()
SESSIONS, USERS = 1_000, 200
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def messages(count: int, *, seed: int = 1, content: int = 230) -> Iterator[dict[str, Any]]:
    """`count` documents in the order of their creation."""
    dice = random.Random(seed)
    for number in range(count):
        words = " ".join(dice.choices(WORDS, k=content // 5))
        session = dice.randrange(SESSIONS)
        yield {
            "_id": ObjectId(f"{0x65000000 + number // 1000:08x}{seed:04x}{number:012x}"),
            "session_id": f"session-{session:06d}",
            "role": "user" if number % 2 else "assistant",
            "content": f"{number} {words}"[:content],
            "user_id": f"user-{session % USERS:05d}",
            "created_at": BEGAN + timedelta(milliseconds=number * 10),
        }
