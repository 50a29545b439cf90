"""The commands on memory as a person and a program use them, and the synchronous service, on real data."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from eden_memory.api.sync import SyncMemory, SyncMemoryService
from eden_memory.cli.main import app
from eden_memory.errors import Conflict, EdenError, Invalid, NotAnId, NotFound
from eden_memory.settings import Settings
from tests.integration.context.harness import Kit, kit_for
from tests.integration.python.stored import ADA, AGENT, fact, fact_of, fill, inbox, marked, store
from tests.unit.replay.test_left_namespaces import namespace

pytestmark = pytest.mark.servers
EVIL = "\x1b[31mAda [bold]lives[/bold]\x07 in \x9b2J Turin\u202e :smile:"


def on_data(settings: Settings, work: Callable[[Kit], Any]) -> Any:
    """Do something with the namespace's data."""

    async def done() -> Any:
        async with kit_for(settings) as kit:
            return await work(kit)

    return asyncio.run(done())


@pytest.fixture
def filled(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    assert settings.mongodb.uri is not None
    environment = {
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "EDEN_KAFKA_BOOTSTRAP": str(settings.kafka.bootstrap),
        "EDEN_SESSIONS_COLLECTION": "sessions",
        "COLUMNS": "200",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    on_data(settings, _stored)
    return settings


async def _stored(kit: Kit) -> None:
    await fill(kit)
    await store(kit, [fact("evil", ADA, EVIL, 90)])


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def as_json(*arguments: str) -> Any:
    ended = run(*arguments, "--json")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.isascii()
    return json.loads(ended.stdout)


def test_tables_show_the_visible_and_nothing_that_a_terminal_obeys(filled: Settings) -> None:
    for command in ("facts", "reflections", "blobs", "stats"):
        ended = run(command, "--user", "ada", "--agent", "a")
        assert ended.exit_code == 0, ended.output
        assert not [one for one in ended.stdout if ord(one) < 32 and one != "\n"]
        assert marked(ADA) in ended.stdout or command == "stats"
        assert "mark-3-mark" not in ended.stdout
    shown = run("facts", "--user", "ada", "--agent", "a").stdout
    assert "[31mAda [bold]lives[/bold]" in shown
    assert ":smile:" in shown
    history = run("history", "evil", "--user", "ada", "--agent", "a").stdout
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown + history)
    assert "[bold]lives" in history


def test_facts_are_listed_with_since_when_they_hold(filled: Settings) -> None:
    async def of_history(kit: Kit) -> None:
        read_in = fact("read-in", ADA, "Ada has a boat.", 95)
        await store(kit, [read_in.model_copy(update={"valid_from": datetime(2019, 5, 7, 8, 9, tzinfo=UTC)})])

    on_data(filled, of_history)
    head, *rows = run("facts", "--user", "ada", "--agent", "a").stdout.splitlines()
    assert head.split() == ["scope", "fact", "since", "formed", "version", "id"]
    (row,) = [one for one in rows if "Ada has a boat." in one]
    assert "2019-05-07 08:09" in row


def test_programs_get_json_with_a_cursor_for_the_next_page(filled: Settings) -> None:
    first = as_json("facts", "--user", "ada", "--agent", "a", "--limit", "1")
    assert [one["fact_id"] for one in first["items"]] == ["evil"]
    assert first["items"][0]["content"] == EVIL
    second = as_json("facts", "--user", "ada", "--agent", "a", "--limit", "1", "--cursor", first["cursor"])
    assert [one["fact_id"] for one in second["items"]] == [fact_of(ADA)]
    assert as_json("reflections", "--session", "one", "--user", "ada", "--scope", "session")["items"]
    assert as_json("blobs", "--user", "ada", "--agent", "a", "--scope", "user")[0]["words"] == 2
    assert as_json("history", fact_of(AGENT), "--agent", "a")["versions"][0]["cost_usd"] == "0.001"
    assert as_json("stats", "--user", "ada", "--agent", "a")["user"]["facts"] == 1
    status = as_json("status", "--user", "ada", "--agent", "a")
    assert status["consolidation"]["user"]["threshold"] == 4
    assert {one["name"] for one in status["servers"]} == {"MongoDB", "Kafka"}
    assert "blob" in as_json("context", "one")["context"]


def test_what_is_asked_stands_in_the_inbox(filled: Settings) -> None:
    added = as_json("add", "Ada keeps bees.", "And hens.", "--user", "ada", "--agent", "a")
    assert len(added["request_ids"]) == 2
    given = CliRunner().invoke(
        app, ["add", "-", "--session", "one", "--user", "ada"], input="Out of a file.\n"
    )
    assert given.exit_code == 0, given.output
    assert run("edit", "evil", "Ada lives in Turin.", "--user", "ada", "--agent", "a").exit_code == 0
    assert run("retire", fact_of(AGENT), "--agent", "a", "--reason", "old").exit_code == 0
    assert run("forget", "fact", "evil", "--yes").exit_code == 0
    rows = on_data(filled, inbox)
    assert [row["kind"] for row in rows] == [
        *("added_text", "added_text", "form_now", "added_text"),
        *("fact_command", "fact_command", "forget"),
    ]
    assert rows[3]["text"] == "Out of a file."
    assert run("add", "Of a session of its own.", "--session", "c1", "--user", "ada").exit_code == 0
    for command in ("form", "end"):
        ended = run("session", command, "c1")
        assert ended.exit_code == 0, ended.exception
        assert ("no message of the session waits" in ended.output) == (command == "form")
    assert [row["session_id"] for row in on_data(filled, inbox)[-2:]] == ["c1", "c1"]
    assert "names the session 'c2'" in str(run("session", "form", "c2").exception)
    assert rows[0]["asked_by"] == "eden"


def test_corrections_stand_in_the_inbox_and_history_shows_all_kinds(filled: Settings) -> None:
    mine, who = "r-2", ("--user", "ada", "--agent", "a")
    for arguments in (
        ("edit", mine, "Ada wants tables.", "--version", "1"),
        ("private", mine),
        ("retire", mine, "--reason", "old"),
        ("edit", ADA.key, "Ada likes boats.", "--version", "2"),
        ("pin", ADA.key, "Never call before nine."),
        ("add", "Ada's boat is called Tern.", "--verbatim"),
        ("add", "Wants maps.", "--verbatim", "--kind", "reflection"),
    ):
        ended = run(*arguments, *who)
        assert ended.exit_code == 0, (arguments, ended.exception)
    rows = on_data(filled, inbox)
    assert [row["action"] for row in rows] == [
        *(
            "edit_reflection",
            "edit_reflection",
            "retire_reflection",
            "edit_blob",
            "pin",
            "add",
            "add_reflection",
        ),
    ]
    assert (rows[1]["private"], rows[3]["text"]) == (True, "Ada likes boats.")
    for arguments, error in (
        (("unpin", ADA.key, "Nobody pinned this."), Conflict),
        (("edit", ADA.key, "x"), EdenError),
        (("edit", mine, " "), EdenError),
        (("pin", "user:s.a:s.bob", "x"), NotFound),
    ):
        assert isinstance(run(*arguments, *who).exception, error), arguments
    assert f"reflects {marked(ADA)}" in run("history", mine, *who).stdout
    assert f"blob {marked(ADA)}" in run("history", ADA.key, *who).stdout
    assert as_json("history", ADA.key, *who)["version"] == 2
    assert f"scope: {ADA.key}" in run("blobs", *who).stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("history", "f-3", "--user", "ada", "--agent", "a"), NotFound),
        (("history", "nothing", "--user", "ada", "--agent", "a"), NotFound),
        (("edit", "f-2", "x", "--user", "ada", "--agent", "a", "--version", "9"), Conflict),
        (("facts", "--user", "ada", "--cursor", "x"), EdenError),
        (("facts", "--user", "o.nonsense"), EdenError),
        (("stats", "--user", "5"), EdenError),
        (("forget", "fact", "f-99", "--yes"), NotFound),
        (("forget", "fact", "f-99"), NotFound),  # before it asks whether to
        (("forget", "fact", "f-2"), Invalid),  # nobody can answer
        (("forget", "reflection", "f-2", "--yes"), NotFound),
        (("forget", "blob", f"{ADA.key}@3", "--yes"), NotFound),
        (("forget", "user", str(2**64), "--yes"), EdenError),
        (("forget", "user", "", "--yes"), NotAnId),
        (("forget", "session", f"i.{2**64}", "--yes"), EdenError),
    ],
)
def test_what_cannot_be_done_is_said(
    filled: Settings, arguments: tuple[str, ...], error: type[Exception]
) -> None:
    assert isinstance(run(*arguments).exception, error)


