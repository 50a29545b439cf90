"""The report on a namespace: nothing where a rebuild equals live, else every difference, by meaning."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from eden_memory.memory.memory_batch import fact_hash
from eden_memory.mongo.documents import vector_of
from eden_memory.replay.comparing.comparing import ReportRequest, compared
from eden_memory.replay.comparing.report import MemoryReport, TextCounts
from tests.integration.replay.replay_kit import NAME, ReplayKit
from tests.integration.stages_on_servers import PREFIX
from tests.unit.formation.dedup.dedup_kit import embedded

pytestmark = pytest.mark.servers
ANEW = f"{PREFIX}ns_{NAME}_"


async def report(kit: ReplayKit, **wanted: Any) -> MemoryReport:
    return await compared(kit.settings, kit.database, NAME, ReportRequest(**wanted))


async def tell(kit: ReplayKit, prefix: str, row: Mapping[str, Any], text: str) -> None:
    """A fact says this, and has its vector."""
    vector = vector_of(embedded(text).vector)
    said = {"content": text, "hash": fact_hash(text), "embedding": vector, "embedding_model": "test"}
    await kit.database[prefix + "facts"].replace_one({"_id": row["_id"]}, {**row, **said}, upsert=True)


@pytest.mark.slow
async def test_a_rebuild_differs_in_nothing_and_each_difference_is_found(kit: ReplayKit) -> None:
    await kit.lived(12, seed=7)
    verdict, _ = await kit.rebuilt()
    assert verdict.equal
    found = await report(kit)
    assert found.equal, found.json_object()
    snapshots = await kit.database[PREFIX + "snapshots"].count_documents({})
    assert found.scopes_compared == snapshots > 0
    assert found.counts["facts"].same == await kit.database[PREFIX + "facts"].count_documents(
        {"active": True}
    )
    assert found.counts["reflections"].same
    assert found.counts["blobs"].same

    facts = kit.database[PREFIX + "facts"]
    keys = await facts.distinct("scope_key", {"active": True})
    row: dict[str, Any] | None = await facts.find_one({"scope_key": keys[0], "active": True})
    assert row is not None
    of_scope = {"scope_key": keys[0], "_id": {"$ne": row["_id"]}}
    for prefix in (PREFIX, ANEW):
        await kit.database[prefix + "facts"].delete_many(of_scope)
        await kit.database[prefix + "reflections"].delete_many({"scope_key": keys[0]})
    await tell(kit, PREFIX, row, "ana lives in the old town of rome")
    await tell(kit, ANEW, row, "ana now lives in the old town of rome")
    for name, prefix, text in (("lost", PREFIX, "kiko is a parrot"), ("added", ANEW, "on mondays she swims")):
        await tell(kit, prefix, {**row, "_id": name}, text)
    reflection = await kit.database[ANEW + "reflections"].find_one({"scope_key": {"$ne": keys[0]}})
    blob = await kit.database[ANEW + "consolidated"].find_one({"_id": {"$ne": keys[0]}})
    assert reflection is not None
    assert blob is not None
    await kit.database[ANEW + "reflections"].delete_one({"_id": reflection["_id"]})
    change = {"$set": {"content": f"{blob['content']} [red]and new words[/red]"}}
    await kit.database[ANEW + "consolidated"].update_one({"_id": blob["_id"]}, change)

    found = await report(kit, most=None)
    assert found.counts["facts"] == TextCounts(same=found.counts["facts"].same, changed=1, added=1, lost=1)
    assert (found.counts["reflections"].lost, found.counts["blobs"].changed) == (1, 1)
    (scope,) = [one for one in found.scopes if one.scope_key == keys[0]]
    (changed,) = scope.facts.changed
    assert [one.text for one in changed.runs if one.said != "same"] == ["now"]
    assert scope.facts.matched_by == "test"
    assert [one.words for one in found.scopes] == sorted((one.words for one in found.scopes), reverse=True)
    assert (await report(kit, beginnings=(keys[0],))).scopes_different == 1
    await kit.database["memory_namespaces"].update_one({"_id": NAME}, {"$set": {"state": "filling"}})
    few = await report(kit, most=1)
    assert (found.complete, few.complete) == (True, False)
    assert (len(few.scopes), few.scopes_different, few.counts) == (1, found.scopes_different, found.counts)

    code, shown = await kit.told("namespace", "diff", NAME, "--exit-code")
    assert code == 1, shown
    assert "is not complete" in shown
    assert shown.startswith(
        f"{NAME} differs from original in {found.scopes_different} of {found.scopes_compared} scopes"
    )
    assert "ana {+now+} lives in the old town of rome" in shown
    assert "- fact  kiko is a parrot" in shown
    assert "+ fact  on mondays she swims" in shown
    assert "{+[red]and new words[/red]+}" in shown, "texts are no markup"
    code, shown = await kit.told("namespace", "diff", NAME, "--json", "--most", "0")
    assert (code, json.loads(shown)) == (0, {**found.json_object(), "complete": False})
