"""The least that the program needs to be allowed, in MongoDB and in Kafka, also as commands to copy."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eden_memory.settings import Settings

READ_SOURCE = ("changeStream", "collStats", "find", "listCollections", "listIndexes")
WRITE_MEMORY = (
    *("collMod", "createCollection", "createIndex", "dropIndex", "find", "insert"),
    *("listIndexes", "remove", "update"),
)
READ_OPLOG = ("collStats", "find")
COLLECTIONS = (
    *("facts", "reflections", "consolidated", "streams", "contexts", "snapshots", "access", "inbox"),
    *("sessions", "messages", "windows", "outcomes", "answers", "positions", "leases", "forgotten"),
    *("usage", "budgets", "api_keys", "dead_letters", "controls"),
)
"""Memory collections, without their prefix."""
ROLE = "edenMemory"
PRINCIPAL = "User:eden"


@dataclass(frozen=True, slots=True)
class Privilege:
    """Actions on a collection; an empty name stands for every collection of the database."""

    database: str
    collection: str
    actions: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """As MongoDB's createRole takes it."""
        return {
            "resource": {"db": self.database, "collection": self.collection},
            "actions": list(self.actions),
        }


def needed(settings: Settings, collections: Sequence[str]) -> list[Privilege]:
    """For the memory collections named (without prefix), the source database, and the oplog's length.

    The change stream spans the source database, so all of it is read; only the inbox is written.
    """
    memory, source, prefix = settings.mongodb.database, settings.source_database, settings.mongodb.prefix
    owned = [Privilege(memory, prefix + name, WRITE_MEMORY) for name in collections]
    inbox = Privilege(source, prefix + "inbox", ("insert", "remove"))
    return [Privilege(source, "", READ_SOURCE), inbox, *owned]


def helpful() -> list[Privilege]:
    """Only `eden doctor` uses these."""
    return [Privilege("local", "oplog.rs", READ_OPLOG)]


def missing(wanted: Sequence[Privilege], granted: Sequence[Mapping[str, Any]]) -> list[Privilege]:
    """What is wanted and not granted; `granted` as the server's connectionStatus lists it."""
    return [lacking for one in wanted if (lacking := _lacking(one, granted))]


def _lacking(one: Privilege, granted: Sequence[Mapping[str, Any]]) -> Privilege | None:
    allowed = {action for grant in granted if _covers(grant["resource"], one) for action in grant["actions"]}
    actions = tuple(action for action in one.actions if action not in allowed)
    return None if not actions or "anyAction" in allowed else Privilege(one.database, one.collection, actions)


def _covers(resource: Mapping[str, Any], one: Privilege) -> bool:
    if resource.get("anyResource"):
        return True
    return resource.get("db") in ("", one.database) and resource.get("collection") in ("", one.collection)


def mongodb_commands(privileges: Sequence[Privilege]) -> str:
    """For mongosh, by an administrator: the role, and a user that holds it (the password is asked for)."""
    documents = ",\n    ".join(json.dumps(privilege.document()) for privilege in privileges)
    return f"""\
use admin
db.createRole({{role: "{ROLE}", roles: [], privileges: [
    {documents}
]}})
db.createUser({{user: "eden", pwd: passwordPrompt(), roles: ["{ROLE}"]}})"""


def kafka_commands(settings: Settings, bootstrap: str, topics: Sequence[str]) -> str:
    """For a shell with Kafka's tools, by an administrator (--command-config FILE says who you are)."""
    start = f"kafka-acls.sh --bootstrap-server {bootstrap} --add --allow-principal {PRINCIPAL}"
    return "\n".join(f"{start} {rest}" for rest in _acls(settings, topics))


def _acls(settings: Settings, topics: Sequence[str]) -> Iterator[str]:
    prefixed = "--resource-pattern-type prefixed"
    work = _operations("Read", "Write", "Describe", "DescribeConfigs")
    manage = _operations("Create", "Alter", "AlterConfigs", "Delete")
    for start in sorted({_first_word(settings.kafka.topic_prefix, name) for name in topics}):
        yield f"{work} --topic {start} {prefixed}"
        yield f"{manage} --topic {start} {prefixed}   # `eden topics apply`, consumed records"
    yield f"{_operations('Read', 'Describe')} --group {settings.kafka.group_prefix} {prefixed}"
    yield f"{_operations('Write', 'Describe')} --transactional-id {settings.kafka.group_prefix} {prefixed}"
    yield f"{_operations('Describe', 'DescribeConfigs')} --cluster   # for `eden doctor`"


def _operations(*names: str) -> str:
    return " ".join(f"--operation {name}" for name in names)


def _first_word(prefix: str, topic: str) -> str:
    """`chat.` of `chat.messages`; the topics' prefix where there is one."""
    return prefix or topic.partition(".")[0] + "."
