"""A reform with a changed prompt after people changed facts themselves: applied again, listed, reported, switched."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, get_args

import pytest

from eden_memory.assembly import handlers
from eden_memory.assembly import tailer as source_tailing
from eden_memory.cli.replay.namespace import switched_to
from eden_memory.errors import EdenError
from eden_memory.replay.comparing.comparing import ReportRequest, compared
from eden_memory.replay.comparing.report import TextCounts
from eden_memory.replay.user_edits.user_edits import AppliedAdditions, EditOutcome
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask
from tests.integration.replay.reform_kit import LOUDLY, Priced, memory, placed, quiet, reform
from tests.integration.stages_on_servers import PREFIX
from tests.integration.system.conftest import shared_settings as shared_settings  # noqa: PLC0414
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, system, until
from tests.model_server.script import Asked, Said
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
ANA = Scope.of_user("s.helper", "s.ana")
TREE, HIVE, GATE, WALL = (
    "ana has planted the old tree at the west end",
    "ana keeps her five hives behind the long barn",
    "ana paints the small gate green in each may",
    "ana builds a wall of stone along the north road",
)
TEA, PIN = "ana drinks black tea", "Never call ana before nine."
OAK, NUTS = "ana has planted two oaks", "ana is allergic to nuts"


def anew(asked: Asked) -> Said:
    """The obedient model; asked to be loud, it words facts otherwise, and finds no gate."""
    said = obey(asked)
    if asked.kind == "facts" and LOUDLY in asked.system + asked.user and isinstance(said, dict):
        facts = [one for one in said["facts"] if "gate" not in one["text"]]  # pyright: ignore
        return {"facts": [{**one, "text": f"surely {one['text']}"} for one in facts]}  # pyright: ignore
    return said


@pytest.fixture(scope="module")
async def lived(shared_settings: Settings) -> AsyncGenerator[System]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handlers, "Prices", Priced)
        async with serving(anew) as models, system(fast(shared_settings, models), models) as running:
            session = await running.session("ana")
            texts = [f"fact user: {one}" for one in (TREE, HIVE, GATE, WALL)]
            await running.told(session, "ana", *texts, "note user: ana wants short answers")
            await quiet(running)
            yield running


async def commanded(at: System, action: str, before: str | None, after: str | None) -> None:
    """As the API writes what a person asks, once it is carried out."""
    facts = at.memory("facts")
    row = None if before is None else await facts.find_one({"content": before, "active": True})
    command = {
        "kind": "fact_command",
        "scope": ANA.model_dump(),
        "action": action,
        "fact_id": None if row is None else row["_id"],
        "text": after,
        "by": "person",
        "asked_by": "ann",
    }
    await ask(at.source[source_tailing.inbox_name(at.settings)], command)
    wanted = {"content": before, "active": False} if after is None else {"content": after, "active": True}

    async def done() -> bool:
        return await facts.find_one(wanted) is not None

    await until(done, f"{action} carried out")


async def marked(of: Any, content: str) -> bool:
    return await of.find_one({"content": content, "private": True}) is not None


async def active(at: System, settings: Settings) -> set[str]:
    rows = (await memory(at.database, settings))["facts"].values()
    return {row["content"] for row in rows if row["active"]}


@pytest.mark.slow
async def test_people_find_again_what_they_changed(lived: System, tmp_path: Path) -> None:
    await commanded(lived, "edit", TREE, OAK)
    await commanded(lived, "retire", HIVE, None)
    await commanded(lived, "retire", GATE, None)
    await commanded(lived, "add", None, NUTS)
    await lived.service.add(TEA, user="ana", verbatim=True, kind="reflection")
    await lived.service.pin(ANA.key, PIN, user="ana", reason="she told us")
    (formed,) = (await lived.service.list_reflections(user="ana", scopes=["user"])).items
    await lived.service.edit(formed.reflection_id, "ana wants long answers", user="ana")
    await lived.service.mark_private(formed.reflection_id, user="ana")
    (wall,) = [row for row in (await lived.service.list_facts(user="ana")).items if row.content == WALL]
    await lived.service.mark_private(wall.fact_id, user="ana")
    for name, content in (("facts", WALL), ("reflections", "ana wants long answers")):
        found = lived.memory(name)
        await until(lambda of=found, text=content: marked(of, text), f"{content} is private")
    session = await lived.session("ana")
    await lived.shows(session, "ana", TEA, PIN, "long answers")
    streams = tmp_path / "streams.json"
    row = {"_id": "s.helper/user", "agent_id": "s.helper", "scope": "user", "extraction_guidance": LOUDLY}
    streams.write_text(json.dumps([row]))

    ended, said = await reform(lived.settings, "anew", streams=streams)
    assert ended == "formed", said
    assert "3 applied again, 0 there already, 1 match nothing, 0 were overtaken" in said
    assert f"unmatched: retire {GATE} (person, " in said
    assert (
        "2 applied again, 0 there already; 2 marked as private; "
        "1 edits of formed reflections and blobs are not applied"
    ) in said
    settings = placed(lived.settings, "anew")
    assert await active(lived, settings) == {OAK, NUTS, f"surely {WALL}"}
    snapshot = (await memory(lived.database, settings))["snapshots"][ANA.key]
    assert (snapshot["blob"], snapshot["pins"]) == (PIN, [PIN])
    assert [one["content"] for one in snapshot["buffer"]] == ["ana wants short answers", TEA]
    anew_there = await memory(lived.database, settings)
    private = [
        row["content"]
        for name in ("facts", "reflections")
        for row in anew_there[name].values()
        if row["private"]
    ]
    assert private == [f"surely {WALL}", "ana wants short answers"]

    report = await compared(lived.settings, lived.database, "anew", ReportRequest())
    assert (report.live, report.shadow) == ("original", "anew")
    assert report.counts["facts"] == TextCounts(same=2, changed=1)
    (scope,) = [one for one in report.scopes if one.scope_key == ANA.key]
    assert [(one.live.text, one.shadow.text) for one in scope.facts.changed] == [(WALL, f"surely {WALL}")]
    assert report.own is not None
    own = report.own
    assert [len(own.of(outcome)) for outcome in get_args(EditOutcome)] == [0, 3, 1, 0]
    assert own.additions == AppliedAdditions(applied=0, already=2, not_applied=1)
    live, shadow = report.spent["fact-extraction"]
    assert live.counts["calls"] == shadow.counts["calls"] == 1
    assert shadow.cost_usd > 0

    with pytest.raises(EdenError, match="1 retirements and private marks"):
        await reform(lived.settings, "anew", switch=True)
    with pytest.raises(EdenError, match="1 retirements and private marks"):
        await switched_to(lived.settings, "anew", as_it_is=True)
    await commanded(lived, "edit", WALL, "ana builds a hedge")
    ended, said = await reform(lived.settings, "anew", switch=True, accept=True)
    assert ended == "switched", said
    assert "1 applied again, 3 there already" in said
    assert "0 applied again, 2 there already" in said
    assert await active(lived, settings) == {OAK, NUTS, "ana builds a hedge"}
    report = await compared(lived.settings, lived.database, "anew", ReportRequest(own=False))
    assert (report.live, report.counts["facts"]) == ("original", TextCounts(same=3)), "what was live before"
    assert await lived.database[f"{PREFIX}facts"].count_documents({"active": True}) == 3
