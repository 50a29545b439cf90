"""`eden import`, from the command to search and context: taken once, traced, rebuilt, forgotten, and not again."""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId

from eden_memory.cli.import_command import STOPPED
from eden_memory.files import importing
from eden_memory.files.chat_items import claude
from eden_memory.files.earlier_import import EarlierImport
from eden_memory.files.earlier_v2 import v2, v2_accesses
from eden_memory.files.exporting import ScopeClaims
from eden_memory.files.import_items import ImportedAs, ImportMapping, ImportReport, Request
from eden_memory.files.import_store import MongoImports
from eden_memory.files.importing import ForeignImport
from eden_memory.mongo.ids import encode_id
from eden_memory.replay.installation import Installation
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.awaiting import gives
from tests.integration.system.commands import eden, start
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, stages, system, until
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
MINE = ("--agent", AGENT)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
WRITTEN = (
    "memory.candidates",
    "memory.facts",
    "memory.commands",
    "memory.reflections",
    "memory.consolidations",
)
SECRET = "rosebud"
"""In an item that cannot be read."""


async def imported(running: System, *arguments: str | Path) -> dict[str, Any]:
    """Import without a question; the report."""
    said = await eden(running.settings, "import", *map(str, arguments), "--yes", "--json")
    return json.loads(said[said.index("\n{\n") if not said.startswith("{") else 0 :])


async def written(running: System) -> dict[str, int]:
    """How many records each topic of memory holds, and how many requests were ever decided."""
    counts = {topic: len(await running.records(topic)) for topic in WRITTEN}
    return {**counts, "inbox": await running.source["memory_inbox"].count_documents({})}


async def settled(running: System) -> dict[str, int]:
    """As `written`, once the tailer has erased all requests that it carried."""
    inbox = running.source["memory_inbox"]
    await until(lambda: gives(inbox.count_documents({}), 0), "the inbox is empty")
    return await written(running)


def lines(file: Path, *rows: Any) -> Path:
    file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return file


async def test_mem0s_memories_are_found_rebuilt_traced_and_forgotten(shared: System, tmp_path: Path) -> None:
    row = {"user_id": "alice", "created_at": "2025-03-01T10:00:00Z"}
    file = lines(
        tmp_path / "mem0.jsonl",
        {"id": "1", "memory": "Ida's boat is called Tern.", **row},
        {"id": "2", "memory": "Ida lives in Oslo.", **row, "updated_at": "2025-04-01T10:00:00Z"},
        f'{{"memory": "{SECRET}',
        {"id": "4", "memory": SECRET, "run_id": "run"},
        {"id": "5", "memory": "Ida's boat is called  Tern!", **row},
        {"id": "6", "memory": "We ship on Fridays.", "agent_id": "theirs"},
    )
    options = (*MINE, "--map-user", "alice=ida", "--map-agent", f"theirs={AGENT}")
    before = await written(shared)
    said = await eden(shared.settings, "import", "mem0", str(file), *options, "--dry-run")
    assert await written(shared) == before
    assert "4 facts" in said
    assert ("line 3" in said, "line 4" in said, SECRET in said) == (True, True, False)

    report = await imported(shared, "mem0", file, *options)
    assert (report["taken"], report["known"]) == ({"fact": 4}, 0)
    assert {tuple(group["places"]) for group in report["skipped"].values()} == {("line 3",), ("line 4",)}
    session = await shared.session("ida")
    await shared.shows(session, "ida", "We ship on Fridays.")
    assert await shared.facts("ida") == ["Ida lives in Oslo.", "Ida's boat is called Tern."]
    (found,) = await shared.service.search_facts("What is Ida's boat called?", user="ida", top_k=1)
    assert found.content == "Ida's boat is called Tern."
    stored: dict[str, Any] = await shared.memory("facts").find_one({"content": "Ida lives in Oslo."}) or {}
    assert stored["valid_from"].replace(tzinfo=UTC) == datetime(2025, 4, 1, 10, tzinfo=UTC)
    assert (stored["command"]["by"], stored["embedding"] is not None) == ("import", True)
    assert await shared.memory("answers").count_documents({"prompt": {"$ne": None}}) == 0, (
        "no model was asked"
    )
    history = await eden(shared.settings, "history", stored["_id"], "--user", "ida", *MINE)
    assert "eden import" in history
    traced = await eden(shared.settings, "trace", stored["_id"], "--user", "ida", *MINE)
    assert ("command add by import" in traced, "import:mem0:2" in traced) == (True, True), traced

    after = await written(shared)
    again = await imported(shared, "mem0", file, *options)
    assert (again["taken"], again["known"]) == ({}, 4)
    assert await written(shared) == after
    await eden(shared.settings, "rebuild", "imported", "--verify")  # exit code 1 if anything differs

    await shared.forget("user", "ida")
    await until(lambda: gives(shared.facts("ida"), []), "forgotten")
    lines(
        file,
        {"id": "1", "memory": "Ida's boat is called Tern.", **row},
        {"id": "7", "memory": "Ida skis.", **row},
    )
    third = await imported(shared, "mem0", file, *options)
    assert (third["taken"], third["known"]) == ({}, 1)
    assert [group["places"] for group in third["skipped"].values()] == [["line 2"]]
    await asyncio.sleep(1.0)  # what is forgotten up to a time is forgotten up to the end of its second
    newer = {
        "id": "8",
        "memory": "Ida is back.",
        "user_id": "alice",
        "created_at": datetime.now(UTC).isoformat(),
    }
    assert (await imported(shared, "mem0", lines(file, newer), *options))["taken"] == {"fact": 1}
    assert await shared.facts("ida") == ["Ida is back."]


