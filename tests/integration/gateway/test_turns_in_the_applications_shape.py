"""Turns of a chat stand among the application's messages as it writes its own; where that cannot be, in the inbox."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast
from uuid import UUID, uuid4

import orjson
import pytest
from bson import ObjectId

from eden_memory.doctor.mongodb_checks import gateway_turns
from eden_memory.errors import EdenError
from eden_memory.mongo.bson_ids import encode_id
from eden_memory.settings import MessagesSettings, Settings
from eden_memory.source.configured_mapping import inbox_name, message_mapping
from tests.integration.gateway.gateway_kit import Chats, behind, chats_of, says
from tests.integration.system.running_system import prepare, stages, until
from tests.model_server.chat_upstream import ChatUpstream

pytestmark = pytest.mark.servers
QUESTION, ANSWER = "I live in Porto.", "Noted, Porto."
Row = dict[str, Any]
AT = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


class Schema:
    """An application's messages: how they are mapped, and two of them."""

    def __init__(self, mapping: Row, user: Row, assistant: Row, extra: Row | None = None) -> None:
        self.mapping, self.extra = mapping, extra or {}
        self.rows: Mapping[str, Row] = {"user": user, "assistant": assistant}

    def settings(self, settings: Settings, provider: ChatUpstream, **gateway: Any) -> Settings:
        changed = behind(settings, provider.openai_url, message_fields=self.extra, **gateway)
        messages = MessagesSettings(**self.mapping)  # pyright: ignore[reportCallIssue]
        return changed.model_copy(update={"messages": messages})


OBJECT_IDS = Schema(
    {"session_id": "thread.id", "user_id": "author.id", "created_at": "at",
     "roles": {"human": "user", "ai": "assistant"}},
    {"_id": ObjectId(), "thread": {"id": "t1"}, "role": "human", "content": [{"type": "text", "text": "Hello."}],
     "author": {"id": "ana", "kind": "person"}, "at": AT, "tenant": "acme", "status": {"sent": True}},
    {"_id": ObjectId(), "thread": {"id": "t1"}, "role": "ai", "content": [{"type": "text", "text": "Hello!"}],
     "author": {"kind": "person"}, "at": AT, "tenant": "acme", "status": {"sent": True}},
    {"tenant": "acme", "status.sent": True, "author.kind": "person"},
)  # fmt: skip
UUIDS = Schema(
    {"session_id": "chat", "role": "from", "content": "body", "user_id": "customer", "created_at": "sentAt",
     "roles": {"customer": "user", "agent": "assistant"}},
    {"_id": uuid4(), "chat": "c1", "from": "customer", "body": "Hello.", "customer": "ana",
     "sentAt": "2026-03-01T12:00:00.250Z"},
    {"_id": uuid4(), "chat": "c1", "from": "agent", "body": "Hello!", "sentAt": "2026-03-01T12:00:01.000Z"},
)  # fmt: skip
EPOCHS = Schema(
    {"created_at": "ts"},
    {"_id": str(uuid4()), "session_id": "c1", "role": "user", "user_id": "ana", "ts": 1_772_366_400_250,
     "content": [{"type": "input_text", "text": "Hello."}]},
    {"_id": str(uuid4()), "session_id": "c1", "role": "assistant", "ts": 1_772_366_401_000,
     "content": [{"type": "output_text", "text": "Hello!"}]},
)  # fmt: skip
SCHEMAS = {"object ids": OBJECT_IDS, "uuids": UUIDS, "epochs": EPOCHS}
UNKNOWN: dict[str, Row] = {
    "integers": {"_id": 7},
    "a role that is no text": {"_id": "a", "role": True},
    "a content of another kind": {"_id": "a", "content": {"blocks": []}},
    "a time of another kind": {"_id": "a", "created_at": "yesterday"},
    "an id for a time": {"_id": "a", "created_at": ObjectId()},
    "the time of its own id": {"_id": ObjectId()},
}


