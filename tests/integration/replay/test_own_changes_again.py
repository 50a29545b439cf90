"""People's own changes in live memory, applied again to a shadow that was formed in other words: on real servers."""

import pytest

from eden_memory.memory.memory_batch import fact_id
from eden_memory.replay.comparing.comparing import ComparedMemory, ReportRequest, compare
from eden_memory.replay.comparing.report import MemoryReport
from eden_memory.replay.user_edits.reapplying import Commands, reapply_edits
from eden_memory.replay.user_edits.user_edits import AppliedEdits, SettledEdit
from eden_memory.settings import Settings
from tests.integration.replay.two_memories import LIVE, TRIAL, TwoMemories
from tests.integration.stages_on_servers import on_servers
from tests.unit.formation.dedup.dedup_kit import ANA, ScriptedModel, WordEmbedder, command, proposal

pytestmark = pytest.mark.servers
TOLD = (
    "ana lives in rome",
    "ana plays the cello on sundays",
    "ana has a parrot called kiko",
    "ana works at the harbour",
    "ana was born in 1990",
)
IN_OTHER_WORDS = (
    "in rome lives ana",
    "on sundays ana plays the cello",
    "at the harbour ana works",
    "green tea ana drinks",
    "in 1991 ana was born",
)
OSLO, NUTS, TEA = "ana lives in oslo", "ana is allergic to nuts", "ana drinks green tea"


def named(number: int) -> str:
    """The fact of a text of TOLD."""
    return fact_id("s.told:1", ANA.key, number)


async def applied(at: TwoMemories, *, publish: bool = True) -> AppliedEdits:
    topics = at.topics_of(TRIAL)
    publisher = at.publisher if publish else None
    commands = Commands(publisher, topics.topic_of)
    return AppliedEdits(tuple(await reapply_edits(at.side(LIVE), at.side(TRIAL), WordEmbedder(), commands)))


def texts(settled: list[SettledEdit]) -> set[tuple[str, str | None]]:
    return {(one.change.kind, one.change.after or one.change.before[0]) for one in settled}


async def test_what_people_changed_is_applied_to_what_says_the_same_and_the_rest_is_listed(
    settings: Settings,
) -> None:
    model = ScriptedModel()
    async with on_servers(TwoMemories, settings) as at:
        await at.prepared()
        async with at.forming(LIVE, model), at.forming(TRIAL, model):
            await at.publish(LIVE, [proposal("told", *TOLD)])
            await at.until_active(LIVE, *TOLD)
            await at.publish(
                LIVE,
                [
                    command("oslo", "edit", fact_id=named(1), text=OSLO, asked_by="ann"),
                    command("cello", "retire", fact_id=named(2)),
                    command("kiko", "retire", fact_id=named(3), by="mirror"),
                    command("born", "retire", fact_id=named(5)),
                    command("nuts", "add", text=NUTS, by="import"),
                    command("tea", "add", text=TEA),
                ],
            )
            await at.until_active(LIVE, OSLO, TOLD[3], NUTS, TEA)

            await at.publish(TRIAL, [proposal("anew", *IN_OTHER_WORDS)])
            before = await at.until_active(TRIAL, *IN_OTHER_WORDS)
            asked = len(model.asked)

            planned = await applied(at, publish=False)
            assert texts(planned.of("applied")) == {("edit", OSLO), ("retire", TOLD[1]), ("add", NUTS)}
            assert texts(planned.of("already")) == {("add", TEA)}
            assert texts(planned.of("unmatched")) == {("retire", TOLD[2]), ("retire", TOLD[4])}, (
                "1990 is not 1991"
            )
            nearest = {one.change.before[0]: one.text for one in planned.of("unmatched")}
            assert nearest[TOLD[4]] == "in 1991 ana was born"

            assert await applied(at) == planned
            left = (*IN_OTHER_WORDS[2:], OSLO, NUTS)
            after = await at.until_active(TRIAL, *left)
            assert after[OSLO]["_id"] == before["in rome lives ana"]["_id"], "the same fact, edited"
            assert (after[OSLO]["decision"], after[OSLO]["command"]["by"]) == ("EDIT", "person")
            assert (after[OSLO]["command"]["asked_by"], after[NUTS]["command"]["by"]) == ("ann", "import")

            again = await applied(at)
            assert not again.of("applied")
            assert texts(again.of("already")) == texts([*planned.of("applied"), *planned.of("already")])
            assert again.of("unmatched") == planned.of("unmatched")

            await at.publish(
                LIVE, [command("riga", "edit", fact_id=named(1), text="ana lives in riga", minutes=5)]
            )
            await at.until_active(LIVE, "ana lives in riga", TOLD[3], NUTS, TEA)
            assert texts((await applied(at)).of("applied")) == {("edit", "ana lives in riga")}
            await at.until_active(TRIAL, *IN_OTHER_WORDS[2:], "ana lives in riga", NUTS)
        assert len(model.asked) == asked, "no model was asked"

        report = MemoryReport(live="original", shadow="trial", most=None)
        live, trial = (ComparedMemory(at.database, at.names(name)) for name in (LIVE, TRIAL))
        await compare(report, live, trial, ReportRequest(most=None))
        (scope,) = report.scopes
        assert (report.counts["facts"].same, report.counts["facts"].changed) == (2, 2)
        assert [one.text for one in scope.facts.added] == ["in 1991 ana was born"]
        assert report.matched_by == {"test"}