async def test_a_model_decides_only_if_it_is_asked_to(settings: Settings, tmp_path: Path) -> None:
    async with serving(obey) as models, system(fast(settings, models), models) as running:
        file = lines(tmp_path / "a.jsonl", {"memory": "Uwe drives same-car Fiat.", "user_id": "uwe"})
        await imported(running, "mem0", file, *MINE)
        lines(file, {"memory": "Uwe drives same-car Volvo instead.", "user_id": "uwe"})
        await until(lambda: gives(running.facts("uwe"), ["Uwe drives same-car Fiat."]), "the first")
        await imported(running, "mem0", file, *MINE, "--decide")
        await until(lambda: gives(running.facts("uwe"), ["Uwe drives same-car Volvo instead."]), "the second")
        assert models.tally.calls["decisions"] == 1


def v1_memories(agent: Any, user: Any, session: Any) -> dict[str, list[dict[str, Any]]]:
    """The previous system's documents: one user, an active shard and one that is not."""
    at, ids = datetime(2025, 5, 1, 12, tzinfo=UTC), [ObjectId() for _ in range(7)]
    types = ("directive", "directive", "fact", "suggestion", "episode", "fact", "suggestion")
    texts = ("Wants brief answers.", "Already in the text.", "The fair is in May.", "Plan an evening event.")
    texts = (*texts, "Talked about the fair.", "Nobody names this.", "In the shard's text already.")
    rows: list[dict[str, Any]] = [
        {
            "_id": identity,
            "agent_id": agent,
            "source_session_id": session,
            "memory_type": kind,
            "content": text,
            "related_users": [user],
            "source_message_ids": [],
            "createdAt": at,
        }
        for identity, kind, text in zip(ids, types, texts, strict=True)
    ]
    rows.append({**rows[0], "_id": ObjectId(), "content": 7, "related_users": []})
    shard = {"agent_id": agent, "shard_name": "fair 2025", "extraction_prompt": "What concerns the fair."}
    shard |= {"max_facts_per_shard": 3}
    text = {"content": "The fair needs helpers.", "last_updated_at": at}
    return {
        "memory_sessions": rows,
        "memory_user": [
            {
                "agent_id": agent,
                "user_id": user,
                "content": f"Mia runs a bakery.{' It is large.' * 130}",
                "unabsorbed_memory_ids": [ids[0], rows[-1]["_id"]],
            }
        ],
        "memory_agent": [
            {**shard, **text, "is_active": True, "facts": [ids[2]], "unabsorbed_memory_ids": [ids[3]]},
            {**shard, **text, "shard_name": "old", "is_active": False, "facts": [ids[5]]},
        ],
    }


