"""Each local server through what happens to it on people's machines: a message or a repair, never a hang."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]
from confluent_kafka.cimpl import NewTopic
from pymongo import MongoClient

from eden_memory.errors import EdenError
from eden_memory.local import server as ports
from eden_memory.local.local_kafka import LocalKafka
from eden_memory.local.mongo import LocalMongo
from eden_memory.local.server import ServerInFolder

pytestmark = pytest.mark.servers


class Kept:
    """A server together with something that was stored in it and must never be lost."""

    def __init__(self, server: ServerInFolder, check: Callable[[str], list[str]]) -> None:
        self.server = server
        self._check = check
        self._stored: list[str] = []

    def is_there(self) -> None:
        """Everything stored before is still there, and something new can be stored."""
        found = self._check(self.server.endpoint)
        assert found == self._stored
        self._stored.append(self._store(self.server.endpoint))

    def _store(self, endpoint: str) -> str:
        value = uuid4().hex
        store_in_mongodb(endpoint, value) if "mongodb" in endpoint else store_in_kafka(endpoint, value)
        return value


def store_in_mongodb(uri: str, value: str) -> None:
    with MongoClient[dict[str, Any]](uri, w="majority", serverSelectionTimeoutMS=10_000) as client:
        client["kept"]["values"].insert_one({"value": value})


def found_in_mongodb(uri: str) -> list[str]:
    with MongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=10_000) as client:
        return [document["value"] for document in client["kept"]["values"].find().sort("_id")]


def store_in_kafka(bootstrap: str, value: str) -> None:
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    with suppress(KafkaException):  # it exists from the second time on
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("kept", value.encode())
    assert producer.flush(20) == 0


def found_in_kafka(bootstrap: str) -> list[str]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "reads without a group"}
    consumer: Any = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    if "kept" not in consumer.list_topics(timeout=20).topics:
        consumer.close()
        return []
    consumer.assign([TopicPartition("kept", 0, 0)])
    found: list[str] = []
    while (record := consumer.poll(20)) is not None and record.error() is None:
        found.append(record.value().decode())
    consumer.close()
    return found


@pytest.fixture(scope="module", params=["mongodb", "kafka"])
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, jars_folder: Path
) -> Generator[Kept]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "mongodb":
        kept = Kept(LocalMongo(folder), found_in_mongodb)
    else:
        kept = Kept(LocalKafka(folder, jars_folder=jars_folder), found_in_kafka)
    kept.server.start()
    yield kept
    kept.server.stop()


@pytest.fixture(scope="module")
def kept_mongodb(tmp_path_factory: pytest.TempPathFactory) -> Generator[Kept]:
    """For what is the same code whichever server it is: the one that starts faster."""
    kept = Kept(LocalMongo(tmp_path_factory.mktemp("alone")), found_in_mongodb)
    kept.server.start()
    yield kept
    kept.server.stop()


@pytest.fixture
def mongodb(kept_mongodb: Kept) -> ServerInFolder:
    """MongoDB alone, running."""
    kept_mongodb.server.start()
    kept_mongodb.is_there()
    return kept_mongodb.server


@pytest.fixture
def server(kept: Kept) -> ServerInFolder:
    """The server, running, whatever the test before did to it."""
    kept.server.start()
    kept.is_there()
    return kept.server


def test_data_survives_a_stop_and_a_start(kept: Kept, server: ServerInFolder) -> None:
    endpoint = server.endpoint
    assert server.stop()
    assert not server.running
    assert not server.start().already
    assert server.endpoint == endpoint
    kept.is_there()


def test_data_survives_kill_9_and_the_stale_pid_is_repaired(kept: Kept, server: ServerInFolder) -> None:
    dead = server.pid
    server.kill()
    assert server.state.pid == dead
    started = server.start()
    assert any(f"pid {dead}" in note for note in started.notes)
    assert server.pid != dead
    kept.is_there()


def test_a_server_that_runs_already_is_kept(mongodb: ServerInFolder) -> None:
    pid = mongodb.pid
    assert mongodb.start().already
    assert mongodb.pid == pid


def test_a_stale_pid_that_now_belongs_to_another_program_is_left_alone(
    kept_mongodb: Kept, mongodb: ServerInFolder
) -> None:
    mongodb.kill()
    with subprocess.Popen(["sleep", "60"]) as other:
        state = mongodb.state.model_copy(update={"pid": other.pid})
        (mongodb.folder / "server.json").write_text(state.model_dump_json())
        assert not mongodb.stop()
        assert not mongodb.start().already
        mongodb.stop()
        assert other.poll() is None
        other.kill()
    mongodb.start()
    kept_mongodb.is_there()


def test_a_taken_port_moves_the_server_and_its_clients_find_it(kept: Kept, server: ServerInFolder) -> None:
    old = server.port
    server.stop()
    with Taken(old):
        started = server.start()
        assert any(f"port {old}" in note for note in started.notes)
        assert server.port != old
        kept.is_there()


def test_a_lost_state_file_does_not_start_a_second_server(
    kept_mongodb: Kept, mongodb: ServerInFolder
) -> None:
    pid = mongodb.pid
    (mongodb.folder / "server.json").write_text("{ half a fi")
    assert mongodb.pid == pid
    with pytest.raises(EdenError, match="its ports are unknown"):
        mongodb.start()
    assert mongodb.stop()
    mongodb.start()
    kept_mongodb.is_there()


def test_a_frozen_server_is_told_of_within_the_deadline_and_can_be_stopped(
    kept_mongodb: Kept, mongodb: ServerInFolder
) -> None:
    mongodb.freeze()
    with pytest.raises(EdenError, match="does not answer after 1 s"):
        mongodb.start(seconds=1.0)
    assert mongodb.running
    assert mongodb.stop()
    mongodb.start()
    kept_mongodb.is_there()


def test_a_thawed_server_goes_on(kept_mongodb: Kept, mongodb: ServerInFolder) -> None:
    mongodb.freeze()
    mongodb.thaw()
    assert mongodb.start().already
    kept_mongodb.is_there()


@pytest.mark.parametrize("server_type", [LocalMongo, LocalKafka])
def test_a_server_that_dies_at_its_start_is_told_with_the_end_of_its_log(
    server_type: type[ServerInFolder], tmp_path: Path, jars_folder: Path
) -> None:
    broken = (
        LocalMongo(tmp_path, options={"storage": {"engine": "nonsense"}})
        if server_type is LocalMongo
        else LocalKafka(tmp_path, jars_folder=jars_folder, properties={"log.retention.ms": "nonsense"})
    )
    if server_type is LocalKafka:
        (tmp_path / "formatted").touch()
        (tmp_path / "data").mkdir()
    with pytest.raises(EdenError, match=r"ended while it was starting(.|\n)*nonsense"):
        broken.start()
    assert not broken.running


@pytest.mark.slow
def test_a_half_formatted_or_removed_log_folder_is_formatted_anew(tmp_path: Path, jars_folder: Path) -> None:
    kafka = LocalKafka(tmp_path, jars_folder=jars_folder)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\ncluster.id=half")
    started = kafka.start()
    kafka.stop()
    assert any("half-formatted" in note for note in started.notes)
    shutil.rmtree(tmp_path / "data")
    assert not kafka.start().already
    kafka.stop()


@pytest.mark.slow
def test_a_log_folder_that_cannot_be_formatted_is_told_and_not_taken_for_formatted(
    tmp_path: Path, jars_folder: Path
) -> None:
    kafka = LocalKafka(tmp_path, jars_folder=jars_folder, properties={"node.id": "nonsense"})
    with pytest.raises(EdenError, match=r"could not be formatted(.|\n)*nonsense"):
        kafka.start()
    assert not (tmp_path / "formatted").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of 700 MB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=700m", "tmpfs", str(folder)]
    if os.getuid() != 0 or not shutil.which("mount") or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("server_type", [LocalMongo, LocalKafka])
def test_a_full_disk_is_told_and_the_data_is_there_once_there_is_room(
    server_type: type[ServerInFolder], small_disk: Path, jars_folder: Path
) -> None:
    mongodb = server_type is LocalMongo
    server = LocalMongo(small_disk) if mongodb else LocalKafka(small_disk, jars_folder=jars_folder)
    kept = Kept(server, found_in_mongodb if mongodb else found_in_kafka)
    server.start()
    kept.is_there()
    fill(small_disk / "full")
    server.kill()
    with pytest.raises(EdenError, match=r"only \d+ MB are free on the disk"):
        server.start()
    (small_disk / "full").unlink()
    server.start()
    kept.is_there()
    server.stop()


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "mongod.conf").mkdir()
    with pytest.raises(EdenError, match=r"MongoDB cannot be started in .*mongod\.conf"):
        LocalMongo(tmp_path).start()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EdenError, match="cannot use") as raised:
        LocalMongo(tmp_path / "file" / "mongodb").start()
    assert "EDEN_LOCAL_FOLDER" in raised.value.hint


def fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as full:
        while True:
            full.write(bytes(1_000_000))


class Taken:
    """Another program listens on the port for the block, and hangs up on whoever calls."""

    def __init__(self, port: int) -> None:
        listen = f"import socket; s = socket.create_server(('127.0.0.1', {port}))"
        self._command = f"{listen}\nwhile True: s.accept()[0].close()"
        self._port = port

    def __enter__(self) -> None:
        self._other = subprocess.Popen(["python3", "-c", self._command])
        until = time.monotonic() + 60
        while ports.is_free(self._port):
            assert time.monotonic() < until
            time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        self._other.kill()
        self._other.wait()
