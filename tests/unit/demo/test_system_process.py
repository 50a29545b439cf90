"""The settings of the demo's own process: its data by its own names, all else as the user has set it."""

import os
from pathlib import Path

import pytest

from eden_memory.demo import system_process
from eden_memory.demo.conversation import PEOPLE
from eden_memory.demo.system_process import environment, own_settings
from eden_memory.local.servers import Endpoints
from eden_memory.settings import Settings
from eden_memory.source.messages_store import inbox_name

FILE = """
[mongodb]
prefix = "mem_"
[kafka]
partitions = 2
[source]
database = "shop"
[messages]
collection = "chats"
session_id = "thread.id"
redact_secrets = false
on_delete = "keep"
roles = { user = "other", bot = "assistant" }
[sessions]
collection = "chats"
agent_id = "bot.id"
[users]
memory = "role"
[models]
fast = "small"
"""
FOUND = Endpoints("mongodb://localhost:1", "localhost:2")


@pytest.mark.parametrize("mapped", [[], ["sessions", "agents"]])
def test_the_mapping_of_the_user_reaches_neither_process(
    mapped: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "eden.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(Settings.model_config, "toml_file", "eden.toml")
    monkeypatch.setenv("EDEN_GROUPS_COLLECTION", "teams")
    monkeypatch.setenv("eden_users_name", "nick")
    monkeypatch.setenv("EDEN_MONGODB_PREFIX", "mine_")
    here = own_settings(Settings(), FOUND, "eden_demo", "eden-demo.", mapped)
    monkeypatch.setattr(os, "environ", {**system_process.inherited(), **environment(FOUND, here)})
    child = Settings()
    assert {name: getattr(child, name).collection for name in PEOPLE} == {
        name: name if name in mapped else None for name in PEOPLE
    }
    for group in (*PEOPLE, "source", "kafka", "mongodb", "models"):
        assert getattr(child, group) == getattr(here, group), group
    assert (child.sessions.agent_id, child.users.memory, child.users.name) == ("agent_id", "memory", "name")
    assert child.messages.collection == "messages"
    assert child.messages.session_id == "session_id"
    assert child.messages.roles["user"] == "user"
    assert child.messages.on_delete is None, "what is deleted in the demo is forgotten"
    assert child.messages.redact_secrets is False
    assert inbox_name(child) == inbox_name(here) == "memory_inbox"
    assert (child.models.fast, child.kafka.partitions) == ("small", 2)
