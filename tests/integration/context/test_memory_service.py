"""MemoryService on a real MongoDB: what is read, what is kept, and that what is kept is never stale."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient, monitoring
from pymongo.read_concern import ReadConcern

from eden_memory.api.service import MemoryService
from eden_memory.errors import NotFound
from eden_memory.mongo.client import connect
from eden_memory.schemas.documents import InboxFormNow, InboxSessionEnded
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import MemorySettings, Settings
from tests.integration.context.harness import Kit, fact, mapped, reflection

pytestmark = pytest.mark.servers
AGENT, ADA = Scope.of_agent("s.a"), Scope.of_user("s.a", "s.ada")


class Commands(monitoring.CommandListener):
    """Every read that a client sends, but for those of change streams."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name in {"find", "aggregate"} and "$changeStream" not in str(event.command):
            self.sent.append(event.command)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


async def until(get: Callable[[], Awaitable[str]], holds: Callable[[str], bool]) -> str:
    """The context, once it is as it should be."""
    async with asyncio.timeout(60):
        while not holds(context := await get()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return context


async def test_a_context_holds_what_the_user_of_the_session_may_see(kit: Kit) -> None:
    session = ObjectId()
    await kit.session(session, ["ada"], group_id=7)
    await kit.put(AGENT, blob="Helps with travel.", recent_facts=(fact("The office moved to Lyon."),))
    await kit.put(ADA, blob="Prefers trains.", recent_facts=(fact("Ada lives in Turin.", 90),))
    await kit.put(Scope.of_group("s.a", "i.7"), blob="Books on Fridays.")
    mine = Scope.of_session("s.a", f"o.{session}", ("s.ada",))
    await kit.put(mine, buffer=(reflection("plans a trip"),))
    async with kit.service() as service:
        context = await service.get_memory_context(session, "ada")
    for text in ("Helps with travel", "Lyon", "trains", "Turin. (1h ago)", "Fridays", "plans a trip"):
        assert text in context


def without_recent(settings: Settings) -> Settings:
    """Messages that are not formed yet are read whenever they are asked for."""
    return mapped(settings).model_copy(update={"memory": MemorySettings(recent=False)})


async def test_a_cold_read_is_one_query_of_the_snapshots_and_a_warm_one_none(settings: Settings) -> None:
    commands = Commands()
    assert settings.mongodb.uri is not None
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        settings.mongodb.uri.get_secret_value(), event_listeners=[commands]
    )
    async with client:
        kit = Kit(mapped(settings), client)
        await kit.session("one", ["ada"])
        await kit.put(ADA, blob="Prefers trains.")
        async with MemoryService("a", client=client, settings=without_recent(settings)) as service:
            await service.ready()
            await service.get_memory_context("other", "ada")
            commands.sent.clear()
            first = await service.get_memory_context("one", "ada")
            assert sorted(one["find"] for one in commands.sent) == [
                "agents",
                "groups",
                "memory_snapshots",
                "sessions",
                "users",
            ]
            commands.sent.clear()
            assert await service.get_memory_context("one", "ada") == first
            assert commands.sent == []
            assert await service.get_memory_context("one", "ada", force_refresh=True) == first
            assert "memory_snapshots" in [one["find"] for one in commands.sent]


async def test_a_cold_read_with_messages_asks_for_nothing_that_concerns_everybody(settings: Settings) -> None:
    commands = Commands()
    assert settings.mongodb.uri is not None
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        settings.mongodb.uri.get_secret_value(), event_listeners=[commands]
    )
    async with client:
        kit = Kit(mapped(settings), client)
        for name in ("one", "two"):
            await kit.session(name, ["ada"])
        await kit.put(ADA, blob="Prefers trains.")
        async with kit.service() as service:
            await service.ready()
            async with asyncio.timeout(60):
                while not service.memory.contexts.cache.hears:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await service.get_memory_context("other", "ada")
            commands.sent.clear()
            await service.get_memory_context("one", "ada")
            sent = sorted(one.get("find") or one["aggregate"] for one in commands.sent)
            own = ["agents", "groups", "memory_snapshots", "sessions", "users"]
            messages = ["messages", "messages", "sessions"]
            assert not Counter(sent) - Counter([*own, *messages])


