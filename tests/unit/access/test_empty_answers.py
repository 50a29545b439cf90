"""The reason of an empty answer harms no answer."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from eden_memory.access.admission_store import LOCAL
from eden_memory.operations import empty_because as explaining
from eden_memory.operations.empty_because import EmptyBecause, empty_because
from eden_memory.operations.parameters import ContextText
from eden_memory.operations.table import BY_NAME


def test_a_header_holds_printable_ascii_and_is_short() -> None:
    header = EmptyBecause("unknown_user", "there is no user a\r\nb\x00ü " + "x" * 9_000, "").header
    assert header.startswith("unknown_user; there is no user a??b?? xxx")
    assert len(header) == 500
    assert EmptyBecause("unknown_user", "there is no user \n ", "").header.endswith(" user ?")


async def not_allowed() -> None:
    raise OperationFailure("not authorized on chat", 13)


async def endless() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("current", [not_allowed, endless])
async def test_an_answer_does_not_fail_because_its_reason_cannot_be_found(
    current: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explaining, "SECONDS", 0.01)
    service = SimpleNamespace(memory=SimpleNamespace(current=current))
    call: Any = SimpleNamespace(caller=LOCAL, service=service)
    assert await empty_because(call, BY_NAME["context"], ContextText(context="")) is None
