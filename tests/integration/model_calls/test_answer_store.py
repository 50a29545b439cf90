"""The answer store: written once, found by hash and by unit, exact to the cent."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from eden_memory.models.stored_answers import MongoAnswers
from eden_memory.schemas.documents import Answer
from eden_memory.schemas.fields import pack_vector

pytestmark = pytest.mark.servers
NOW = datetime(2026, 3, 2, 9, 15, 0, 123_000, tzinfo=UTC)


def answer(number: int = 1, **fields: Any) -> Answer:
    known: dict[str, Any] = {
        "id": f"{number:064x}",
        "call_id": f"c{number}",
        "operation": "chat",
        "model": "m",
        "unit": "facts:e1",
        "text": "{}",
        "answered_at": NOW,
    }
    return Answer(**{**known, **fields})


async def test_what_is_kept_comes_back_as_it_was(store: MongoAnswers) -> None:
    full = answer(
        provider="openai",
        response_model="m-2026",
        prompt="facts/1",
        shown=("f1", "f2"),
        input_tokens=12,
        cached_tokens=3,
        output_tokens=4,
        reasoning_tokens=1,
        cost_usd=Decimal("0.000000000001"),
        seconds=1.25,
    )
    vector = answer(2, operation="embeddings", unit=None, text=None, vectors=(pack_vector([0.6, 0.8]),))
    free = answer(3, cost_usd=Decimal("0.000000000000"), unit=None)
    for one in (full, vector, free):
        assert await store.keep(one) == one
    assert dict(await store.find([full.id, vector.id, free.id, "0" * 64])) == {
        full.id: full,
        vector.id: vector,
        free.id: free,
    }


async def test_the_first_answer_stays_and_later_ones_adopt_it(store: MongoAnswers) -> None:
    texts = [f"answer {number}" for number in range(20)]
    kept = await asyncio.gather(*(store.keep(answer(text=text)) for text in texts))
    assert len({one.text for one in kept}) == 1
    assert (await store.find([kept[0].id]))[kept[0].id] == kept[0]
    assert (await store.keep(answer(text="much later"))).text == kept[0].text


async def test_answers_stored_together_are_each_stored_once_and_whole(store: MongoAnswers) -> None:
    first = await store.keep(answer(1, text="first"))
    several = [answer(1, text="second"), *(answer(number) for number in range(2, 40))]
    kept = await store.keep_all(several)
    assert kept == [first, *several[1:]]
    assert await store.find([one.id for one in several]) == {one.id: one for one in kept}
    assert await store.keep_all([]) == []


async def test_answers_of_one_unit_are_found_together_by_an_index(store: MongoAnswers, database: Any) -> None:
    for number, unit in enumerate(["facts:e1", "facts:e1", "facts:e2", None]):
        await store.keep(answer(number, unit=unit))
    assert sorted(await store.of_unit("facts:e1")) == [f"{0:064x}", f"{1:064x}"]
    assert await store.of_unit("facts:e3") == {}
    plan = await database["memory_answers"].find({"unit": "facts:e1"}).explain()
    assert "IXSCAN" in str(plan["queryPlanner"]["winningPlan"])


async def test_an_answer_judged_invalid_keeps_its_first_reason(store: MongoAnswers) -> None:
    await store.keep(answer())
    await store.judged_invalid(answer().id, "not JSON")
    await store.judged_invalid(answer().id, "something else")
    (found,) = (await store.of_unit("facts:e1")).values()
    assert (found.invalid, found.text) == ("not JSON", "{}")


@dataclass
class Tripped:
    """Fails so often as a server that is away does, then goes on."""

    inner: Any
    times: int

    async def insert(self, document: dict[str, Any]) -> str | None:
        from pymongo.errors import AutoReconnect

        self.times -= 1
        if self.times >= 0:
            if self.times == 0:
                await self.inner.insert(document)  # written, but the answer to that was lost
            raise AutoReconnect("connection reset")
        return await self.inner.insert(document)


async def test_a_paid_answer_is_stored_though_the_server_is_away_for_a_moment(store: MongoAnswers) -> None:
    inserts: Any = Tripped(store._inserts, 2)  # pyright: ignore[reportPrivateUsage]
    store._inserts = inserts  # pyright: ignore[reportPrivateUsage]
    assert await store.keep(answer()) == answer()
    assert list(await store.of_unit("facts:e1")) == [answer().id]


async def test_a_unit_and_an_answer_of_another_are_looked_up_together(store: MongoAnswers) -> None:
    mine, others = answer(), answer().model_copy(update={"id": "f" * 64, "unit": "facts:e9"})
    await store.keep(mine)
    await store.keep(others)
    assert dict(await store.of_unit("facts:e1", others.id)) == {mine.id: mine, others.id: others}
    assert dict(await store.of_unit("facts:e2", others.id)) == {others.id: others}
    assert dict(await store.of_unit("facts:e2", "0" * 63 + "e")) == {}
