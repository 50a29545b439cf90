"""A receipt says when each topic is clean: dead letters of an earlier version only go with their age."""

from datetime import UTC, datetime, timedelta

from eden_memory.kafka.topics import load_topics
from eden_memory.receipts.receipt_store import clean_topic
from eden_memory.settings import KafkaSettings

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_a_topic_is_clean_after_compaction_and_its_dead_letters_after_their_retention() -> None:
    topics = {topic.name: topic for topic in load_topics(KafkaSettings.model_validate({}))}
    for name, topic in topics.items():
        waits = timedelta(days=30, hours=12) if topic.dead_of else topic.holds
        assert clean_topic(topic, NOON).by == NOON + waits, name
    assert topics["chat.messages"].holds == timedelta(hours=36) == topics["chat.messages.dead"].holds