@asynccontextmanager
async def earlier(shared: System, documents: dict[str, list[dict[str, Any]]]) -> AsyncGenerator[str]:
    """A database of an earlier system; its address. Nothing in it is changed."""
    old = shared.database.client[f"{shared.database.name}_{ObjectId()}"]
    for name, rows in documents.items():
        await old[name].insert_many(rows)
    before = {name: await old[name].find().to_list() for name in documents}
    assert shared.settings.mongodb.uri is not None
    address = f"{shared.settings.mongodb.uri.get_secret_value().rstrip('/')}"
    yield address.replace("/?", f"/{old.name}?") if "/?" in address else f"{address}/{old.name}"
    assert {name: await old[name].find().to_list() for name in documents} == before, "only read"
    await shared.database.client.drop_database(old.name)


async def test_the_previous_systems_memory_keeps_its_shape(shared: System, tmp_path: Path) -> None:
    agent, user = ObjectId(), ObjectId()
    session = await shared.session("mia")
    documents = v1_memories(agent, user, session)
    file = tmp_path / "mapping.json"
    file.write_text(json.dumps({"agents": {str(agent): AGENT}, "users": {str(user): "mia"}}))
    async with earlier(shared, documents) as place:
        report = await imported(shared, "v1", place, "--mapping", file)
        assert report["taken"] == {"blob": 2, "reflection": 5, "shard": 1, "fact": 1}
        reasons = {reason: group["count"] for reason, group in report["skipped"].items()}
        assert reasons == {
            "it has no text": 1,
            "the shard is not active": 1,
            "no active shard names it": 1,
        }
        assert any("sharing=team" in note for note in report["notes"])

        context = await shared.shows(
            session,
            "mia",
            "Mia runs a bakery.",
            "Wants brief answers.",
            "Talked about the fair.",
            '<MemoryShard name="fair 2025">',
            "The fair needs helpers.",
            "Plan an evening event.",
        )
        assert context.count("It is large.") == 130, "a text beyond the limit is kept whole"
        assert not any(text in context for text in ("Already", "already", "Nobody names this."))
        absorbed = await shared.memory("reflections").find({"absorbed_into": 1}, {"content": 1}).to_list()
        texts = {row["content"] for row in absorbed}
        assert {"Already in the text.", "In the shard's text already."} <= texts
        await until(
            lambda: shared.contents("facts", content="The fair is in May.", scope="agent", active=True),
            "the shard's fact is a fact of the agent",
        )
        stream: dict[str, Any] = await shared.memory("streams").find_one({"shard": "fair 2025"}) or {}
        assert stream["extraction_guidance"] == "What concerns the fair."
        assert (stream["sharing"], stream["fifo_limit"]) == ("team", 3)
        of_user: dict[str, Any] = await shared.memory("streams").find_one({"scope": "user"}) or {}
        assert of_user["word_limit"] == 394
        await shared.memory("streams").delete_one({"_id": of_user["_id"]})
        rows = await shared.memory("reflections").find({"content": "Wants brief answers."}).to_list()
        assert [row["origin"] for row in rows] == ["imported"]
        before = await settled(shared)
        again = await imported(shared, "v1", place, "--mapping", file)
        assert (again["taken"], again["known"]) == ({}, 9)
        assert await written(shared) == before
        await eden(shared.settings, "rebuild", "from-v1", "--verify")


def v2_memories(agent: Any, user: Any, session: Any) -> dict[str, list[dict[str, Any]]]:
    """The second system's documents: one user, the agent, a session; in each collection one that cannot be read."""
    at, later = datetime(2026, 2, 1, 12, tzinfo=UTC), datetime(2026, 2, 3, 12, tzinfo=UTC)
    said = {"agent_id": agent, "session_id": session, "source_message_ids": [ObjectId()], "formed_at": at}
    of_user, of_session = {"scope": "user", "user_id": user}, {"scope": "session", "user_id": None}
    vector = {"embedding": [0.1, 0.2] * 192, "embedding_model": "of-the-earlier-system"}
    lyon = {"content": "Nora lives in Lyon.", "version": 3, "previous_content": "Nora lives in Metz."}
    found = {"access_count": 5, "last_accessed_at": later, "updated_at": later}
    return {
        "memory2_facts": [
            {"_id": ObjectId(), **said, **of_user, **vector, **lyon, **found},
            {"_id": ObjectId(), **said, **vector, "scope": "agent", "content": "The gate opens at seven."},
            {"_id": ObjectId(), **said, **of_user, "content": "Nora has no vector.", "embedding": []},
            {"_id": ObjectId(), **said, **vector, **of_user, "content": None},
            {"_id": "odd", "scope": {"$gt": ""}, "agent_id": {}, "embedding": "?", "content": SECRET},
        ],
        "memory2_reflections": [
            {"_id": ObjectId(), **said, **of_user, "content": "Nora likes maps.", "absorbed": False},
            {"_id": ObjectId(), **said, **of_user, "content": "Nora wants lists.", "absorbed": True},
            {"_id": ObjectId(), **said, **of_session, "content": "Nora plans a walk.", "absorbed": False},
            {"_id": ObjectId(), **said, "scope": "agent", "content": "Gone with its text.", "absorbed": True},
            {"_id": ObjectId(), **said, "scope": "user", "content": "Of nobody."},
        ],
        "memory2_consolidated": [
            {
                **said,
                **of_user,
                "session_id": None,
                "consolidated_content": f"Nora answers in lists.{' She walks.' * 300}",
                "version": 4,
                "last_consolidated_at": later,
            },
            {**said, "scope": "user", "consolidated_content": "Of nobody."},
            {**said, "scope": "agent", "consolidated_content": "Too old.", "version": 0},
        ],
    }


