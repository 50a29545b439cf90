"""The forced loss of the tailer's position, with changes and deletions that no stream will bring again."""

import random
from typing import Any

from tests.chaos.application import MESSAGES, Application, surely

POSITIONS = "memory_positions"
WAYS = ("outdated", "garbage", "recreated")
"""outdated: a place that the oplog does not hold (280); garbage: a token that is none (50811); recreated: the
collection is dropped and made anew from a backup that lacks some messages."""


async def lose(way: str, application: Application, seed: int, *, pre_images: bool) -> None:
    """While no tailer runs: some messages go, then so does the position."""
    if way == "recreated":
        await _recreate(application, random.Random(f"{seed}/backup"), pre_images=pre_images)
        return
    await _delete_some(application)
    positions = application.database[POSITIONS]
    stored: dict[str, Any] = await surely(lambda: positions.find_one({"token": {"$exists": True}}))
    token = f"82{1:08x}{1:08x}{stored['token'][18:]}" if way == "outdated" else "82" + "f" * 30
    await surely(lambda: positions.update_one({"_id": stored["_id"]}, {"$set": {"token": token}}))


async def _delete_some(application: Application) -> None:
    """The oldest ten: their records are in the topic for sure."""
    oldest: list[dict[str, Any]] = await surely(
        lambda: application.messages.find({}, {"_id": 1}).sort("created_at", 1).limit(10).to_list()
    )
    gone = [one["_id"] for one in oldest]
    await surely(lambda: application.messages.delete_many({"_id": {"$in": gone}}))


async def _recreate(application: Application, chance: random.Random, *, pre_images: bool) -> None:
    backup: list[dict[str, Any]] = await surely(
        lambda: application.messages.find().sort("created_at", 1).to_list()
    )
    await surely(lambda: application.database.drop_collection(MESSAGES))
    await application.create(pre_images=pre_images)
    kept = [one for number, one in enumerate(backup) if number >= 10 and chance.random() > 0.1]
    for document in kept:
        if chance.random() < 0.1 and isinstance(document["content"], str):
            document["content"] += " (restored)"
    await surely(lambda: application.messages.insert_many(kept))