@pytest.mark.parametrize("at", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"])
def test_a_time_that_utc_does_not_have_is_no_time(filled: Settings, at: str) -> None:
    ended = run("facts", "--user", "ada", "--agent", "a", "--since", at)
    assert ended.exit_code == 2
    assert "is not a time" in ended.output


def test_a_users_fact_is_asked_for_with_its_user(filled: Settings) -> None:
    refused = run("history", "evil", "--agent", "a").exception
    assert isinstance(refused, NotFound)
    assert "--user ID" in refused.hint


def test_of_people_whose_ids_read_the_same_none_is_taken_for_another(filled: Settings) -> None:
    async def written(kit: Kit) -> None:
        await kit.database["messages"].insert_many([{"user_id": 5}, {"user_id": "5"}, {"user_id": "6"}])

    on_data(filled, written)
    refused = run("forget", "user", "5", "--yes").exception
    assert isinstance(refused, EdenError)
    assert refused.hint == "Say which is meant: s.5 or i.5."
    assert run("forget", "user", "i.5", "--yes").exit_code == 0
    assert run("forget", "user", "6", "--yes").exit_code == 0
    assert [row["target"] for row in on_data(filled, inbox)] == [5, "6"]


def test_forgetting_names_memory_that_nobody_keeps_true(filled: Settings) -> None:
    async def begun(kit: Kit) -> None:
        row = namespace("trial", "filling").stored()
        await kit.database["memory_namespaces"].insert_one(row)

    on_data(filled, begun)
    said = run("forget", "user", "s.nobody", "--yes").output
    assert "trial keeps what it holds of it until it goes on" in said
    assert "eden namespace drop trial" in said


def test_a_search_tells_its_stages_when_asked_to(filled: Settings) -> None:
    pytest.importorskip("onnxruntime")
    plain = run("search", "nothing like it at all", "--user", "nobody", "--agent", "nobody")
    assert (plain.exit_code, plain.stdout) == (0, "")
    assert plain.stderr.startswith("nothing was found\nthere is no agent s.nobody\n")
    of_nobody = run("search", "nothing like it at all", "--agent", "nobody")
    assert "use --user ID" in of_nobody.stderr
    assert as_json("search", "x", "--user", "nobody", "--agent", "nobody")["facts"] == []
    report = as_json("search", "mark", "--user", "ada", "--agent", "a", "--type", "text", "--debug")
    assert set(report) >= {"facts", "stages", "warnings", "milliseconds"}
    of_agent = as_json(
        "search", "mark", "--user", "ada", "--agent", "a", "--type", "text", "--scope", "agent"
    )
    assert {fact["scope"]["kind"] for fact in report["facts"]} > {"agent"}
    assert {fact["scope"]["kind"] for fact in of_agent["facts"]} == {"agent"}


def test_the_synchronous_service_gives_what_the_async_one_gives(filled: Settings) -> None:
    with SyncMemory(Settings()) as memory:
        service = memory.agent("a")
        service.ready()
        found: list[Any] = []

        def read(user: str) -> None:
            found.append((user, service.list_facts(user=user).items, service.get_memory_context("one", user)))

        threads = [Thread(target=read, args=(user,)) for user in ("ada", "bob") * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        for user, facts, context in found:
            assert ("evil" in {one.fact_id for one in facts}) == (user == "ada")
            assert (marked(ADA) in context) == (user == "ada")
        with pytest.raises(NotFound):
            service.history(fact_of(ADA), user="bob")
        assert service.add("Ada keeps bees.", user="ada").session.startswith("s.eden")
        changes = service.changes(user="ada", after="e30")
        assert {next(changes).scope.kind for _ in range(2)} == {"agent", "user"}
        changes.close()
        assert {name for name, _ in memory.export_items("ada")} >= {"facts", "inbox"}
    with pytest.raises(EdenError, match="closed"):
        service.list_facts()


async def test_the_synchronous_service_refuses_in_a_running_loop(settings: Settings) -> None:
    service = SyncMemoryService("a", settings=settings)
    with pytest.raises(EdenError, match="running event loop"):
        service.list_facts()
    await asyncio.to_thread(service.close)
