"""What others rely on by name stays: types, topics, settings, metrics, commands, tools, keys of paid answers."""

import json
from typing import Any

import pytest

from tests.contract.promises import FILE, promises

KEPT: dict[str, Any] = json.loads(FILE.read_text("utf-8"))


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return promises()


def test_the_kinds_of_promises_are_those_of_the_snapshot(now: dict[str, Any]) -> None:
    assert set(now) == set(KEPT)


@pytest.mark.parametrize("kind", KEPT)
def test_nothing_that_was_promised_has_changed(kind: str, now: dict[str, Any]) -> None:
    assert now[kind] == KEPT[kind], "`make promises` writes what is meant to change anew"