def shape(value: Any) -> Any:
    """Types in place of values."""
    if isinstance(value, Mapping):
        return {name: shape(one) for name, one in cast("Row", value).items()}
    if isinstance(value, list):
        return [shape(one) for one in cast("list[Any]", value)]
    return type(value).__name__


async def rows(chats: Chats, schema: Schema) -> list[Row]:
    """The turns that stand among the messages."""
    await chats.gateway.keeping.idle()
    theirs = [one["_id"] for one in schema.rows.values()]
    found = chats.kit.database["messages"].find({"_id": {"$nin": theirs}})
    return await found.sort(schema.mapping["created_at"]).to_list()


async def turn(chats: Chats, answer: str, *texts: str) -> None:
    chats.upstream.reply = says(answer)
    await chats.say(*texts, memory_id="c9", user="rui")


@pytest.mark.parametrize("name", SCHEMAS)
async def test_a_turn_is_written_as_the_application_writes_its_own(
    settings: Settings, provider: ChatUpstream, name: str
) -> None:
    schema = SCHEMAS[name]
    own = schema.settings(settings, provider)
    mapping = message_mapping(own)
    async with chats_of(own, provider) as chats:
        await chats.kit.database["messages"].insert_many(list(schema.rows.values()))
        await turn(chats, ANSWER, QUESTION)
        await turn(chats, ANSWER, QUESTION)
        found = await rows(chats, schema)
        assert [mapping.has_text(one) for one in found] == [True, True]
        for ours, one, text in zip(("user", "assistant"), found, (QUESTION, ANSWER), strict=True):
            theirs = await chats.kit.database["messages"].find_one({"_id": schema.rows[ours]["_id"]})
            assert shape(one) == shape(theirs)
            read = orjson.loads(mapping.record(one, "0" * 16, b"", "stream").value or b"")
            assert (read["role"], read["text"], read["session_id"]) == (ours, text, "s.c9")
            assert read["user_id"] == ("s.rui" if ours == "user" else None)
            assert read["created_at"] is not None


@pytest.mark.parametrize("name", SCHEMAS)
async def test_names_hold_whatever_the_type_of_ids(
    settings: Settings, provider: ChatUpstream, name: str
) -> None:
    """A history that comes again stores nothing twice, and an answer that got lost is stored when it shows."""
    schema = SCHEMAS[name]
    async with chats_of(schema.settings(settings, provider), provider) as chats:
        await chats.kit.database["messages"].insert_many(list(schema.rows.values()))
        await turn(chats, ANSWER, QUESTION)
        answered = (await rows(chats, schema))[-1]
        await chats.kit.database["messages"].delete_one({"_id": answered["_id"]})
        await turn(chats, "By train.", QUESTION, ANSWER, "How do I get to Faro?")
        found = await rows(chats, schema)
        assert len(found) == 4
        assert answered["_id"] in [one["_id"] for one in found]
        await turn(chats, "By bus.", QUESTION, ANSWER, "How do I get to Faro?")
        await turn(chats, "Yes.", QUESTION, ANSWER, "How do I get to Faro?", "By bus.", "Is it far?")
        assert len(await rows(chats, schema)) == 7


@pytest.mark.parametrize("name", UNKNOWN)
async def test_where_the_shape_cannot_be_known_turns_go_through_the_inbox(
    settings: Settings, provider: ChatUpstream, name: str
) -> None:
    theirs = {
        "session_id": "s",
        "role": "user",
        "content": "Hello.",
        "user_id": "u",
        "created_at": AT,
    } | UNKNOWN[name]
    mapped = settings
    if name == "the time of its own id":
        by_id = settings.messages.model_copy(update={"created_at": "_id"})
        mapped = settings.model_copy(update={"messages": by_id})
    async with chats_of(behind(mapped, provider.openai_url), provider) as chats:
        await chats.kit.database["messages"].insert_one(theirs)
        for _ in range(2):
            await turn(chats, ANSWER, QUESTION)
        await chats.gateway.keeping.idle()
        assert await chats.kit.database["messages"].count_documents({}) == 1
        inbox = chats.kit.database[inbox_name(settings)]
        asked = await inbox.find({}).sort("created_at").to_list()
        assert [(one["role"], one["text"], one["user_id"]) for one in asked] == [
            ("user", QUESTION, "rui"),
            ("assistant", ANSWER, None),
        ]


