"""The bound of formation's CPU in a short form: every client does its work, and more of it costs more."""

from dataclasses import replace

import pytest

from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.settings import Settings
from tests.bench.bare_clients import Work, bare_cpu
from tests.model_server.serving import model_server_process
from tests.servers import TestServers


@pytest.mark.servers
@pytest.mark.slow
async def test_more_calls_commands_and_records_cost_more(servers: TestServers, settings: Settings) -> None:
    apply_topics(admin_config(settings.kafka, servers.kafka_bootstrap), load_topics(settings.kafka))
    with model_server_process() as models:
        little = Work(
            mongodb_uri=servers.mongodb_uri,
            database=settings.mongodb.database,
            kafka=client_kwargs(settings.kafka, servers.kafka_bootstrap),
            topic=f"{settings.kafka.topic_prefix}memory.usage",
            openai_url=models.openai_url,
            chats=5,
            prompt_characters=1_000,
            embeddings=1,
            texts=10,
            commands={"find": 5, "aggregate": 1, "insert": 2, "update": 3, "findAndModify": 1},
            documents={"returned": 10, "inserted": 4, "updated": 6},
            records=120,
            record_bytes=500,
            deliveries=200,
        )
        much = replace(
            little,
            chats=100,
            commands={name: 40 * number for name, number in little.commands.items()}
            | {"commitTransaction": 40},
            documents={name: 40 * number for name, number in little.documents.items()},
            records=6_000,
            deliveries=12_000,
        )
        first, second = await bare_cpu(little), await bare_cpu(much)
    assert set(first) == {"provider", "mongodb", "kafka"}
    assert all(second[client] > 2 * first[client] > 0 for client in first)
