"""What one session cost: its calls added up by stage, another's and another account's left alone."""

from decimal import Decimal
from typing import Any

import pytest
from bson import Decimal128

from eden_memory.mongo.client import connect
from eden_memory.replay.comparing.comparing import session_calls
from eden_memory.settings import Settings
from tests.names import NAMES

pytestmark = pytest.mark.servers


def call(name: str, stage: str, usd: str | None, session: str = "s.one", **fields: Any) -> dict[str, Any]:
    tokens = {"input_tokens": 10, "cached_tokens": 1, "output_tokens": 5}
    cost = None if usd is None else Decimal128(usd)
    given = {"namespace": "live", "outcome": "answered", "requests": 1, "cost_usd": cost, **tokens, **fields}
    return {"_id": name, "stage": stage, "session_id": session, **given}


async def test_the_calls_of_a_session_are_added_up_by_stage(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        database = client[settings.mongodb.database]
        await database["memory_calls"].insert_many(
            [
                call("a", "fact-extraction", "0.10"),
                call("b", "fact-extraction", None, outcome="invalid"),
                call("c", "fact-extraction", None, outcome="timed_out", input_tokens=0),
                call("d", "reflection-extraction", "0.25"),
                call("e", "fact-extraction", "7", session="s.two"),
                call("f", "fact-extraction", "7", namespace="trial"),
            ]
        )
        found = {one.of: one for one in await session_calls(database, NAMES, "live", "s.one")}
    assert found.keys() == {"fact-extraction", "reflection-extraction"}
    facts = found["fact-extraction"]
    assert facts.cost_usd == Decimal("0.10")
    assert (facts.counts["calls"], facts.counts["failed_calls"], facts.counts["unpriced_calls"]) == (3, 2, 1)
    assert (facts.counts["input_tokens"], facts.counts["output_tokens"]) == (20, 15)
