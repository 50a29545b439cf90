"""Junk in memory, from chat writes to the audit at the doors; a kind is retired in bulk, and active again after."""

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eden_memory.access.admission_store import Caller, Refused
from eden_memory.errors import Conflict
from eden_memory.operations.admitted_call import AdmittedCall
from eden_memory.operations.audit_calls import Retirable
from eden_memory.operations.reach import SessionReach
from eden_memory.operations.table import BY_NAME
from tests.integration.system.commands import eden
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, until
from tests.model_server.script import Asked, Said

pytestmark = pytest.mark.servers
LAST_WEEK = datetime.now(UTC).replace(microsecond=0) - timedelta(days=7)
TORTOISE = "Zoe keeps a grey tortoise called Plato downstairs"
REPEATED = "Zoe keeps a grey tortoise called Plato"
SHED = "The boat shed of Zoe measures 14 metres inside"
NEWER_SHED = "The boat shed of Zoe measures 19 metres inside"
INVENTED = "Zoe is the owner of vines by Bordeaux"
QUOTED = "Zoe practises archery before breakfast"
RECITED = "Zoe keeps a grey tortoise named Plato downstairs"
NOBODY = "She prefers rye bread with caraway"
STATED = {"Good morning": INVENTED, "And what now": QUOTED, "As I remember": RECITED}
"""What the model states from messages that begin so."""


def carelessly(asked: Asked) -> Said:
    """As told, and what no message says."""
    said = obey(asked)
    if asked.kind == "facts" and isinstance(said, dict):
        said["facts"] += [
            {"text": text, "scope": "user", "messages": [number]}
            for number, message in asked.messages.items()
            for begins, text in STATED.items()
            if begins in message
        ]
    return said


@pytest.fixture
async def littered(shared: System) -> AsyncGenerator[System]:
    """Memory of Zoe with one fact of each kind that can be junk, and one of Yan with none."""
    shared.models.script = carelessly
    try:
        for number, texts in enumerate(
            (
                (f"fact user: {TORTOISE}", f"fact user: {SHED}", "fact user: Zoe rows on the lake at dawn"),
                (f"fact user: {REPEATED}", f"fact user: {NEWER_SHED}"),
                (f"fact user: {NOBODY}", "Good morning, is the tea as hot as that of Lena?"),
                (f"And what now? <MemoryContext>\n  {QUOTED}.\n</MemoryContext>",),
            )
        ):
            session = await shared.session("zoe")
            names = await shared.write(session, "zoe", *texts, at=LAST_WEEK + timedelta(days=number))
            await shared.form(session)
            await shared.formed(names, len(texts))
        session = await shared.session("zoe")
        recited: dict[str, Any] = {
            "_id": "recited",
            "session_id": session,
            "role": "assistant",
            "content": f"As I remember: {RECITED}.",
            "created_at": LAST_WEEK + timedelta(days=5),
        }
        await shared.source["messages"].insert_one(recited)
        await shared.form(session)
        await shared.formed(["recited"], 1)
        await shared.told(await shared.session("yan"), "yan", "fact user: Yan repairs accordions")
        yield shared
    finally:
        shared.models.script = obey


async def test_junk_is_counted_shown_retired_and_active_again(littered: System) -> None:
    found = await littered.service.audit(user="zoe")
    examples = {(junk.kind, one.content, one.because) for junk in found.kinds for one in junk.examples}
    assert examples == {
        ("contradicted", SHED, NEWER_SHED),
        ("near_duplicate", REPEATED, TORTOISE),
        ("quote", QUOTED, None),
        ("quote", RECITED, TORTOISE),
        ("unsupported", INVENTED, None),
        ("nobody", NOBODY, None),
    }
    assert (found.facts, found.whole) == (9, True)
    whole = await littered.service.audit()
    assert whole.facts == 10
    assert [junk.count for junk in whole.kinds] == [junk.count for junk in found.kinds]

    of_zoe = ("--user", "zoe", "--agent", AGENT)
    before = await littered.facts("zoe")
    kinds: dict[Retirable, set[str]] = {"near_duplicate": {REPEATED}, "unsupported": {INVENTED}}
    for kind, texts in kinds.items():
        shown = json.loads(await eden(littered.settings, "audit", *of_zoe, "--json"))
        (preview,) = (junk["preview"] for junk in shown["kinds"] if junk["kind"] == kind)
        with pytest.raises(Conflict, match="than were shown"):
            await littered.service.audit(user="zoe", retire=kind, preview="another")
        asked = ("--retire", kind, "--preview", preview, "--json")
        retired = json.loads(await eden(littered.settings, "audit", *of_zoe, *asked))
        assert retired["retired"] == 1

        async def left(texts: set[str] = texts) -> bool:
            return {*before} - {*await littered.facts("zoe")} == texts

        await until(left, f"{kind} is retired")
        said = await eden(
            littered.settings, "forget", "--caused-by", "import", retired["undo"], "--yes", "--by", "Mia"
        )
        assert "Undone" in said
        assert await littered.facts("zoe") == before


async def test_whoever_does_not_administer_everything_is_refused(shared: System) -> None:
    caller = Caller("bound", agents=None, users=frozenset({"s.zoe"}), rights=frozenset({"read", "write"}))
    call = AdmittedCall(caller, shared.service, SessionReach(shared.service.memory), user="zoe")
    with pytest.raises(Refused, match="concerns all agents"):
        await BY_NAME["audit"].asked(call, {})
