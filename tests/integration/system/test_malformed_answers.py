"""From chat writes to facts, though the model's answers are not quite what was asked for: each is paid for once."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from eden_memory.mongo.ids import encode_id
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System
from tests.model_server.script import Asked, Said, judged

pytestmark = pytest.mark.servers

FIRST, SECOND = "The berth is 4.", "The boat is red."
Items = list[dict[str, Any]]


def whole(items: Items) -> str:
    return json.dumps({"facts": items})


MALFORMED: dict[str, tuple[Callable[[Items], str], list[str]]] = {
    "path": (lambda items: whole(items).replace("berth is 4", r"log is in C:\Users\q"),
             [r"The log is in C:\Users\q.", SECOND]),
    "python": (lambda items: repr({"facts": items}), [FIRST, SECOND]),
    "unclosed": (lambda items: whole(items)[:-2] + ', {"text": "The anch', [FIRST, SECOND]),
}  # fmt: skip


@pytest.mark.parametrize("how", MALFORMED)
async def test_what_is_readable_becomes_facts_with_one_paid_call(shared: System, how: str) -> None:
    spoil, wanted = MALFORMED[how]

    def script(asked: Asked) -> Said:
        found = obey(asked)
        if asked.kind != "facts" or not isinstance(found, dict):
            return found
        return spoil(judged(found)["facts"])

    shared.models.script = script
    before = shared.models.tally.calls["facts"]
    try:
        session = await shared.session(how)
        names = await shared.write(session, how, f"fact user: {FIRST}", f"fact user: {SECOND}")
        await shared.form(session)
        await shared.formed(names, len(wanted))
    finally:
        shared.models.script = obey
    assert await shared.facts(how) == sorted(wanted)
    assert shared.models.tally.calls["facts"] == before + 1
    assert await shared.dead() == []
    sources = [row["message_ids"] async for row in shared.memory("facts").find({"user_id": encode_id(how)})]
    assert sorted(sources) == sorted([encode_id(name)] for name in names)
