"""The servers that tests talk to: given ones, containers when asked for, else private local ones.

`python -m tests.servers` fetches Kafka and makes its starts quick, as the first test that needs it would.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from eden_memory.local.local_kafka import LocalKafka
from eden_memory.local.mongo import LocalMongo


@dataclass(frozen=True, slots=True)
class TestServers:
    """Where they are."""

    __test__ = False

    mongodb_uri: str
    kafka_bootstrap: str


@dataclass(frozen=True, slots=True)
class Namespace:
    """The names of one test: whatever starts with them is the test's own."""

    name: str

    @property
    def database(self) -> str:
        """Database, and the start of the names of further ones."""
        return self.name

    @property
    def topic_prefix(self) -> str:
        """Start of topic names."""
        return f"{self.name}."

    @property
    def group_prefix(self) -> str:
        """Start of consumer groups' names."""
        return f"{self.name}."


@contextmanager
def running_servers(given: Mapping[str, str], folder: Path, jars: Path) -> Generator[TestServers]:
    """Both servers for the block; those started here are stopped after it."""
    in_containers = os.environ.get("EDEN_TEST_CONTAINERS") == "1" and _docker_runs()
    with ExitStack() as stack:
        uri, bootstrap = given.get("EDEN_MONGODB_URI"), given.get("EDEN_KAFKA_BOOTSTRAP")
        mongodb = _mongodb_container if in_containers else _mongodb_here
        kafka = _kafka_container if in_containers else _kafka_here
        yield TestServers(
            mongodb_uri=uri or stack.enter_context(mongodb(folder / "mongodb")),
            kafka_bootstrap=bootstrap or stack.enter_context(kafka(folder / "kafka", jars)),
        )


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Poll until the condition holds; an AssertionError that names it when the seconds are over."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def _docker_runs() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    return subprocess.run([docker, "info"], capture_output=True, timeout=30, check=False).returncode == 0


@contextmanager
def _mongodb_here(folder: Path) -> Generator[str]:
    parameters = {"ttlMonitorSleepSecs": 1}  # what expires goes at once, not after a minute
    server = LocalMongo(folder, options={"setParameter": parameters})
    server.start()
    try:
        yield server.endpoint
    finally:
        server.kill()  # nobody reads its data any more, and a clean stop may take half a minute


@contextmanager
def _kafka_here(folder: Path, jars: Path) -> Generator[str]:
    server = LocalKafka(folder, jars_folder=jars)
    server.start()
    try:
        yield server.endpoint
    finally:
        server.kill()  # nobody reads its data any more, and a clean stop may take half a minute


@contextmanager
def _mongodb_container(folder: Path) -> Generator[str]:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import HealthcheckWaitStrategy

    del folder
    image = DockerContainer("mongodb/mongodb-atlas-local:8").with_exposed_ports(27017)
    with image.waiting_for(HealthcheckWaitStrategy()) as container:
        yield f"mongodb://127.0.0.1:{container.get_exposed_port(27017)}/?directConnection=true"


@contextmanager
def _kafka_container(folder: Path, jars: Path) -> Generator[str]:
    from testcontainers.community.kafka import KafkaContainer

    del folder, jars
    with KafkaContainer().with_kraft() as container:
        yield container.get_bootstrap_server()


if __name__ == "__main__" and not os.environ.get("EDEN_KAFKA_BOOTSTRAP"):
    with TemporaryDirectory() as made, _kafka_here(Path(made), Path(".eden/jars")):
        pass