async def test_the_second_systems_memory_keeps_vectors_versions_and_what_was_absorbed(
    shared: System, tmp_path: Path
) -> None:
    agent, user = ObjectId(), ObjectId()
    session = await shared.session("nora")
    documents = v2_memories(agent, user, session)
    options = ("--map-agent", f"{agent}={AGENT}", "--map-user", f"{user}=nora")
    async with earlier(shared, documents) as place:
        dry = await eden(shared.settings, "import", "eden-v2", place, *options, "--dry-run")
        assert ("3 facts" in dry, "3 reflections" in dry, "1 blob" in dry, SECRET in dry) == (
            True,
            True,
            True,
            False,
        )
        report = await imported(shared, "eden-v2", place, *options)
        assert report["taken"] == {"reflection": 3, "blob": 1, "fact": 3}
        assert sum(group["count"] for group in report["skipped"].values()) == 6
        context = await shared.shows(
            session, "nora", "Nora answers in lists.", "Nora likes maps.", "Nora plans a walk."
        )
        assert (context.count("She walks."), "Nora wants lists." in context) == (300, False)
        wanted = ["Nora has no vector.", "Nora lives in Lyon."]
        await until(lambda: gives(shared.facts("nora"), wanted), "the facts")
        lives: dict[str, Any] = await shared.memory("facts").find_one({"content": wanted[1]}) or {}
        assert (lives["version"], lives["embedding_model"]) == (3, "of-the-earlier-system")
        assert lives["valid_from"].replace(tzinfo=UTC) == datetime(2026, 2, 3, 12, tzinfo=UTC)
        assert lives["message_ids"] == [encode_id(documents["memory2_facts"][0]["source_message_ids"][0])]
        assert "Nora lives in Metz." in await eden(
            shared.settings, "history", lives["_id"], "--user", "nora", *MINE
        )
        access: dict[str, Any] = await shared.memory("access").find_one({"_id": lives["_id"]}) or {}
        assert access["access_count"] == 5
        asked = await shared.memory("answers").find({"prompt": {"$ne": None}}).to_list()
        assert asked == [], "no model was asked"
        assert (await shared.snapshot(Scope.of_user(encode_id(AGENT), encode_id("nora")).key))[
            "blob_version"
        ] == 4
        await shared.memory("streams").delete_one({"scope": "user"})
        before = await settled(shared)
        again = await imported(shared, "eden-v2", place, *options)
        assert (again["taken"], await written(shared)) == ({}, before)
        await eden(shared.settings, "rebuild", "from-v2", "--verify")
        await shared.forget("session", session)
        await until(lambda: gives(shared.facts("nora"), []), "forgotten with its session")