async def test_turns_of_the_inbox_become_messages_of_the_session_once(
    settings: Settings, provider: ChatUpstream
) -> None:
    quick = settings.model_copy(
        update={
            "tailer": settings.tailer.model_copy(update={"commit_seconds": 0.2, "watermark_seconds": 0.5})
        }
    )
    own = behind(quick, provider.openai_url, turns="inbox")
    await prepare(own)
    async with chats_of(own, provider) as chats, stages(own, ("formation-trigger",)):
        recorded = (
            chats.kit.database[own.names["messages"]] if own.source_database == own.mongodb.database else None
        )
        assert recorded is not None
        inbox = chats.kit.database[inbox_name(own)]

        async def stored(count: int) -> bool:
            return (
                await recorded.count_documents({"session_id": "s.c9"}) == count
                and await inbox.count_documents({}) == 0
            )

        await turn(chats, ANSWER, QUESTION)
        await until(lambda: stored(2), "both are recorded")
        await turn(chats, ANSWER, QUESTION)
        await turn(chats, "By train.", QUESTION, ANSWER, "How do I get to Faro?")
        await until(lambda: stored(4), "the next are recorded")
        found = await recorded.find({"session_id": "s.c9"}).sort("created_at").to_list()
        assert [(one["role"], one["user_id"]) for one in found] == [
            ("user", "s.rui"),
            ("assistant", None),
        ] * 2
        assert all(one["_id"].startswith("s.gw-") for one in found)
        again = ["Thanks.", "Anything else?", "No.", "Fine."]
        said = ["How do I get to Faro?", "By train.", *again, *again]
        for end in range(3, len(said), 2):  # of a history that is cut to three turns, each request sent twice
            for _ in range(2):
                await turn(chats, said[end], *said[:end][-3:])
                await chats.gateway.keeping.idle()
            await until(partial(stored, end + 3), f"{end + 3} are recorded")


@pytest.mark.parametrize(
    "extra",
    [{"role": "x"}, {"created_at.zone": "x"}, {"a": 1, "a.b": 2}, {"owner": "$nobody"}, {"": 1}, {"$set": 1}],
)
async def test_further_fields_that_cannot_be_set_are_refused(
    settings: Settings, provider: ChatUpstream, extra: Row
) -> None:
    with pytest.raises(EdenError, match="EDEN_GATEWAY_MESSAGE_FIELDS"):
        async with chats_of(behind(settings, provider.openai_url, message_fields=extra), provider):
            pass


async def test_further_fields_may_stand_for_values_of_the_turn(
    settings: Settings, provider: ChatUpstream
) -> None:
    extra = {
        "meta.owner": "$user_id",
        "meta.by": "$agent_id",
        "sid": "$session_id",
        "copy": "$created_at",
        "n": 1,
    }
    async with chats_of(behind(settings, provider.openai_url, message_fields=extra), provider) as chats:
        await turn(chats, ANSWER, QUESTION)
        asked, answered = await chats.rows("c9")
        assert asked["meta"] == answered["meta"] == {"owner": "rui", "by": "default"}
        assert (asked["sid"], asked["copy"], asked["n"]) == ("c9", asked["created_at"], 1)
        assert encode_id(asked["_id"]).startswith("s.gw-")
        assert not isinstance(asked["_id"], UUID)