async def test_a_chats_search_reads_nothing_that_its_warm_context_holds(settings: Settings) -> None:
    commands = Commands()
    assert settings.mongodb.uri is not None
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        settings.mongodb.uri.get_secret_value(), event_listeners=[commands]
    )
    async with client:
        kit = Kit(mapped(settings), client)
        await kit.database["agents"].insert_one({"_id": "a"})
        for name in ("one", "two"):
            await kit.session(name, ["ada"])
        await kit.put(ADA, blob="Prefers trains.")
        said = {"session_id": "two", "user_id": "ada", "role": "user", "content": "We adopted a greyhound."}
        await client[kit.settings.source_database]["messages"].insert_one(
            {**said, "created_at": datetime.now(UTC)}
        )
        async with kit.service() as service:
            await service.ready()
            asked = partial(service.explain_search, "A greyhound?", session="one", user="ada")
            whole = (await asked()).unformed
            await until(
                lambda: service.get_memory_context("one", "ada"),
                lambda context: "greyhound" in context and service.memory.contexts.cache.hears,
            )

            async def warm() -> str:
                commands.sent.clear()
                found = await asked(as_context=True)
                assert found.unformed == whole != ()
                return str([sent.get("find", sent.get("aggregate")) for sent in commands.sent])

            await until(warm, lambda read: read == "[]")


async def test_a_sessions_group_is_read_with_the_same_query_in_the_next_one_and_without_a_group_all_of_its_user(
    settings: Settings,
) -> None:
    commands = Commands()
    assert settings.mongodb.uri is not None
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        settings.mongodb.uri.get_secret_value(), event_listeners=[commands]
    )
    async with client, MemoryService("a", client=client, settings=mapped(settings)) as service:
        kit = Kit(mapped(settings), client)
        for name, group in (("one", "g"), ("two", "g"), ("three", "h"), ("four", None)):
            await kit.session(name, ["ada"], **({} if group is None else {"group_id": group}))
        for group in ("g", "h"):
            await kit.put(Scope.of_group("s.a", f"s.{group}"), blob=f"memory of {group}")
        seen: dict[str, tuple[str, int]] = {}
        for name in ("one", "two", "three", "four"):
            commands.sent.clear()
            context = await service.get_memory_context(name, "ada")
            seen[name] = context, sum(one.get("find") == "memory_snapshots" for one in commands.sent)
    assert [queries for _, queries in seen.values()] == [2, 1, 2, 2]
    for name, shown, hidden in (("one", "g", "h"), ("two", "g", "h"), ("three", "h", "g")):
        assert f"memory of {shown}" in seen[name][0]
        assert f"memory of {hidden}" not in seen[name][0]
    assert all(f"memory of {group}" in seen["four"][0] for group in ("g", "h"))


async def test_a_committed_change_of_any_scope_is_seen_by_a_warm_cache(kit: Kit) -> None:
    await kit.session("one", ["ada"], group_id="g")
    scopes = [AGENT, ADA, Scope.of_group("s.a", "s.g"), Scope.of_session("s.a", "s.one", ("s.ada",))]
    async with kit.service() as service:
        await service.ready()
        assert await service.get_memory_context("one", "ada") == ""
        for scope in scopes:
            await kit.put(scope, blob=f"new of {scope.kind}")
            text = f"new of {scope.kind}"
            await until(
                lambda: service.get_memory_context("one", "ada"),
                lambda context, text=text: text in context,
            )


