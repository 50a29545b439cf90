"""Kafka's jars: only the locked ones count, and a broken download never does."""

import gc
import hashlib
import warnings
from collections.abc import Generator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from eden_memory.errors import EdenError
from eden_memory.local import local_kafka
from eden_memory.local.local_kafka import Jar

CONTENT = b"a jar" * 1_000


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, says nothing, and keeps what it was asked for."""

    asked_for: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked_for.append(self.path)
        super().do_GET()

    def log_message(self, *args: object) -> None: ...  # pyright: ignore


@pytest.fixture
def repository(tmp_path: Path) -> Generator[str]:
    """A Maven repository on loopback, over the folder `published`."""
    (tmp_path / "published").mkdir()
    handler = partial(Quiet, directory=tmp_path / "published")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
    with warnings.catch_warnings():
        # Downloads that are ended midway leave sockets to the collector, on this server's side too.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def jar(tmp_path: Path, repository: str) -> Jar:
    """A published jar."""
    file = tmp_path / "published/org/example/thing/1.0/thing-1.0.jar"
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    return Jar("org.example", "thing", "1.0", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


def test_a_missing_jar_is_fetched_and_nothing_else_is_left_in_the_folder(
    tmp_path: Path, repository: str, jar: Jar
) -> None:
    folder = local_kafka.ensure(tmp_path / "jars", [jar], repository)
    assert (folder / "thing-1.0.jar").read_bytes() == CONTENT
    assert {file.name for file in folder.iterdir()} == {".lock", "thing-1.0.jar"}


def test_a_jar_that_is_there_needs_no_repository(tmp_path: Path, repository: str, jar: Jar) -> None:
    local_kafka.ensure(tmp_path / "jars", [jar], repository)
    local_kafka.ensure(tmp_path / "jars", [jar], "http://127.0.0.1:1")


@pytest.mark.parametrize("damaged", [CONTENT[:-1], CONTENT[:-1] + b"X", b""])
def test_a_damaged_jar_is_fetched_again(tmp_path: Path, repository: str, jar: Jar, damaged: bytes) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars/thing-1.0.jar").write_bytes(damaged)
    folder = local_kafka.ensure(tmp_path / "jars", [jar], repository)
    assert (folder / "thing-1.0.jar").read_bytes() == CONTENT


def test_a_jar_with_another_checksum_is_removed_and_named(tmp_path: Path, repository: str, jar: Jar) -> None:
    locked = Jar(jar.group, jar.artifact, jar.version, "0" * 64, jar.size)
    with pytest.raises(EdenError, match=r"thing-1\.0\.jar has sha256 .* locked; the file was removed"):
        local_kafka.ensure(tmp_path / "jars", [locked], repository)
    assert not list((tmp_path / "jars").rglob("*.jar"))


def test_a_jar_that_cannot_be_fetched_is_named_with_what_to_do(
    tmp_path: Path, repository: str, jar: Jar
) -> None:
    unpublished = Jar("org.example", "other", "2.0", jar.sha256, jar.size)
    with pytest.raises(EdenError, match=r"other-2\.0\.jar could not be fetched") as raised:
        local_kafka.ensure(tmp_path / "jars", [unpublished], repository)
    assert "EDEN_KAFKA_BOOTSTRAP" in raised.value.hint


def test_the_first_failure_ends_the_other_downloads(tmp_path: Path, repository: str, jar: Jar) -> None:
    asked = [Jar("org.example", f"absent{number}", "1", jar.sha256, jar.size) for number in range(200)]
    with pytest.raises(EdenError, match="could not be fetched"):
        local_kafka.ensure(tmp_path / "jars", asked, repository)
    paths = {path for path in Quiet.asked_for if "absent" in path}
    assert 0 < len(paths) < len(asked)


def test_the_lock_file_names_every_jar_once_with_a_checksum() -> None:
    locked = local_kafka.locked()
    assert len({jar.file_name for jar in locked}) == len(locked)
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in locked)
    assert {"kafka_2.13-4.3.1.jar", "kafka-clients-4.3.1.jar"} <= {jar.file_name for jar in locked}


def test_where_jars_come_from_is_the_resolvers_own_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[object] = []

    class Seen(local_kafka.MavenContext):
        def __init__(self, *arguments: object, **options: object) -> None:
            given.append(options["remote_repos"])
            raise OSError("no network in tests")

    monkeypatch.setattr(local_kafka, "MavenContext", Seen)
    with pytest.raises(EdenError, match="could not be fetched"):
        local_kafka.ensure(tmp_path / "jars", [Jar("org.example", "thing", "1.0", "0" * 64, 1)])
    assert set(given) == {None}
    assert "http" not in Path(local_kafka.__file__).read_text()
