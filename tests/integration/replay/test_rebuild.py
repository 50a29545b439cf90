"""Memory rebuilt from its topics alone, beside live memory: equal, compacted or killed; differences are found."""

import asyncio
import signal
from datetime import UTC, datetime
from typing import Any

import pytest

from eden_memory.errors import EdenError
from eden_memory.names import Names
from eden_memory.replay.installation import installation
from eden_memory.replay.namespaces.dropping import drop
from eden_memory.replay.namespaces.namespace_store import KINDS, stage_of
from eden_memory.replay.namespaces.switching import original_of
from eden_memory.replay.rebuild.namespace_rebuild import filling
from eden_memory.schemas.documents import DeadLetter
from eden_memory.stages.controls import MongoControls, Pause
from tests.chaos.formation_rebuild import compacted
from tests.integration.replay.replay_kit import NAME, WRITER, ReplayKit, ignored, told
from tests.integration.stages.harness import until
from tests.integration.stages_on_servers import PARTITIONS, PREFIX

pytestmark = pytest.mark.servers
ANEW = f"{PREFIX}ns_{NAME}_"


async def rows(kit: ReplayKit, prefix: str) -> dict[str, list[dict[str, Any]]]:
    names = [kind.COLLECTION for kind in KINDS]
    return {name: await kit.database[prefix + name].find(sort=[("_id", 1)]).to_list() for name in names}


async def test_a_rebuild_equals_live_says_nothing_and_finds_what_differs(kit: ReplayKit) -> None:
    await kit.lived(40)
    ends, live = await kit.ends(), await rows(kit, PREFIX)
    assert all(live.values()), "there is something of everything"
    verdict, _ = await kit.rebuilt()
    assert verdict.equal, "\n".join(map(str, verdict.differences))
    assert await kit.ends() == ends, "nothing was published"
    assert await rows(kit, PREFIX) == live, "live was not touched"
    namespace = await kit.database["memory_namespaces"].find_one({"_id": NAME})
    assert namespace is not None
    assert (namespace["state"], namespace["unreadable"]) == ("caught_up", 0)
    assert namespace["counts"] == {name: len(found) for name, found in live.items()}

    gone, other, extra = [one["_id"] for one in live["facts"][:3]]
    await kit.database[ANEW + "facts"].delete_one({"_id": gone})
    await kit.database[ANEW + "facts"].update_one({"_id": other}, {"$set": {"content": "planted"}})
    await kit.database[PREFIX + "facts"].delete_one({"_id": extra})
    code, shown = await kit.told("rebuild", NAME, "--switch", "--show", "2")
    assert code == 1, shown
    assert "nothing was switched" in shown
    assert await kit.database["memory_live"].find_one({}) is None
    assert f"missing facts {gone}" in shown
    assert f"other facts {other}: content: live 'Text" in shown
    assert "rebuilt 'planted'" in shown
    assert "and 1 more" in shown
    assert "reflections: " in shown
    different = [one for one in shown.splitlines() if "DIFFERENT" in one]
    assert different == [f"facts: {len(live['facts']):,} compared, 3 DIFFERENT"]

    code, shown = await interrupted(
        kit, "documents differ from live", "rebuild", NAME, "--verify", "--follow"
    )
    assert code == 1, shown

    live = await rows(kit, PREFIX)
    code, shown = await kit.told("namespace", "drop", NAME, "--yes")
    assert code == 0, shown
    assert await rows(kit, PREFIX) == live
    assert not [one for one in await kit.database.list_collection_names() if one.startswith(ANEW)]
    code, shown = await kit.told("namespace", "drop", "live", "--yes")
    assert code == 1, shown
    code, shown = await kit.told("namespace", "list")
    assert (code, NAME in shown, "live" in shown) == (0, False, True)


async def test_a_rebuild_after_full_compaction_equals_live(kit: ReplayKit) -> None:
    await kit.lived(25, seed=5)  # of one scope, blobs and all, everything is forgotten
    before = await kit.ends()
    topics = kit.topics.read_by(WRITER)
    kept = await compacted(str(kit.settings.kafka.bootstrap), topics, PARTITIONS)
    real = sum(one.key != b"filler" for records in kept.values() for one in records)
    written = sum(end for tp, end in before.items() if tp.topic in topics)
    assert real <= written / 2, "every record was written twice"
    for _ in range(2):
        verdict, _ = await kit.rebuilt()
        assert verdict.equal, "\n".join(map(str, verdict.differences))
        for name in ("memory_namespaces", *(ANEW + kind.COLLECTION for kind in KINDS)):
            await kit.database.drop_collection(name)  # lost; its group is in Kafka still