async def test_a_session_that_begins_anew_is_seen_by_a_warm_cache(kit: Kit) -> None:
    await kit.session("one", ["ada"])
    await kit.put(Scope.of_session("s.a", "s.one", ("s.ada",)), blob="alone")
    async with kit.service() as service:
        await service.ready()
        assert "alone" in await service.get_memory_context("one", "ada")
        await kit.session("one", ["ada", "bob"])
        await until(lambda: service.get_memory_context("one", "ada"), lambda context: context == "")
        await kit.put(Scope.of_session("s.a", "s.one", ("s.ada", "s.bob"), 2), blob="together")
        await until(lambda: service.get_memory_context("one", "ada"), lambda context: "together" in context)
        await kit.session("one", ["ada"])
        back = await until(
            lambda: service.get_memory_context("one", "ada"), lambda context: "alone" in context
        )
        assert "together" not in back


async def test_who_joins_hides_the_users_memory_at_once_also_where_sessions_are_not_mapped(
    plain: Kit,
) -> None:
    await plain.put(ADA, blob="Prefers trains.")
    await plain.authors("one", "ada")
    async with plain.service() as service:
        await service.ready()
        assert "trains" in await service.get_memory_context("one", "ada")
        await plain.authors("one", "ada", "bob")
        await until(lambda: service.get_memory_context("one", "ada"), lambda context: context == "")


async def test_what_a_message_changes_in_a_sessions_state_leaves_the_cache_warm(plain: Kit) -> None:
    await plain.put(ADA, blob="Prefers trains.")
    await plain.authors("one", "ada")
    async with plain.service() as service:
        await service.ready()
        await service.get_memory_context("one", "ada")
        kept = service.memory.contexts.cache._kept  # pyright: ignore[reportPrivateUsage]
        (before,) = kept.values()
        await plain.authors("one", "ada")
        await plain.put(Scope.of_user("s.a", "s.other"), blob="x")
        await plain.put(ADA, blob="Prefers ships.")  # after it in the stream
        await until(lambda: service.get_memory_context("one", "ada"), lambda context: "ships" in context)
        assert before.view.shown[0].snapshot.revision == 1
        await plain.authors("one", "ada")
        await plain.authors("two", "bob")
        assert list(kept) != []


async def test_switches_and_opt_outs_hide_what_they_name_at_once(kit: Kit) -> None:
    await kit.session("one", ["ada"])
    await kit.put(AGENT, blob="agent's")
    await kit.put(ADA, blob="user's")
    await kit.put(Scope.of_session("s.a", "s.one", ("s.ada",)), blob="session's")

    def holds(*words: str) -> Callable[[str], bool]:
        return lambda context: [w for w in ("agent's", "user's", "session's") if w in context] == list(words)

    async with kit.service() as service:
        await service.ready()

        async def get() -> str:
            return await service.get_memory_context("one", "ada")

        assert holds("agent's", "user's", "session's")(await get())
        agents, users = kit.database["agents"], kit.database["users"]
        await agents.insert_one({"_id": "a", "user_memory_enabled": False})
        await until(get, holds("agent's", "session's"))
        await agents.update_one({"_id": "a"}, {"$set": {"user_memory_enabled": True}})
        await agents.update_one({"_id": "a"}, {"$set": {"agent_memory_enabled": False}})
        await until(get, holds("user's", "session's"))
        await agents.delete_one({"_id": "a"})
        await until(get, holds("agent's", "user's", "session's"))
        await users.insert_one({"_id": "ada", "memory": False})
        await until(get, holds("agent's", "session's"))
        await users.delete_one({"_id": "ada"})
        await kit.session("one", ["ada"], incognito=True)
        await until(get, holds("agent's"))


async def test_switches_are_read_where_the_settings_say_that_they_are(kit: Kit) -> None:
    settings = kit.settings.model_copy(
        update={
            "sessions": kit.settings.sessions.model_copy(
                update={"incognito": "flags.private", "memory": "flags.memory"}
            ),
            "users": kit.settings.users.model_copy(update={"memory": "remember"}),
        }
    )
    await kit.put(Scope.of_user("s.a", "s.ada"), blob="hers")
    async with kit.service(settings=settings) as service:

        async def get() -> str:
            return await service.get_memory_context("one", "ada")

        await service.ready()
        await kit.session("one", ["ada"], incognito=True)
        await until(get, lambda context: "hers" in context)
        for flags in ({"private": True}, {"memory": False}):
            await kit.session("one", ["ada"], flags=flags)
            await until(get, lambda context: context == "")
            await kit.session("one", ["ada"])
            await until(get, lambda context: "hers" in context)
        await kit.database["users"].insert_one({"_id": "ada", "remember": False})
        await until(get, lambda context: context == "")


