"""The result of a check, and the least rights that the program needs in MongoDB and Kafka."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from eden_memory.names import FORMING, MEMORY, collections_of
from eden_memory.receipts.compact_forgotten import TRANSACTIONAL_ID
from eden_memory.replay.reform.reform_settings import STREAMS
from eden_memory.schemas.documents import DOCUMENTS
from eden_memory.settings import Settings

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table: what was checked, the result, and what to do about it."""

    check: str
    state: State
    what: str
    hint: str = ""


def failed(findings: Iterable[Finding]) -> bool:
    """Whether something has to be fixed before the program can work."""
    return any(finding.state == "fail" for finding in findings)


READ_SOURCE = ("changeStream", "collStats", "find", "listCollections", "listIndexes")

WRITE_MEMORY = (
    *("collMod", "createCollection", "createIndex", "dropIndex", "find", "insert"),
    *("listIndexes", "remove", "update"),
)

UNDESCRIBED = ("consumption", "controls", "groups", "installation", "versions")
"""Collections without documents of the contract."""

COLLECTIONS = sorted({*(document.COLLECTION for document in DOCUMENTS), *UNDESCRIBED})
"""Memory collections, without their prefix."""

OF_A_NAMESPACE = sorted({*MEMORY, *FORMING, STREAMS})
"""Collections of which a namespace may have its own."""

MANAGE_NAMESPACES = ("collStats", "dropCollection")

ROLE = "edenMemory"

PRINCIPAL = "User:eden"


@dataclass(frozen=True, slots=True)
class Privilege:
    """Actions on a collection; an empty name stands for every collection of the database."""

    database: str
    collection: str
    actions: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return it in the form of MongoDB's createRole."""
        return {
            "resource": {"db": self.database, "collection": self.collection},
            "actions": list(self.actions),
        }

    def __str__(self) -> str:
        """Return for example `find, insert on eden.memory_facts`."""
        return f"{', '.join(self.actions)} on {self.database}.{self.collection or '*'}"


OPLOG = Privilege("local", "oplog.rs", ("collStats", "find"))
"""Rights that only `eden doctor` uses."""


def needed(settings: Settings, namespaces: Iterable[str] = ()) -> list[Privilege]:
    """Of the source database everything is read, since the change stream spans it; only the inbox is written.

    A memory database of its own is the program's; in a shared one only the memory collections are, and those of the
    `namespaces` named: MongoDB grants nothing on collections that begin with something.
    """
    memory, source, prefix = settings.mongodb.database, settings.source_database, settings.mongodb.prefix
    inbox = Privilege(source, prefix + "inbox", ("insert", "remove"))
    written = [Privilege(memory, prefix + name, WRITE_MEMORY) for name in COLLECTIONS]
    if memory != source:
        return [
            Privilege(source, "", READ_SOURCE),
            inbox,
            Privilege(memory, "", (*WRITE_MEMORY, "listCollections", *MANAGE_NAMESPACES)),
        ]
    written += [
        Privilege(memory, prefix + collections_of(namespace) + name, (*WRITE_MEMORY, *MANAGE_NAMESPACES))
        for namespace in namespaces
        for name in OF_A_NAMESPACE
    ]
    return [Privilege(source, "", READ_SOURCE), inbox, *written]


def missing(wanted: Sequence[Privilege], granted: Sequence[Mapping[str, Any]]) -> list[Privilege]:
    """Return the privileges that are not granted; `granted` as the server's connectionStatus lists it."""
    return [lacking for privilege in wanted if (lacking := _lacking(privilege, granted))]


def _lacking(privilege: Privilege, granted: Sequence[Mapping[str, Any]]) -> Privilege | None:
    allowed = {
        action for grant in granted if _covers(grant["resource"], privilege) for action in grant["actions"]
    }
    actions = tuple(action for action in privilege.actions if action not in allowed)
    return (
        None
        if not actions or "anyAction" in allowed
        else Privilege(privilege.database, privilege.collection, actions)
    )


def _covers(resource: Mapping[str, Any], privilege: Privilege) -> bool:
    if resource.get("anyResource"):
        return True
    return resource.get("db") in ("", privilege.database) and resource.get("collection") in (
        "",
        privilege.collection,
    )


def mongodb_commands(privileges: Sequence[Privilege]) -> str:
    """Return commands for mongosh, run by an administrator: the role, and a user with it (asks for the password)."""
    grants = "\n".join(f"  {line}" for line in _grants([*privileges, OPLOG]))
    return f"""\
use admin
db.createRole({{role: "{ROLE}", roles: [], privileges: [
{grants}
]}})
db.createUser({{user: "eden", pwd: passwordPrompt(), roles: ["{ROLE}"]}})"""


def _grants(privileges: Sequence[Privilege]) -> Iterator[str]:
    """Return one line for each set of actions, for all collections of a database that have it."""
    for (database, actions), alike in groupby(
        privileges, key=lambda privilege: (privilege.database, privilege.actions)
    ):
        names = [privilege.collection for privilege in alike]
        resource = (
            f"{{resource: {{db: {json.dumps(database)}, collection: name}}, actions: {json.dumps(actions)}}}"
        )
        yield f"...{json.dumps(names)}.map(name => ({resource})),"


def kafka_commands(settings: Settings, bootstrap: str, topics: Sequence[str]) -> str:
    """Return commands for a shell with Kafka's tools (--command-config FILE says who you are)."""
    start = f"kafka-acls.sh --bootstrap-server {bootstrap} --add --allow-principal {PRINCIPAL}"
    return "\n".join(f"{start} {rest}" for rest in _acls(settings, topics))


def _acls(settings: Settings, topics: Sequence[str]) -> Iterator[str]:
    prefixed = "--resource-pattern-type prefixed"
    transactional_id = settings.kafka.topic_prefix + settings.source_name
    work = _operations("Read", "Write", "Describe", "DescribeConfigs")
    manage = _operations("Create", "Alter", "AlterConfigs", "Delete")
    own = [*topics, "ns."]  # collections of namespaces
    for start in sorted({_first_word(settings.kafka.topic_prefix, name) for name in own}):
        yield f"{work} --topic {start} {prefixed}"
        yield f"{manage} --topic {start} {prefixed}   # `eden topics apply`, consumed records"
    group = f"--group {settings.kafka.group_prefix} {prefixed}"
    yield f"{_operations('Read', 'Describe')} {group}"
    yield f"{_operations('Delete')} {group}   # `eden namespace drop`, `eden namespace switch`"
    yield f"{_operations('Write', 'Describe')} --transactional-id {transactional_id}"
    compaction = settings.kafka.topic_prefix + TRANSACTIONAL_ID
    yield f"{_operations('Write', 'Describe')} --transactional-id {compaction}   # `eden forget --compact`"
    yield f"{_operations('Describe', 'DescribeConfigs')} --cluster   # for `eden doctor`"


def _operations(*names: str) -> str:
    return " ".join(f"--operation {name}" for name in names)


def _first_word(prefix: str, topic: str) -> str:
    """Return `chat.` of `chat.messages`; the topics' prefix if there is one."""
    return prefix or topic.partition(".")[0] + "."
