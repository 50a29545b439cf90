"""Authors of several sessions are found by two queries, and are those that each session alone has."""

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient, monitoring

from eden_memory.directory.author_store import MessageAuthors
from eden_memory.mongo.ids import encode_id
from eden_memory.settings import Settings
from tests.integration.context.harness import mapped

pytestmark = pytest.mark.servers


class Asked(monitoring.CommandListener):
    """The queries about authors."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name in {"aggregate", "distinct"}:
            self.names.append(event.command_name)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


def said(session: Any, role: str, user: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {"session_id": session, "role": role, "user_id": user, "content": "Hi.", "created_at": now}


async def test_several_sessions_have_the_authors_that_each_has_alone(settings: Settings) -> None:
    settings, asked = mapped(settings), Asked()
    assert settings.mongodb.uri is not None
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        settings.mongodb.uri.get_secret_value(), event_listeners=[asked]
    )
    async with client:
        source, memory = client[settings.source_database], client[settings.mongodb.database]
        number = ObjectId()
        await source[settings.messages.collection].insert_many(
            [
                said("one", "user", "ada"),
                said("one", "user", "ada"),
                said("one", "assistant", "helper"),
                said(number, "user", 7),
                said(number, "user", "s.7"),
                said("unnamed", "user", None),
                said("events", "event", None),
                {"session_id": "one", "role": "user", "content": "No author."},
                said("only answers", "assistant", None),
            ]
        )
        await source[settings.names["inbox"]].insert_one(said("one", "user", "mia") | {"kind": "added_text"})
        authors = MessageAuthors(source, memory, settings)
        sessions = [encode_id(name) for name in ("one", number, "unnamed", "events", "only answers", "empty")]
        together = await authors.of(sessions)
        assert asked.names == ["aggregate", "aggregate"]
        assert together == {name: (await authors.of([name]))[name] for name in sessions}
        assert [len(together[name] or ()) for name in sessions] == [3, 2, 1, 0, 0, 0]
        assert [None in (together[name] or ()) for name in sessions] == [True, False, True] + 3 * [False]


async def test_where_the_author_says_the_role_whoever_is_not_named_as_the_agent_takes_part(
    settings: Settings,
) -> None:
    roles = {"7": "assistant", "*": "user"}
    settings = mapped(settings)
    by_author = settings.messages.model_copy(update={"role": "user_id", "roles": roles})
    settings = settings.model_copy(update={"messages": by_author})
    assert settings.mongodb.uri is not None
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(settings.mongodb.uri.get_secret_value())
    async with client:
        source, memory = client[settings.source_database], client[settings.mongodb.database]
        said_by = [said("one", "", author) for author in ("ada", 7.0, 8)] + [said("two", "", None)]
        await source[settings.messages.collection].insert_many(said_by)
        authors = MessageAuthors(source, memory, settings)
        found = {"s.one": frozenset({"s.ada", "i.8"}), "s.two": frozenset({None})}
        assert await authors.of(["s.one", "s.two"]) == found
        assert {name: (await authors.of([name]))[name] for name in found} == found


async def test_an_author_that_is_no_id_leaves_only_its_own_session_unknown(settings: Settings) -> None:
    settings = mapped(settings)
    assert settings.mongodb.uri is not None
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(settings.mongodb.uri.get_secret_value())
    async with client:
        source, memory = client[settings.source_database], client[settings.mongodb.database]
        await source[settings.messages.collection].insert_many(
            [said("one", "user", "ada"), said("odd", "user", {"name": "ada"})]
        )
        found = await MessageAuthors(source, memory, settings).of(["s.one", "s.odd"])
        assert found == {"s.one": frozenset({"s.ada"}), "s.odd": None}


async def test_ids_that_the_collection_takes_for_the_same_are_asked_for_one_by_one(
    settings: Settings,
) -> None:
    settings = mapped(settings)
    assert settings.mongodb.uri is not None
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(settings.mongodb.uri.get_secret_value())
    async with client:
        source, memory = client[settings.source_database], client[settings.mongodb.database]
        same = {"locale": "en", "strength": 2}
        await source.create_collection(settings.messages.collection, collation=same)
        await source[settings.messages.collection].insert_many(
            [said("chat", "user", "ada"), said("CHAT", "user", "mia")]
        )
        authors = MessageAuthors(source, memory, settings)
        found = await authors.of(["s.Chat", "s.other"])
        assert found == {"s.Chat": frozenset({"s.ada", "s.mia"}), "s.other": frozenset()}
        assert await authors.everybody_in(["s.Chat"]) is None
