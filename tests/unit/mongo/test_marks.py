"""What marks a document as deleted or excluded: numbers and flags count by their value."""

from typing import Any

import pytest
from bson import Decimal128, Int64

from eden_memory.mongo.document_fields import marked_if

MISSING: dict[str, Any] = {}


MARKS: list[tuple[str, list[Any], list[Any]]] = [
    ("f", [True, 1, "x", "1", "true", [1]], [False, 0, 0.0, "0", "false", " False ", "", None, [], {}]),
    ("f=0", [0, 0.0, Int64(0), Decimal128("0"), "0", False, "false"], [1, "", None, True, "00x"]),
    ("f=1", [1, 1.0, Decimal128("1"), True, "true", "1"], [0, 2, "", None, False, 10, "1e0"]),
    ("f=true", [True, 1, "TRUE"], [False, 0, None, 2]),
    ("f=false", [False, 0, "False", None, ""], [True, 1, "no"]),
    ("f=rm", ["rm", " RM "], ["", None, 0, "rms"]),
    ("f=-1.5", [-1.5, "-1.50"], [1.5, -1]),
    ("f=", ["", "  ", None, []], [0, False, "0", "x"]),
]
"""A mark, values that it marks, and others."""


@pytest.mark.parametrize(("mark", "documents", "others"), MARKS)
def test_marks_compare_numbers_and_flags_by_value(mark: str, documents: list[Any], others: list[Any]) -> None:
    marked = marked_if([mark])
    assert [marked({"f": value}) for value in documents] == [True] * len(documents)
    assert [marked({"f": value}) for value in others] == [False] * len(others)
    assert marked(MISSING) == (mark in ("f=", "f=false"))
