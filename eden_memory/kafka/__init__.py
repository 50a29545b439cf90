"""One place for Kafka's clients: connections, topics, offsets, lag and groups."""

from typing import Any

KafkaArguments = dict[str, Any]
"""The keyword arguments that connect any of aiokafka's clients (eden_memory.kafka.connection)."""
