"""A receipt says when each topic is clean."""

from datetime import UTC, datetime, timedelta

from eden_memory.kafka.topics import load_topics
from eden_memory.receipts.receipt_store import clean_topic
from eden_memory.settings import KafkaSettings

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_a_topic_is_clean_once_its_segments_are_compacted() -> None:
    topics = {topic.name: topic for topic in load_topics(KafkaSettings.model_validate({}))}
    assert clean_topic(topics["chat.messages"], NOON).by == NOON + timedelta(hours=36)
    assert topics["chat.messages"].holds == timedelta(hours=36)
