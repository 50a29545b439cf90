"""A replica set of three: a primary steps down, or dies, and writes go on."""

from collections.abc import Generator
from typing import Any

import pytest
from pymongo import MongoClient

from tests.replica_set import LocalReplicaSet

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def replica_set(tmp_path_factory: pytest.TempPathFactory) -> Generator[LocalReplicaSet]:
    replica_set = LocalReplicaSet(tmp_path_factory.mktemp("replica_set"))
    replica_set.start()
    yield replica_set
    replica_set.stop()


@pytest.fixture
def client(replica_set: LocalReplicaSet) -> Generator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](replica_set.endpoint, w="majority") as client:
        yield client


@pytest.mark.slow
def test_a_step_down_elects_another_primary(
    replica_set: LocalReplicaSet, client: MongoClient[dict[str, Any]]
) -> None:
    client["kept"]["before"].insert_one({"_id": 1})
    old, new = replica_set.step_down()
    assert old is not new
    assert new.is_primary
    assert not old.is_primary
    client["kept"]["after"].insert_one({"_id": 1})
    assert client["kept"]["before"].count_documents({}) == 1


def test_a_killed_primary_is_replaced_and_comes_back_as_a_secondary(
    replica_set: LocalReplicaSet, client: MongoClient[dict[str, Any]]
) -> None:
    dead = replica_set.await_primary()
    client["kept"]["killed"].insert_one({"_id": 1})
    dead.kill()
    assert replica_set.await_primary() is not dead
    client["kept"]["killed"].insert_one({"_id": 2})
    replica_set.start()
    assert dead.running
    assert not dead.is_primary
    assert client["kept"]["killed"].count_documents({}) == 2
