"""A local MongoDB: one `mongod` as a one-node replica set on loopback."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pymongo import MongoClient
from pymongo.errors import ConnectionFailure, OperationFailure

from eden_memory.local import mongod, ports
from eden_memory.local.server import LocalServer

REPLICA_SET = "eden"
ALREADY_INITIALIZED = 23
MEMBER_SETTINGS = {"electionTimeoutMillis": 2_000, "heartbeatIntervalMillis": 500}


class LocalMongo(LocalServer):
    """One mongod in one folder, its own primary."""

    name = "MongoDB"
    program = "mongod"
    port_names = ("mongodb",)

    def __init__(
        self,
        folder: Path,
        *,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        client: Mapping[str, Any] | None = None,
        cache_gb: float = 0.5,
    ) -> None:
        """`options` go to mongod's configuration file, `client` to our own connections."""
        super().__init__(folder)
        self._config = self.folder / "mongod.conf"
        self._options = options or {}
        self._client = client or {}
        self._cache_gb = cache_gb

    @property
    def marker(self) -> str:
        """The configuration file's path."""
        return str(self._config)

    @property
    def host(self) -> str:
        """`127.0.0.1:port`."""
        return f"{ports.HOST}:{self.port}"

    @property
    def endpoint(self) -> str:
        """The connection string."""
        return f"mongodb://{self.host}/?replicaSet={REPLICA_SET}"

    def connect(self, seconds: float = 2.0) -> MongoClient[dict[str, Any]]:
        """A blocking connection to this very node, for administration; the caller closes it."""
        milliseconds = int(seconds * 1_000)
        return MongoClient(
            self.host,
            directConnection=True,
            serverSelectionTimeoutMS=milliseconds,
            connectTimeoutMS=milliseconds,
            socketTimeoutMS=10_000,
            **self._client,
        )

    def _prepare(self, chosen: Mapping[str, int], notes: list[str]) -> Sequence[str]:
        del notes
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        self._config.write_text(yaml.safe_dump(self._configuration(chosen, data)))
        return [str(mongod.find()), "--config", str(self._config)]

    def _configuration(self, chosen: Mapping[str, int], data: Path) -> dict[str, Any]:
        configuration: dict[str, Any] = {
            "net": {
                "port": chosen["mongodb"],
                "bindIp": ports.HOST,
                "compression": {"compressors": "disabled"},
                "unixDomainSocket": {"enabled": False},
            },
            "storage": {"dbPath": str(data), "wiredTiger": {"engineConfig": {"cacheSizeGB": self._cache_gb}}},
            "replication": {"replSetName": REPLICA_SET, "oplogSizeMB": 2_048},
            "setParameter": {
                "diagnosticDataCollectionEnabled": False,
                "shutdownTimeoutMillisForSignaledShutdown": 500,
            },
        }
        for section, values in self._options.items():
            configuration[section] = {**configuration.get(section, {}), **values}
        return configuration

    def _probe(self) -> str | None:
        if not ports.accepts(self.port):
            return None
        with self.connect() as client:
            try:
                return self._version_once_primary(client)
            except ConnectionFailure:
                return None

    def _version_once_primary(self, client: MongoClient[dict[str, Any]]) -> str | None:
        hello = client.admin.command("hello")
        if hello.get("isWritablePrimary"):
            return str(client.server_info()["version"])
        if not hello.get("setName"):
            self._join(client)
        return None

    def _join(self, client: MongoClient[dict[str, Any]]) -> None:
        """Make the node a replica set of its own, also after it was moved to another port."""
        try:
            client.admin.command("replSetInitiate", initial_config([self.host]))
        except OperationFailure as error:
            if error.code != ALREADY_INITIALIZED:
                raise
            self._follow_port(client)

    def _follow_port(self, client: MongoClient[dict[str, Any]]) -> None:
        config = client.admin.command("replSetGetConfig")["config"]
        if config["members"][0]["host"] != self.host:
            config["members"][0]["host"] = self.host
            config["version"] += 1
            client.admin.command("replSetReconfig", config, force=True)


def initial_config(hosts: Sequence[str]) -> dict[str, Any]:
    """The configuration of a new replica set with these members, quick to elect."""
    members = [{"_id": number, "host": host} for number, host in enumerate(hosts)]
    return {"_id": REPLICA_SET, "version": 1, "members": members, "settings": MEMBER_SETTINGS}