async def test_shards_are_shown_while_their_stream_is_active(kit: Kit) -> None:
    stream = {"_id": "s.a/shard/billing", "agent_id": "s.a", "scope": "shard", "shard": "billing"}
    await kit.session("one", ["ada"])
    await kit.put(Scope.of_shard("s.a", "billing"), blob="Invoices in euros.")
    async with kit.service() as service:
        await service.ready()
        assert await service.get_memory_context("one", "ada") == ""
        await kit.database["memory_streams"].insert_one(stream)
        await until(lambda: service.get_memory_context("one", "ada"), lambda context: "euros" in context)
        await kit.database["memory_streams"].update_one({}, {"$set": {"active": False}})
        await until(lambda: service.get_memory_context("one", "ada"), lambda context: context == "")


async def test_nothing_is_kept_beyond_its_time_to_live(kit: Kit) -> None:
    time, elapsed = [datetime(2026, 3, 2, tzinfo=UTC)], [0.0]
    await kit.session("one", ["ada"])
    async with kit.service(clock=lambda: time[0]) as service:
        await service.ready()
        contexts = service.memory.contexts
        contexts.cache._elapsed = lambda: elapsed[0]  # pyright: ignore[reportPrivateUsage]
        await service.get_memory_context("one", "ada")
        contexts.changed = lambda changed: None  # nobody tells
        watching = contexts.watching
        assert watching is not None
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        contexts.cache.live = True
        await kit.put(ADA, blob="Prefers trains.")
        await service.get_memory_context("one", "ada")
        time[0] -= timedelta(days=1)  # the wall clock is set back meanwhile
        elapsed[0] += 300
        assert "trains" in await service.get_memory_context("one", "ada")


async def test_without_its_change_stream_every_read_asks_the_database(kit: Kit) -> None:
    await kit.session("one", ["ada"])
    async with kit.service() as service:
        await service.ready()
        await service.get_memory_context("one", "ada")
        service.memory.contexts.heard(False)
        for number in range(5):
            await kit.put(ADA, blob=f"version {number}")
            assert f"version {number}" in await service.get_memory_context("one", "ada")


async def test_a_killed_change_stream_comes_back_and_nothing_is_stale(kit: Kit) -> None:
    await kit.session("one", ["ada"])
    async with kit.service() as service:
        for number in range(3):
            await service.ready()
            await service.get_memory_context("one", "ada")
            await _kill_change_streams(kit)
            await kit.put(ADA, blob=f"version {number}")
            text = f"version {number}"
            await until(
                lambda: service.get_memory_context("one", "ada"), lambda context, text=text: text in context
            )


async def _kill_change_streams(kit: Kit) -> None:
    """As a server does that runs short: the cursors end."""
    name, killed = kit.settings.mongodb.database, 0
    pipeline = [{"$currentOp": {"idleCursors": True}}, {"$match": {"ns": {"$regex": f"^{name}\\."}}}]
    admin = kit.client.get_database("admin", read_concern=ReadConcern("local"))
    async for operation in await admin.aggregate(pipeline):
        cursor = operation.get("cursor", {}).get("cursorId")
        if cursor is not None:
            await kit.client[name].command({"killCursors": "$cmd.aggregate", "cursors": [cursor]})
            killed += 1
    assert killed >= 1