SESSION_ID, USER_ID = ObjectId(), ObjectId()
TYPED: dict[str, tuple[str, tuple[Any, Any], tuple[Any, Any]]] = {
    "ObjectId": ("object_id", (SESSION_ID, USER_ID), (str(SESSION_ID), str(USER_ID))),
    "integer": ("integer", (7, 9), ("7", "9")),
    "text": ("given", ("t7", "ana"), ("t7", "ana")),
    "UUID": ("uuid", (UUID(int=7), UUID(int=9)), (str(UUID(int=7)), str(UUID(int=9)))),
}


async def refusal(chats: Chats, session: Any, user: Any) -> str:
    """The detail of the refusal of a chat; empty if it is none."""
    asked = {"model": "m", "messages": [{"role": "user", "content": QUESTION}]}
    body = orjson.dumps({**asked, "memory_id": session, "user": user})
    answer = await chats.post(body, Authorization="Bearer sk", **{"Content-Type": "application/json"})
    return "" if answer.status_code == 200 else f"{answer.status_code} {answer.json()['detail']}"


@pytest.mark.parametrize("stands", TYPED)
@pytest.mark.parametrize("name", TYPED)
async def test_a_turn_is_written_with_ids_of_the_type_that_stands_there_or_refused(
    settings: Settings, provider: ChatUpstream, stands: str, name: str
) -> None:
    """The settings say one type, the messages hold another or the same; doctor says beforehand what happens."""
    form, _, asked = TYPED[name]
    wanted, (session, user), _ = TYPED[stands]
    theirs = {"session_id": session, "role": "user", "content": "Hi.", "user_id": user, "created_at": AT}
    own = behind(settings, provider.openai_url, session_ids=form, user_ids=form)
    async with chats_of(own, provider) as chats:
        messages = chats.kit.database["messages"]
        await messages.insert_one(dict(theirs))
        found = await gateway_turns(chats.kit.database, own)
        refused = await refusal(chats, *asked)
        await chats.gateway.keeping.idle()
        assert await messages.count_documents({}) == (3 if name == stands else 1)
        if name == stands:
            assert (refused, found.state) == ("", "ok")
            assert await messages.count_documents({"session_id": session, "user_id": user}) == 2
        else:
            assert refused.startswith(
                f"400 an id that is {name}, and `session_id` of the messages is {stands}"
            )
            assert f"EDEN_GATEWAY_SESSION_IDS={wanted}" in refused
            assert (found.state, found.hint) == ("warn", f"Set EDEN_GATEWAY_SESSION_IDS={wanted}.")


async def test_each_of_several_types_is_accepted_and_an_authors_other_one_is_refused(
    settings: Settings, provider: ChatUpstream
) -> None:
    async with chats_of(behind(settings, provider.openai_url), provider) as chats:
        assert await refusal(chats, 5, "rui") == "", "there are no messages yet"
        await chats.gateway.keeping.idle()
    async with chats_of(behind(settings, provider.openai_url), provider) as chats:
        shared = {"role": "user", "content": "Hi.", "created_at": AT}
        rows = [{**shared, "session_id": one, "user_id": USER_ID} for one in (7, "t7")]
        await chats.kit.database["messages"].delete_many({})
        await chats.kit.database["messages"].insert_many(rows)
        assert await refusal(chats, 7, None) == await refusal(chats, "t8", None) == ""
        assert "EDEN_GATEWAY_USER_IDS=object_id" in await refusal(chats, "t8", "rui")


async def test_doctor_says_that_a_chosen_place_gets_turns_of_another_shape(
    settings: Settings, provider: ChatUpstream
) -> None:
    own = behind(settings, provider.openai_url, turns="messages")
    async with chats_of(own, provider) as chats:
        theirs = {
            "_id": 7,
            "session_id": "s",
            "role": "user",
            "content": "Hi.",
            "user_id": "u",
            "created_at": AT,
        }
        await chats.kit.database["messages"].insert_one(theirs)
        found = await gateway_turns(chats.kit.database, own)
        assert (found.state, "integers" in found.what) == ("warn", True)
