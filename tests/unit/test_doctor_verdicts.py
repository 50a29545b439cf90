"""What the doctor says of answers that servers give."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from confluent_kafka.admin import AclOperation  # pyright: ignore[reportPrivateImportUsage]

import eden_memory
from eden_memory.doctor import kafka_checks, mongodb_checks
from eden_memory.doctor import mongodb_checks as source_checks
from eden_memory.doctor.examine import libraries
from eden_memory.doctor.finding import (
    COLLECTIONS,
    Finding,
    Privilege,
    failed,
    kafka_commands,
    missing,
    mongodb_commands,
    needed,
)
from eden_memory.doctor.kafka_checks import judge_report
from eden_memory.doctor.mapping_checks import judge_documents, judge_unlisted, judge_version
from eden_memory.kafka.topic_admin import TopicReport
from eden_memory.kafka.topics import TopicDifference
from eden_memory.names import FORMING, MEMORY, Placement
from eden_memory.settings import KafkaSettings, MessagesSettings, MongoSettings, Settings
from eden_memory.source.messages_store import Misread


def settings(**groups: Any) -> Settings:
    return Settings(**groups)


@pytest.mark.parametrize(
    ("version", "state"), [("4.4.29", "fail"), ("5.0.14", "fail"), ("6.0.5", "ok"), ("8.2.0-rc1", "ok")]
)
def test_a_mongodb_without_pre_images_is_too_old(version: str, state: str) -> None:
    assert mongodb_checks.judge_version(version).state == state


def test_a_standalone_server_has_no_change_streams() -> None:
    assert mongodb_checks.judge_topology({"ok": 1.0}).state == "fail"
    assert "rs.initiate" in mongodb_checks.judge_topology({"ok": 1.0}).hint
    assert mongodb_checks.judge_topology({"setName": "rs0", "hosts": ["a:1", "b:1"]}).what == "rs0, 2 members"
    assert mongodb_checks.judge_topology({"msg": "isdbgrid"}).state == "ok"


@pytest.mark.parametrize(
    ("seconds", "state"), [(0.2, "ok"), (-0.2, "ok"), (5, "warn"), (-5, "warn"), (-90, "fail")]
)
def test_a_clock_that_is_off_is_noticed_in_both_directions(seconds: float, state: str) -> None:
    assert mongodb_checks.judge_clock(timedelta(seconds=seconds)).state == state


@pytest.mark.parametrize(
    ("hours", "filled", "state"),
    [
        (100, 1.0, "ok"),
        (48, 1.0, "warn"),
        (5, 1.0, "fail"),
        (10, 0.05, "ok"),
        (10, 0.5, "fail"),
        (0.1, 0.01, "ok"),
    ],
)
def test_an_oplog_that_is_not_full_is_judged_by_its_pace(hours: float, filled: float, state: str) -> None:
    assert mongodb_checks.judge_oplog(timedelta(hours=hours), filled).state == state


def test_privileges_are_compared_action_by_action() -> None:
    wanted = [Privilege("eden", "", ("find", "changeStream")), Privilege("eden", "memory_inbox", ("remove",))]
    granted = [
        {"resource": {"db": "eden", "collection": ""}, "actions": ["find"]},
        {"resource": {"db": "", "collection": "memory_inbox"}, "actions": ["remove"]},
    ]
    assert missing(wanted, granted) == [Privilege("eden", "", ("changeStream",))]
    assert missing(wanted, [{"resource": {"anyResource": True}, "actions": ["anyAction"]}]) == []


def test_a_grant_on_one_collection_is_none_on_the_database() -> None:
    wanted = [Privilege("eden", "", ("find",))]
    granted = [{"resource": {"db": "eden", "collection": "messages"}, "actions": ["find"]}]
    assert missing(wanted, granted) == wanted


def test_a_user_that_lacks_a_right_is_named_with_it() -> None:
    info = {"authenticatedUsers": [{"user": "eve", "db": "admin"}], "authenticatedUserPrivileges": []}
    finding = mongodb_checks.judge_permissions(info, [Privilege("eden", "", ("changeStream",))])
    assert finding.state == "fail"
    assert "eve lacks changeStream on eden.*" in finding.what


def test_in_a_shared_database_only_the_memory_collections_are_written() -> None:
    shared = needed(settings())
    writable = {one.collection for one in shared if "update" in one.actions}
    assert "" not in writable
    assert "messages" not in writable
    assert {"memory_facts", "memory_positions", "memory_leases", "memory_inbox"} <= writable
    apart = needed(settings(mongodb=MongoSettings(database="memory"), source={"database": "chat"}))  # pyright: ignore[reportCallIssue]
    assert {(one.database, one.collection) for one in apart if "update" in one.actions} == {("memory", "")}
    assert {one.database for one in apart if one.actions == ("insert", "remove")} == {"chat"}


def test_every_collection_that_is_written_may_be_written() -> None:
    named = {
        one
        for file in Path(eden_memory.__path__[0]).rglob("*.py")
        for one in re.findall(r'names\["([a-z_]+)"\]', file.read_text())
    }
    assert len(named) > 10
    assert named <= set(COLLECTIONS)


def test_a_namespace_in_a_shared_database_needs_rights_on_its_own_collections() -> None:
    more = [one for one in needed(settings(), ["trial"]) if one not in needed(settings())]
    names = Placement("trial", "trial").names("memory_")
    assert {one.collection for one in more} == {names[one] for one in MEMORY | FORMING} | {
        "memory_ns_trial_streams"
    }
    assert all({"createCollection", "dropCollection", "update"} <= set(one.actions) for one in more)
    apart = settings(mongodb=MongoSettings(database="memory"), source={"database": "chat"})  # pyright: ignore[reportCallIssue]
    assert needed(apart, ["trial"]) == needed(apart)


def test_topics_of_namespaces_are_among_those_that_may_be_made() -> None:
    acls = kafka_commands(settings(), "broker:9092", ["chat.messages", "memory.facts"])
    assert "--topic ns. --resource-pattern-type prefixed" in acls
    assert "--operation Delete --group" in acls


def test_the_commands_to_copy_name_what_is_set() -> None:
    mine = settings(kafka=KafkaSettings(topic_prefix="prod.", group_prefix="prod-eden."))  # pyright: ignore[reportCallIssue]
    acls = kafka_commands(mine, "broker:9092", ["chat.messages", "memory.facts"])
    assert "--topic prod. --resource-pattern-type prefixed" in acls
    assert "--group prod-eden." in acls
    assert "--transactional-id prod.tailer/eden.messages" in acls
    assert '"changeStream"' in mongodb_commands(needed(mine))


@pytest.mark.parametrize(
    ("days", "state"), [(365, "ok"), (400, "ok"), (30, "warn"), (7, "warn"), (1, "fail")]
)
def test_offsets_have_to_outlive_a_long_stop(days: int, state: str) -> None:
    assert kafka_checks.offsets_retention({"offsets.retention.minutes": str(days * 1440)}).state == state


def test_a_broker_that_hides_its_settings_is_a_warning() -> None:
    assert kafka_checks.offsets_retention({}).state == "warn"
    assert kafka_checks.auto_create({}).state == "ok"
    assert kafka_checks.auto_create({"auto.create.topics.enable": "true"}).state == "warn"


def test_the_version_of_a_broker_shows_in_what_it_understands() -> None:
    assert kafka_checks.judge_requests({1: 0, 0: 0}).state == "fail"
    assert kafka_checks.judge_requests({1: 0, 65: 0}).what == "3.x"
    assert kafka_checks.judge_requests({1: 4, 65: 0}).what == "4.0 or newer"


@pytest.mark.parametrize(
    ("bootstrap", "place"),
    [
        ("localhost", ("localhost", 9_092)),
        ("broker:9094,other", ("broker", 9_094)),
        ("[::1]:9095", ("::1", 9_095)),
    ],
)
async def test_a_broker_without_a_port_is_asked_where_clients_ask_it(
    bootstrap: str, place: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    async def refused(host: str, port: int, **_: object) -> None:
        asked.append((host, port))
        raise ConnectionRefusedError

    monkeypatch.setattr(kafka_checks, "create_conn", refused)
    with pytest.raises(ConnectionRefusedError):
        await kafka_checks.broker_version({"bootstrap_servers": bootstrap})
    assert asked == [place]


@pytest.mark.parametrize(
    ("count", "factor", "state"),
    [(1, 1, "ok"), (1, 3, "fail"), (3, 3, "ok"), (3, 1, "warn")],
)
def test_replicas_need_brokers(count: int, factor: int, state: str) -> None:
    wanted = KafkaSettings(replication_factor=factor)  # pyright: ignore[reportCallIssue]
    assert kafka_checks.judge_brokers(count, wanted).state == state


def test_a_topic_that_may_not_be_written_is_named() -> None:
    everything = {AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE}
    found = kafka_checks.judge_operations({"a": everything, "b": everything - {AclOperation.WRITE}})
    assert found.state == "fail"
    assert "b: write" in found.what
    assert kafka_checks.judge_operations({"a": everything}).state == "ok"
    hidden = kafka_checks.judge_operations({name: set[AclOperation]() for name in "abcde"})
    assert hidden.what == (
        "not allowed: a: read, write, describe; b: read, write, describe; c: read, write, describe; and 2 more"
    )


def test_missing_topics_stop_everything_and_other_settings_only_warn() -> None:
    absent = TopicReport([TopicDifference("chat.messages", "missing", "6 partitions")], [])
    other = TopicReport([TopicDifference("chat.messages", "config", "1", "2", "segment.ms")], [])
    assert judge_report(absent).state == "fail"
    assert judge_report(other).state == "warn"
    assert judge_report(TopicReport([], [])).state == "ok"


def test_a_ttl_index_asks_for_a_choice() -> None:
    indexes = {"old": {"key": [("created_at", 1)], "expireAfterSeconds": 86_400}}
    finding = source_checks.judge_ttl(indexes, MessagesSettings())
    assert finding.state == "fail"
    assert "EDEN_MESSAGES_ON_DELETE" in finding.hint
    assert source_checks.judge_ttl(indexes, MessagesSettings(on_delete="keep")).state == "ok"
    assert source_checks.judge_ttl({}, MessagesSettings()).state == "ok"


def test_an_index_that_hides_messages_does_not_count() -> None:
    keys = {"key": [("created_at", 1), ("_id", 1)]}
    assert source_checks.judge_index({"a": keys}, "app", MessagesSettings()).state == "ok"
    assert (
        source_checks.judge_index({"a": {**keys, "sparse": True}}, "app", MessagesSettings()).state == "warn"
    )
    assert (
        source_checks.judge_index(
            {"a": {**keys, "partialFilterExpression": {}}}, "app", MessagesSettings()
        ).state
        == "warn"
    )
    assert (
        source_checks.judge_index({"a": {"key": [("created_at", 1)]}}, "app", MessagesSettings()).state
        == "warn"
    )
    assert (
        source_checks.judge_index({"a": {"key": [("_fts", "text")]}}, "app", MessagesSettings()).state
        == "warn"
    )


def test_the_index_on_ids_is_enough_where_they_hold_the_time() -> None:
    found = source_checks.judge_index(
        {"_id_": {"key": [("_id", 1)]}}, "app", MessagesSettings(created_at="_id")
    )
    assert (found.state, found.what) == ("ok", "{_id: 1}")


@pytest.mark.parametrize(
    ("index", "state"),
    [
        ({"key": [("session_id", 1)]}, "ok"),
        ({"key": [("session_id", "hashed")], "sparse": True}, "ok"),
        ({"key": [("session_id", -1), ("created_at", 1)]}, "ok"),
        ({"key": [("created_at", 1), ("session_id", 1)]}, "warn"),
        ({"key": [("session_id", 1)], "partialFilterExpression": {}}, "warn"),
        ({"key": [("session_id", "text")]}, "warn"),
    ],
)
def test_an_index_that_begins_with_the_session_finds_its_messages(index: dict[str, Any], state: str) -> None:
    found = source_checks.judge_session_index(
        {"_id_": {"key": [("_id", 1)]}, "a": index}, "app", MessagesSettings()
    )
    assert found.state == state


def message(**other: Any) -> dict[str, Any]:
    usual = {"_id": 1, "session_id": "s", "role": "user", "user_id": "ada", "content": "Hi"}
    return {**usual, "created_at": datetime.now(UTC), **other}


def test_authors_of_answers_are_no_users_and_authors_of_unknown_roles_are() -> None:
    answer = message(role="assistant", user_id="agent1@shop.example")
    found = judge_documents([message(), answer], settings())[-1]
    assert (found.check, found.state) == ("authors of answers", "ok")
    assert found.what.startswith("in 1 of 1 sessions")
    unknown = message(role="narrator", user_id="eve")
    found = judge_documents([message(), unknown], settings())[-1]
    assert (found.check, found.state) == ("other authors", "warn")
    owned = message(role="assistant")  # the owner's id on both
    assert "authors of answers" not in states(judge_documents([message(), owned], settings()))


def states(findings: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.state for finding in findings}


def test_documents_of_the_usual_shape_map() -> None:
    found = states(judge_documents([message(), message(role="tool", content=[])], settings()))
    assert found == {"field mapping": "ok", "message texts": "ok", "roles": "ok", "message authors": "ok"}


def test_documents_without_a_session_are_counted_with_the_reason() -> None:
    findings = judge_documents([message(), message(session_id=None)], settings())
    assert states(findings)["field mapping"] == "fail"
    assert "1 of the newest 2" in findings[0].what
    assert "session_id" in findings[0].what


def test_a_wrong_path_for_the_text_is_noticed_though_nothing_fails() -> None:
    findings = judge_documents([message(content=None, body="Hi")], settings())
    assert states(findings)["field mapping"] == "ok"
    assert states(findings)["message texts"] == "fail"
    moved = settings(messages=MessagesSettings(content="body"))
    assert states(judge_documents([message(content=None, body="Hi")], moved))["message texts"] == "ok"


def test_a_path_to_what_is_no_time_is_noticed() -> None:
    (texts,) = [
        one
        for one in judge_documents([message(created_at=["now"]), message(created_at="soon")], settings())
        if one.check == "message texts"
    ]
    assert (texts.state, "0 say when" in texts.what) == ("warn", True)


def test_unknown_roles_are_named_and_mapped_ones_are_not() -> None:
    findings = judge_documents([message(role="bot"), message()], settings())
    assert states(findings)["roles"] == "warn"
    assert "'bot' (1)" in findings[2].what
    mapped = settings(messages=MessagesSettings(roles={"bot": "assistant"}))
    assert states(judge_documents([message(role="bot")], mapped))["roles"] == "ok"


def exported(number: int, *, bot: bool, author: str) -> dict[str, Any]:
    return message(session_id=f"chat-{number}", role="assistant" if bot else "user", user_id=author)


def test_the_one_user_of_all_sessions_may_be_the_agent() -> None:
    swapped = [
        exported(number, bot=bot, author=f"customer-{number}" if bot else "the bot")
        for number in range(3)
        for bot in (True, False)
    ]
    (found,) = [one for one in judge_documents(swapped, settings()) if one.check == "users"]
    assert (found.state, "in all 3 sessions" in found.what, "swapped" in found.what) == ("fail", True, True)
    one_user = [exported(number, bot=False, author="ada") for number in range(3)]
    assert states(judge_documents(one_user, settings()))["users"] == "warn"
    assert "users" not in states(judge_documents(one_user[:2], settings())), (
        "two sessions of one user are usual"
    )
    right = [{**one, "role": "user" if one["role"] == "assistant" else "assistant"} for one in swapped]
    assert "users" not in states(judge_documents(right, settings()))


def test_a_role_by_which_nobody_answers_anybody_is_noticed() -> None:
    apart = [exported(number, bot=number % 2 == 0, author=f"u{number}") for number in range(4)]
    assert states(judge_documents(apart, settings()))["sides"] == "warn"


def test_text_that_one_role_or_one_kind_of_part_has_elsewhere_is_noticed() -> None:
    answers = [message(role="assistant", content=None, answer="Hello") for _ in range(3)]
    texts = {
        one.check: one for one in judge_documents([*[message() for _ in range(5)], *answers], settings())
    }
    assert texts["message texts"].state == "warn"
    assert "none of the 3 messages of the role assistant has text" in texts["message texts"].what
    parts = [{"type": "text", "text": "Hi"}, {"type": "rich", "markdown": "My *PIN* is 4711"}]
    calls = [{"type": "tool_call", "text": "looks it up"}, {"type": "thinking", "text": "who is it"}]
    texts = {one.check: one for one in judge_documents([message(content=[*parts, *calls])], settings())}
    assert "text not read in parts of the type 'rich' (1)" in texts["message texts"].what
    assert (texts["message texts"].state, "4711" in str(texts)) == ("warn", False)


def test_a_user_who_writes_outside_of_the_sessions_list_is_noticed() -> None:
    documents = [message(), message(session_id="t", user_id="eve"), message(role="assistant", user_id="bot")]
    sessions = [{"_id": "s", "users": ["ada"]}, {"_id": "t", "users": ["ada"]}, {"_id": "u"}]
    (found,) = judge_unlisted(sessions, documents, settings())
    assert (found.state, found.what.startswith("in 1 of 2 sessions, a user writes")) == ("warn", True)
    assert judge_unlisted(sessions[:1], documents, settings()) == []


@pytest.mark.parametrize(
    ("other", "state", "hint"),
    [
        ({"userId": 7}, "fail", "EDEN_MESSAGES_USER_ID=userId"),
        ({"author": {"name": "Ada", "_id": ObjectId()}}, "fail", "EDEN_MESSAGES_USER_ID=author._id"),
        ({"sender": "ada", "from_app": True}, "fail", "EDEN_MESSAGES_USER_ID=sender"),
        ({"text": "from Ada"}, "warn", "EDEN_MESSAGES_USER_ID."),
    ],
)
def test_a_wrong_path_for_the_author_is_noticed_and_the_field_that_looks_like_it_named(
    other: dict[str, Any], state: str, hint: str
) -> None:
    documents = [message(user_id=None, **other), message(user_id=None, role="assistant")]
    found = judge_documents(documents, settings())[-1]
    assert (found.check, found.state) == ("message authors", state)
    assert "1 of 1 messages of the role user" in found.what
    assert hint in found.hint


def test_some_messages_without_an_author_are_a_warning() -> None:
    documents = [message(), message(user_id=None, userId=7)]
    assert states(judge_documents(documents, settings()))["message authors"] == "warn"
    mapped = settings(messages=MessagesSettings(user_id="userId", roles={"human": "user"}))
    found = judge_documents([message(role="human"), message(userId=7)], mapped)[-1]
    assert (found.state, "1 of 2" in found.what) == ("warn", True)


def test_no_finding_holds_what_a_message_says() -> None:
    secret = "my number is 4711"
    findings = judge_documents([message(session_id={"text": secret}, content=secret)], settings())
    assert states(findings)["field mapping"] == "fail"
    assert not any(secret in finding.what + finding.hint for finding in findings)


def test_the_installed_libraries_are_those_required() -> None:
    assert libraries().state == "ok"


def test_only_failures_fail() -> None:
    assert not failed([Finding("a", "ok", ""), Finding("b", "warn", "")])
    assert failed([Finding("a", "ok", ""), Finding("b", "fail", "")])


def test_what_another_mapping_read_is_said_with_what_to_do() -> None:
    assert judge_version(Misread("ab12")).state == "ok"
    stored = judge_version(Misread("ab12", stored=300))
    assert (stored.state, stored.hint) == ("warn", "Run: eden source reread.")
    assert "300 stored messages" in stored.what
    both = judge_version(Misread("ab12", stored=1, formed=2))
    assert both.hint == "Run: eden source reread, then eden reform corrected."
