"""A local MongoDB replica set of several nodes, for step-downs, elections and lost members."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from eden_memory.errors import EdenError
from eden_memory.local import server, server_process
from eden_memory.local.mongo import ALREADY_INITIALIZED, REPLICA_SET, LocalMongo, initial_config

ELECTION_SECONDS = 30.0
FREEZE_SECONDS = 5


class Member(LocalMongo):
    """One node among several: up as soon as it answers, whoever is primary."""

    def _probe(self) -> str | None:
        if not server.accepts(self.port):
            return None
        with self.connect() as client:
            try:
                return str(client.server_info()["version"])
            except PyMongoError:
                return None

    @property
    def is_primary(self) -> bool:
        """Whether the node runs and takes writes now."""
        if not self.running:
            return False
        with self.connect(seconds=1.0) as client:
            try:
                return bool(client.admin.command("hello").get("isWritablePrimary"))
            except PyMongoError:
                return False

    def _join(self, client: MongoClient[dict[str, Any]]) -> None:
        """The set is initiated for all members at once."""


class LocalReplicaSet:
    """Nodes `0`, `1`, … in one folder; their ports are remembered."""

    def __init__(self, folder: Path, size: int = 3) -> None:
        self.members = [Member(folder / str(number), cache_gb=0.25) for number in range(size)]

    @property
    def endpoint(self) -> str:
        """The connection string, with all members."""
        hosts = ",".join(member.host for member in self.members)
        return f"mongodb://{hosts}/?replicaSet={REPLICA_SET}"

    def start(self) -> None:
        """Start the members that do not run, and wait for a primary."""
        self._each(lambda member: member.start())
        self._initiate()
        self.await_primary()

    def stop(self) -> None:
        """Stop every member."""
        self._each(lambda member: member.stop(10.0))

    def primary(self) -> Member | None:
        """The member that is primary now, if any."""
        return next((member for member in self.members if member.is_primary), None)

    def await_primary(self, seconds: float = ELECTION_SECONDS) -> Member:
        """The primary, once there is one; an EdenError when none is elected in time."""
        for _ in server_process.ticks(seconds):
            primary = self.primary()
            if primary is not None:
                return primary
        raise EdenError(f"no primary was elected among {self.endpoint} within {seconds:.0f} s")

    def step_down(self) -> tuple[Member, Member]:
        """Make the primary step down, a real election; the old primary and the new one."""
        old = self.await_primary()
        with old.connect() as client:
            try:
                client.admin.command(
                    "replSetStepDown",
                    FREEZE_SECONDS,
                    secondaryCatchUpPeriodSecs=FREEZE_SECONDS - 1,
                    force=False,
                )
            except AutoReconnect:
                return old, self.await_primary()  # some versions close connections when they step down
        return old, self.await_primary()

    def _initiate(self) -> None:
        with self.members[0].connect() as client:
            try:
                client.admin.command(
                    "replSetInitiate", initial_config([member.host for member in self.members])
                )
            except OperationFailure as error:
                if error.code != ALREADY_INITIALIZED:
                    raise

    def _each(self, do: Callable[[Member], object]) -> None:
        with ThreadPoolExecutor(len(self.members)) as pool:
            for done in [pool.submit(do, member) for member in self.members]:
                done.result()