async def test_an_import_of_an_earlier_system_is_finished_as_it_began(
    shared: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, user = ObjectId(), ObjectId()
    session = await shared.session("olga")
    options = ("--map-agent", f"{agent}={AGENT}", "--map-user", f"{user}=olga")
    documents = v2_memories(agent, user, session)
    documents = {name: [{**row, "_id": ObjectId()} for row in rows[:2]] for name, rows in documents.items()}
    async with earlier(shared, documents) as place:
        at = Installation(shared.settings, shared.database)
        to = ImportedAs(
            "eden-v2", ImportMapping({str(agent): encode_id(AGENT)}, {str(user): encode_id("olga")}), "t", NOW
        )
        to = replace(to, now=datetime.now(UTC))

        async def killed(work: ScopeClaims, number: int) -> None:
            raise ConnectionError

        with monkeypatch.context() as patched, EarlierImport(at, v2, place, to, v2_accesses) as work:
            patched.setattr(ScopeClaims, "note_published", killed)
            survey = await work.survey(lambda done, whole: None)
            with pytest.raises(ConnectionError):
                await work.run(0, lambda done, whole: None)
        assert survey.taken == {"fact": 2, "reflection": 2, "blob": 1}
        name = shared.database.client.get_database(place.partition("?")[0].rpartition("/")[2])
        row = await name["memory2_reflections"].find_one_and_update(
            {"absorbed": False}, {"$set": {"content": "Changed meanwhile."}}
        )
        assert row is not None
        report = await imported(shared, "eden-v2", place, *options)
        assert report["unfinished"] is True
        assert not list((shared.settings.local.folder / "imports").iterdir())
        await shared.shows(session, "olga", "Nora likes maps.", "Nora answers in lists.")
        again = await imported(shared, "eden-v2", place, *options)
        assert again["taken"] == {}, "its scopes hold memory, and know the reflection that changed"
        await name["memory2_reflections"].update_one(
            {"_id": row["_id"]}, {"$set": {"content": row["content"]}}
        )
        await shared.memory("streams").delete_one({"scope": "user"})


async def test_a_database_with_collections_of_our_names_is_refused(shared: System) -> None:
    async with earlier(shared, v1_memories(ObjectId(), ObjectId(), "s")) as place:
        name = place.partition("?")[0].rpartition("/")[2]
        there = shared.settings.mongodb.model_copy(update={"database": name})
        for command in (("setup",), ("import", "v1", place, "--dry-run")):
            with pytest.raises(AssertionError, match=r"(?s)memory_sessions.*EDEN_MONGODB_PREFIX"):
                await eden(shared.settings.model_copy(update={"mongodb": there}), *command)


async def test_a_consolidated_text_is_never_replaced(shared: System, tmp_path: Path) -> None:
    scope = Scope.of_user(encode_id(AGENT), encode_id("rosa"))
    await eden(shared.settings, "pin", scope.key, "Never call Rosa.", "--user", "rosa", *MINE)
    await until(lambda: gives(blob(shared, scope), 1), "the blob that was here before")
    note = tmp_path / "summary.md"
    note.write_text("---\nid: one\nrole: summary\nconversation_id: rosa\n---\nRosa sings.\n")
    report = await imported(shared, "markdown", tmp_path, *MINE)
    assert (report["taken"], [group["places"] for group in report["skipped"].values()]) == (
        {},
        [["summary.md"]],
    )
    note.write_text(f"---\nid: one\nrole: summary\nconversation_id: rolf\n---\n{'word ' * 400}\n")
    report = await imported(shared, "markdown", tmp_path, *MINE)
    assert "400 words" in next(iter(report["skipped"]))
    note.write_text("---\nid: one\nrole: summary\nconversation_id: rolf\n---\nRolf sings.\n")
    assert (await imported(shared, "markdown", tmp_path, *MINE))["taken"] == {"blob": 1}
    await shared.shows(await shared.session("rolf"), "rolf", "Rolf sings.")


async def blob(running: System, scope: Scope) -> int:
    return (await running.snapshot(scope.key)).get("blob_version", 0)


async def test_exported_conversations_are_formed_once(settings: Settings, tmp_path: Path) -> None:
    def said(*texts: str) -> list[dict[str, Any]]:
        return [
            {"uuid": f"m{n}", "sender": "human", "text": text, "created_at": f"2025-02-01T10:0{n}:00Z"}
            for n, text in enumerate(texts)
        ]

    file = tmp_path / "conversations.json"
    talks = [
        {"uuid": "a", "chat_messages": said("fact user: Kim lives in Lyon.", "note user: Kim wants maps.")},
        {"uuid": "b", "chat_messages": said("fact user: Kim has a dog.")},
    ]
    file.write_text(json.dumps(talks))
    async with serving(obey) as models, system(fast(settings, models), models) as running:
        options = ("claude", file, *MINE, "--user", "kim")
        said_of_cost = await eden(running.settings, "import", *map(str, options), "--dry-run")
        assert "2 conversations are formed in about 2 windows" in said_of_cost
        assert (await imported(running, *options))["taken"] == {"message": 3}
        await until(lambda: gives(running.facts("kim"), ["Kim has a dog.", "Kim lives in Lyon."]), "formed")
        session = await running.session("kim")
        await running.shows(session, "kim", "Kim wants maps.")
        fact: dict[str, Any] = await running.memory("facts").find_one({"content": "Kim has a dog."}) or {}
        assert fact["valid_from"].replace(tzinfo=UTC) == datetime(2025, 2, 1, 10, tzinfo=UTC)
        calls = dict(models.tally.calls)
        again = await imported(running, *options)
        assert (again["taken"], again["known"]) == ({}, 3)
        talks[1]["chat_messages"] = said("fact user: Kim has a dog.", "fact user: Kim has a cat.")
        file.write_text(json.dumps(talks))
        assert (await imported(running, *options))["taken"] == {"message": 1}
        await until(
            lambda: gives(running.facts("kim"), ["Kim has a cat.", "Kim has a dog.", "Kim lives in Lyon."]),
            "more",
        )
        assert models.tally.calls["facts"] == calls["facts"] + 1

        await running.forget("user", "kim")
        await until(lambda: gives(running.facts("kim"), []), "forgotten")
        third = await imported(running, *options)
        assert third["taken"] == {}


async def test_a_conversation_is_formed_though_the_import_ended_before_it_requested_that(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, to = tmp_path / "conversations.json", ImportedAs("claude", ImportMapping(user="s.kim"), "test", NOW)
    texts = ("fact user: Kim lives in Lyon.", "fact user: Kim has a dog.", "fact user: Kim has a cat.")
    said = [{"uuid": f"m{n}", "sender": "human", "text": text} for n, text in enumerate(texts)]
    file.write_text(json.dumps([{"uuid": "a", "chat_messages": said}]))
    write, written = MongoImports.write, list[int]()

    async def ends_at_the_second(store: MongoImports, requests: Sequence[Request]) -> None:
        written.append(len(requests))
        if len(written) == 2:
            raise ConnectionError
        await write(store, requests)

    monkeypatch.setattr(
        importing, "PART", 30
    )  # three requests a write: the second begins with the one to form
    monkeypatch.setattr(MongoImports, "write", ends_at_the_second)
    async with serving(obey) as models, system(fast(settings, models), models, run=False) as running:
        at = Installation(running.settings, running.database)

        async def run() -> ImportReport:
            return await ForeignImport(at, claude, str(file), to).run(3, lambda done, whole: None)

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(run(), 60)
        assert (await run()).known == 3
        assert written == [3, 1, 1]
        async with stages(running.settings):
            wanted = ["Kim has a cat.", "Kim has a dog.", "Kim lives in Lyon."]
            await until(lambda: gives(running.contents("facts"), wanted), "formed")


@pytest.mark.slow
async def test_an_import_that_is_killed_again_and_again_takes_each_item_once(
    settings: Settings, tmp_path: Path
) -> None:
    number, users = 1_500, 30
    rows = [
        {"id": f"m{n}", "memory": f"Number {n} is {n * n}.", "user_id": f"u{n % users}"}
        for n in range(number)
    ]
    file = lines(tmp_path / "many.jsonl", *rows)
    async with serving(obey) as models, system(fast(settings, models), models) as running:
        command = ("import", "mem0", str(file), *MINE, "--yes")
        for number_taken in (1, 300, 900):
            process = await start(running.settings, tmp_path / "log", *command)
            await until(partial(at_least, running, number_taken), f"{number_taken} facts")
            process.send_signal(signal.SIGINT if number_taken == 1 else signal.SIGKILL)
            assert await process.wait() in (STOPPED, -signal.SIGKILL, 0)
        report = await imported(running, "mem0", file, *MINE)
        assert report["taken"].get("fact", 0) + report["known"] == number
        await until(lambda: at_least(running, number), "all facts")
        facts = await running.memory("facts").find({}, {"content": 1, "version": 1}).to_list()
        assert (len(facts), {fact["version"] for fact in facts}) == (number, {1})
        assert len({fact["content"] for fact in facts}) == number
        assert await running.dead() == []


async def at_least(running: System, number: int) -> bool:
    return await running.memory("facts").count_documents({}) >= number
