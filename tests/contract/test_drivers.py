"""Capabilities talk to MongoDB and Kafka in modules whose names say so."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "eden_memory"
DRIVERS = {"pymongo", "bson", "gridfs", "aiokafka", "confluent_kafka"}
CAPABILITIES = (
    "access",
    "context",
    "directory",
    "formation",
    "forgetting",
    "housekeeping",
    "memory",
    "search",
    "usage",
    "windows",
)


def imported(file: Path) -> set[str]:
    """The top-level packages that a module imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [
        node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level
    ]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_only_stores_feeds_and_topics_import_a_driver(capability: str) -> None:
    files = sorted((PACKAGE / capability).rglob("*.py"))
    assert files
    with_driver = [file for file in files if imported(file) & DRIVERS]
    assert [file.name for file in with_driver if not file.stem.endswith(("_store", "_feed", "_topics"))] == []