async def test_a_dropped_namespace_takes_its_own_dead_letters_with_it(kit: ReplayKit) -> None:
    await kit.lived(10)
    await kit.rebuilt()
    now = datetime.now(UTC)
    async with installation(kit.settings) as at:
        for program in (WRITER, f"{WRITER}.{NAME}", "tailer"):
            fields = {"program": program, "stage": WRITER, "reason": "bug", "error": "Error", "at": now}
            await at.letters.put(
                [DeadLetter.model_validate({"_id": program, "topic": "memory.facts", **fields})]
            )
        await drop(at, NAME)
    rows = await kit.database[f"{PREFIX}{DeadLetter.COLLECTION}"].find(sort=[("_id", 1)]).to_list()
    assert [row["_id"] for row in rows] == [WRITER, "tailer"]


@pytest.mark.slow
async def test_a_rebuild_killed_in_the_middle_is_continued_by_the_same_command(kit: ReplayKit) -> None:
    await kit.lived(400, seed=3)
    scopes = await kit.database[PREFIX + "snapshots"].count_documents({})
    for part in (4, 2):
        process = kit.eden("rebuild", NAME)
        try:
            await until(lambda part=part: _has(kit, scopes // part), f"1/{part} of the scopes", 60)
            process.send_signal(signal.SIGSTOP)  # in its group still, however fast it is
            with pytest.raises(EdenError, match="is reading"):
                await _drop(kit)
        finally:
            process.kill()
            await asyncio.to_thread(process.communicate)
    code, shown = await kit.told("rebuild", NAME, "--verify")
    assert code == 0, shown
    assert shown.rstrip().endswith("equal to live")


@pytest.mark.slow
async def test_a_rebuild_that_is_interrupted_compares_nothing_and_goes_on_later(kit: ReplayKit) -> None:
    await kit.lived(20, seed=6)
    pauses = MongoControls(kit.database, Names(ANEW))
    await pauses.pause(Pause(stage_of(NAME), "hand", "so that it is at it still", datetime.now(UTC)))
    code, shown = await interrupted(kit, " offsets", "rebuild", NAME, "--verify")
    assert code == 130, shown
    assert f"stopped; `eden rebuild {NAME}` goes on" in shown
    assert "equal to live" not in shown
    await pauses.resume(stage_of(NAME))
    code, shown = await kit.told("rebuild", NAME, "--verify")
    assert code == 0, shown
    assert shown.rstrip().endswith("equal to live")


async def test_what_live_has_not_written_yet_is_waited_for(kit: ReplayKit) -> None:
    await kit.lived(8, seed=4)
    await kit.put(told(20, seed=5)[0])
    seen: list[tuple[int, int]] = []

    async def live_goes_on() -> None:
        found = [await kit.database[one + "snapshots"].count_documents({}) for one in (PREFIX, ANEW)]
        seen.append((found[0], found[1]))
        await kit.live()

    verdict, _ = await kit.rebuilt(live_goes_on)
    ((live, anew),) = seen
    assert live < anew, "the rebuilt memory was ahead"
    assert verdict.equal, "\n".join(map(str, verdict.differences))


async def test_no_progress_is_shown_after_the_verdict(kit: ReplayKit) -> None:
    await kit.lived(8, seed=8)
    shown: list[str] = []

    async def verdict() -> None:
        shown.append("verdict")

    def progress(_: object) -> None:
        shown.append("progress")

    async with installation(kit.settings) as at, filling(at, NAME, progress) as work:
        await work.run(verdict, follow=False)
    assert shown[0] == "progress"
    assert shown[-1] == "verdict"


async def test_a_reform_is_never_taken_for_a_rebuild(kit: ReplayKit) -> None:
    async with installation(kit.settings) as at:
        reform = original_of(at).model_copy(update={"id": "trial", "kind": "reform", "pipeline": "trial"})
        await at.namespaces.made(
            reform.model_copy(update={"prefix": f"{PREFIX}ns_trial_", "state": "filling"})
        )
        with pytest.raises(EdenError, match="trial is a reform"):
            async with filling(at, "trial", ignored):
                pass
        found = await at.namespaces.get("trial")
    assert found is not None
    assert found.state == "filling", "what is formed in part only must not become live"


async def interrupted(kit: ReplayKit, at: str, *words: str) -> tuple[int, str]:
    """The command until it has said something, and then Ctrl-C: its exit code, and what it printed."""
    process = kit.eden(*words)
    assert process.stdout is not None
    shown = ""
    while at not in shown and (line := await asyncio.to_thread(process.stdout.readline)):
        shown += line.decode()
    process.send_signal(signal.SIGINT)
    rest, _ = await asyncio.to_thread(process.communicate)
    return process.returncode, shown + rest.decode()


async def _has(kit: ReplayKit, least: int) -> bool:
    return await kit.database[ANEW + "snapshots"].count_documents({}) >= least


async def _drop(kit: ReplayKit) -> None:
    async with installation(kit.settings) as at:
        await drop(at, NAME)
