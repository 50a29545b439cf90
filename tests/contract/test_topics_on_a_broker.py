"""topics.yaml on a real broker: created, altered in what is ours alone, never grown or deleted unasked."""
# pyright: reportPrivateImportUsage=false

from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from eden_memory.errors import EdenError
from eden_memory.kafka.connection import admin_config
from eden_memory.kafka.topic_admin import TopicAdmin, apply_topics
from eden_memory.kafka.topics import Topics, load_topics
from eden_memory.local.server import choose
from eden_memory.settings import Settings
from tests.servers import wait_until

pytestmark = pytest.mark.servers


@pytest.fixture
def config(settings: Settings) -> dict[str, Any]:
    assert settings.kafka.bootstrap
    return dict(admin_config(settings.kafka, settings.kafka.bootstrap))


@pytest.fixture
def topics(settings: Settings) -> Topics:
    return load_topics(settings.kafka.model_copy(update={"partitions": 2}))


@pytest.fixture
def admin(config: dict[str, Any], topics: Topics) -> TopicAdmin:
    apply_topics(config, topics)
    return TopicAdmin(config)


@pytest.fixture
def raw(config: dict[str, Any]) -> Any:
    return AdminClient(config)


def set_config(raw: Any, topic: str, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for answer in raw.incremental_alter_configs([resource]).values():
        answer.result(30)


def test_every_topic_is_created_as_declared(topics: Topics, config: dict[str, Any]) -> None:
    before = apply_topics(config, topics)
    assert {one.what for one in before.differences} == {"missing"}
    assert len(before.differences) == len(topics.file.topics)

    found = TopicAdmin(config).found(topics)
    for topic in topics:
        on_broker = found[topic.name]
        assert on_broker.partitions == topic.partitions
        assert {name: on_broker.config[name] for name in topic.config} == dict(topic.config)
    assert TopicAdmin(config).report(topics).differences == []


def test_applying_twice_changes_nothing(topics: Topics, admin: TopicAdmin) -> None:
    assert admin.apply(topics).differences == []


def test_only_the_settings_that_are_ours_are_altered(topics: Topics, admin: TopicAdmin, raw: Any) -> None:
    name = topics.name("chat.messages")
    set_config(raw, name, segment_ms="1000", flush_messages="777")
    wait_until(lambda: admin.found(topics)[name].config["flush.messages"] == "777", "the altered setting")

    (difference,) = admin.apply(topics).differences
    assert (difference.setting, difference.found, difference.wanted) == ("segment.ms", "1000", "43200000")
    wait_until(lambda: admin.report(topics).differences == [], "the setting to be back")
    assert admin.found(topics)[name].config["flush.messages"] == "777"


def test_partitions_are_never_added_to_a_compacted_topic(
    topics: Topics, settings: Settings, admin: TopicAdmin
) -> None:
    more = load_topics(settings.kafka.model_copy(update={"partitions": 3}))
    report = admin.apply(more)
    refused = {one.topic for one in report.refused}
    assert refused == {topic.name for topic in more if topic.compacted}
    assert all("compacted" in str(one.refused) for one in report.refused)
    found = admin.found(topics)
    assert {found[name].partitions for name in refused} == {2}


def test_partitions_are_added_where_no_key_can_get_lost(
    topics: Topics, settings: Settings, admin: TopicAdmin
) -> None:
    more = load_topics(settings.kafka.model_copy(update={"partitions": 3}))
    admin.apply(more)
    usage = topics.name("memory.usage")
    wait_until(lambda: admin.found(topics)[usage].partitions == 3, "the added partition")


def test_partitions_are_never_taken_away(topics: Topics, admin: TopicAdmin, raw: Any) -> None:
    usage = topics.name("memory.usage")
    raw.create_partitions([NewPartitions(usage, 4)])[usage].result(30)
    wait_until(lambda: admin.found(topics)[usage].partitions == 4, "the added partitions")
    (difference,) = admin.report(topics).differences
    assert difference.what == "partitions"
    assert "cannot take partitions away" in str(difference.refused)


def test_unknown_topics_are_told_and_deleted_only_when_named(
    topics: Topics, admin: TopicAdmin, raw: Any, namespace: Any
) -> None:
    strangers = [topics.prefix + "left.over", f"{namespace.name}-of-others"]
    for created in raw.create_topics([NewTopic(name, 1, 1) for name in strangers]).values():
        created.result(30)
    wait_until(lambda: set(strangers) <= set(admin.names()), "the other topics")
    try:
        assert admin.apply(topics).unknown == [topics.prefix + "left.over"]
        assert set(strangers) <= set(admin.names())

        admin.delete(admin.report(topics).unknown)
        assert strangers[0] not in admin.names()
        assert strangers[1] in admin.names(), "it does not have our prefix"
    finally:
        raw.delete_topics([strangers[1]])[strangers[1]].result(30)


def test_a_broker_that_does_not_answer_is_named(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eden_memory.kafka.topic_admin.CONNECT", 1.0)
    address = f"127.0.0.1:{choose()}"
    with pytest.raises(EdenError, match=address):
        TopicAdmin({"bootstrap.servers": address}).report(topics)