async def test_a_write_while_a_read_is_under_way_is_never_kept_over(kit: Kit) -> None:
    await kit.session("one", ["ada"])
    async with kit.service() as service:
        await service.ready()
        for number in range(40):
            reads = [asyncio.create_task(service.get_memory_context("one", "ada")) for _ in range(3)]
            await kit.put(ADA, blob=f"version {number};")
            await asyncio.gather(*reads)
            text = f"version {number};"
            await until(
                lambda: service.get_memory_context("one", "ada"), lambda context, text=text: text in context
            )


@pytest.mark.parametrize("session", ["five", 5, ObjectId(), uuid4()])
async def test_requests_reach_the_inbox_with_the_ids_as_they_are(plain: Kit, session: Any) -> None:
    async with plain.service() as service:
        ended = await service.on_session_end(session)
        formed = await service.maybe_form_memories(session)
        cold = await service.process_cold_session(session)
        now = await service.form_now(session)
    assert formed.formed is False
    options = plain.database.codec_options
    rows = await plain.database.get_collection("memory_inbox", options).find(sort=[("_id", 1)]).to_list()
    assert [f"o.{row['_id']}" for row in rows] == [ended, formed.request_id, cold, now]
    assert [row["session_id"] for row in rows] == [session] * 4
    InboxSessionEnded.model_validate(rows[0])
    assert [InboxFormNow.model_validate(row).if_due for row in rows[1:]] == [True, True, False]


@pytest.mark.parametrize(
    ("said", "minutes", "formed"),
    [("word " * 600, (1, 1, 1, 1), (False, True)), ("word", (30, 20, 12, 11), (False, True))],
)
async def test_asking_whether_a_window_is_due_counts_what_was_written_before(
    kit: Kit, said: str, minutes: Sequence[int], formed: tuple[bool, bool]
) -> None:
    """Also what no stage has read yet: by tokens, or as a session that has gone cold."""
    await kit.session("one", ["ada"])
    rows = [
        {"session_id": "one", "role": "user", "user_id": "ada", "content": said}
        | {"_id": f"m{number}", "created_at": datetime.now(UTC) - timedelta(minutes=ago)}
        for number, ago in enumerate(minutes)
    ]
    async with kit.service() as service:
        await kit.database["messages"].insert_many(rows[:3])
        few = await service.maybe_form_memories("one", "ada", "a")
        await kit.database["messages"].insert_one(rows[3])
        enough = await service.maybe_form_memories("one", user="ada")
        for stranger in ({"user": "bob"}, {"agent": "another"}):
            with pytest.raises(NotFound):
                await service.maybe_form_memories("one", **stranger)
    assert (few.formed, enough.formed) == formed
    assert await kit.database["memory_inbox"].count_documents({}) == 2


async def test_what_is_no_id_is_refused(plain: Kit) -> None:
    async with plain.service() as service:
        with pytest.raises(TypeError):
            await service.get_memory_context({"$ne": None}, "ada")
        with pytest.raises(TypeError):
            await service.on_session_end(True)


async def test_stats_and_status_count_each_visible_scope(kit: Kit) -> None:
    await kit.session("one", ["ada"])
    await kit.put(ADA, blob="one two three", blob_version=2, buffer=(reflection("r"),), active_facts=9)
    await kit.database["memory_reflections"].insert_many([{"scope_key": ADA.key} for _ in range(5)])
    async with kit.service() as service:
        stats = (await service.get_memory_stats("one", "ada"))["user"]
        status = (await service.get_consolidation_status(user="ada"))["user"]
    assert (stats.words, stats.blob_version, stats.reflections) == (3, 2, 5)
    assert (stats.buffered, stats.facts) == (1, 9)
    assert (status.buffered, status.threshold, status.due) == (1, 4, False)


async def test_the_service_opens_and_closes_a_client_of_its_own(settings: Settings) -> None:
    service = MemoryService(settings=settings)
    await service.ready()
    assert await service.get_memory_context("one", "ada") == ""
    await service.close()


async def test_the_applications_client_is_left_open(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        async with MemoryService(client=client, settings=settings) as service:
            await service.get_memory_context("one")
        await client.admin.command("ping")
