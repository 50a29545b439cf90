"""Ids and times by their value, whatever BSON type a driver gave them; an author that is no id costs no text."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import format_datetime
from typing import Any
from uuid import UUID

import pytest
from bson import Binary, Decimal128, Int64, ObjectId, Timestamp

from eden_memory.doctor.canary import canary
from eden_memory.errors import Invalid
from eden_memory.settings import Settings
from tests.integration.gateway.gateway_kit import running
from tests.integration.system.running_system import System, prepare, stages, until

pytestmark = pytest.mark.servers
SAID = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SECONDS = int(SAID.timestamp())
OLD_UUID = Binary(UUID("6f1c8a3e-5f0a-4b6e-9d0f-0d8f5f0f8a11").bytes, 3)
IDS = [
    pytest.param(1001.0, 42.0, 7.0, 42, id="numbers of JavaScript"),
    pytest.param(Decimal128("-1002"), Decimal128("43"), Decimal128(Decimal(2**60)), 43, id="decimals"),
    pytest.param(OLD_UUID, Binary(b"\x01" * 16, 3), Binary(b"\x02" * 16, 3), None, id="UUIDs of old drivers"),
]
TIMES: Sequence[Any] = (
    float(SECONDS),
    Int64(SECONDS * 1_000),
    float(SECONDS * 1_000_000),
    str(SECONDS),
    str(SECONDS * 1_000),
    str(SECONDS * 1_000_000),
    Decimal128(str(SECONDS)),
    Timestamp(SECONDS, 3),
    format_datetime(SAID),
    SAID.isoformat(),
    "some day",  # its ObjectId says it
    None,
)


@pytest.mark.parametrize(("session", "user", "message", "same"), IDS)
async def test_an_id_is_the_same_whatever_type_it_has(
    shared: System, session: Any, user: Any, message: Any, same: Any
) -> None:
    await shared.session(user, id=session)
    said = {"session_id": session, "role": "user", "user_id": user, "created_at": datetime.now(UTC)}
    await shared.source["messages"].insert_one(
        {"_id": message, "content": "fact user: Rui rows on Mondays.", **said}
    )
    await shared.form(session)
    await shared.shows(session, user, "Rui rows on Mondays.")
    (fact,) = (await shared.service.list_facts(user=user if same is None else same)).items
    assert fact.content == "Rui rows on Mondays."
    assert "Rui rows" not in await shared.context(session, "somebody else")
    await shared.service.forget("message", message)
    await shared.shows(session, user, without=["Rui rows on Mondays."])


async def test_a_fact_is_as_old_as_its_message_says_in_any_form(shared: System) -> None:
    users = [f"time-{number}" for number in range(len(TIMES))]
    for number, (user, time) in enumerate(zip(users, TIMES, strict=True)):
        session = await shared.session(user)
        await shared.source["messages"].insert_one(
            {
                "_id": ObjectId(f"{SECONDS:08x}{number:016x}"),
                "session_id": session,
                "role": "user",
                "user_id": user,
                "content": f"fact user: {user} moved to Porto.",
                "created_at": time,
            }
        )
        await shared.form(session)

    async def told() -> list[datetime]:
        return [
            fact.valid_from for user in users for fact in (await shared.service.list_facts(user=user)).items
        ]

    async def all_formed() -> bool:
        return len(await told()) == len(users)

    await until(all_formed, "a fact of every user")
    assert set(await told()) == {SAID}


async def test_a_message_whose_author_is_no_id_is_read_and_gives_nobody_anything_of_their_own(
    shared: System,
) -> None:
    session = await shared.session("ida")
    odd = {"session_id": session, "role": "user", "created_at": datetime.now(UTC), "user_id": {"name": "Bo"}}
    await shared.source["messages"].insert_one(
        {"_id": f"odd-{session}", "content": "note session: They plan a trip.", **odd}
    )
    await shared.form(session)
    await shared.shows(session, "ida", "They plan a trip.")
    assert (await shared.service.list_facts(user="ida")).items == ()
    assert not await shared.memory("dead_letters").count_documents({"key": {"$regex": f"odd-{session}"}})


SHAPES: list[dict[str, Any]] = [
    {"content": {"type": "text", "text": "fact user: {}"}},
    {"content": {"content_type": "text", "parts": ["fact user: {}"]}},
    {
        "content": [
            {"type": "image_url", "image_url": {"url": "x"}},
            {"type": "text", "text": "fact user: {}"},
        ]
    },
    {"content": [{"type": "input_audio", "transcript": "Hello."}, "fact user: {}"]},
    {"content": None, "audio": {"id": "a", "transcript": "fact user: {}"}},
    {"content": [{"type": "image"}], "caption": "fact user: {}"},
]


async def test_the_text_of_every_shape_is_remembered_and_a_tools_result_is_nobodys_word(
    shared: System,
) -> None:
    for number, shape in enumerate(SHAPES):
        user = f"shape-{number}"
        session = await shared.session(user)
        said = {"session_id": session, "role": "user", "user_id": user, "created_at": datetime.now(UTC)}
        filled = json.loads(json.dumps(shape).replace("{}", f"{user} moved to Porto."))
        result = [{"type": "tool_result", "content": "Nothing was planted."}]
        await shared.source["messages"].insert_many(
            [
                {**said, **filled},
                {**said, "content": result},
                {**said, "content": None, "tool_calls": [{"id": "1"}]},
            ]
        )
        recent = await shared.shows(await shared.session(user), user, f"{user} moved to Porto.")
        assert "planted" not in recent
        await shared.form(session)
        await shared.shows(session, user, f"{user} moved to Porto.", without=["planted"])
        (fact,) = (await shared.service.list_facts(user=user)).items
        assert fact.content == f"{user} moved to Porto."


async def test_of_messages_that_nobody_can_see_no_model_is_asked(shared: System) -> None:
    session = await shared.session("zoe")
    await shared.write(session, "zoe", "\u200b", "\ufeff \u2060")
    with pytest.raises(Invalid, match="no text"):
        await shared.service.add([{"role": "user", "content": "\u200b\u200d"}], session=session, user="zoe")
    await shared.form(session)
    other = await shared.session("zoe")
    await shared.told(other, "zoe", "fact user: Zoe sails.")
    rows = await shared.memory("windows").find({"session_id": f"s.{session}"}).to_list()
    assert [row for row in rows if row.get("requested")] == []


async def test_a_canary_is_planted_for_an_agent_whose_id_is_no_text(settings: Settings) -> None:
    by_rules = running(settings, "http://127.0.0.1:9")
    await prepare(by_rules)
    async with stages(by_rules):
        findings = await canary(by_rules, f"o.{ObjectId()}")
    assert [finding for finding in findings if finding.state == "fail"] == []
    assert len(findings) >= 5
