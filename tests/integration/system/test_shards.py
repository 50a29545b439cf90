"""Shards from their making at a door to what others' contexts show, on a running system: chat writes only."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from eden_memory.formation import prompts
from eden_memory.settings import Settings
from tests.integration.system.commands import eden, kill, start
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.script import Asked, Fault, Said
from tests.model_server.serving import Serving, serving
from tests.tried_models import passed

pytestmark = pytest.mark.servers
CABIN, HOLDS, NEEDS = (
    "The price of a cabin is 400 euros.",
    "Quotes hold for 30 days.",
    "Prices above 900 euros need approval.",
)
GUIDANCE = "Prices and quotes."
PER_PRODUCT = "One line for each product."


class Listening:
    """The obedient model, and what it was asked; a reflection of the shard only when it is asked for once more."""

    def __init__(self, *, hesitates: bool = False, gives_in: bool = True) -> None:
        self.asked: list[Asked] = []
        self.hesitates, self.gives_in, self.hangs = hesitates, gives_in, False

    def __call__(self, asked: Asked) -> Said:
        self.asked.append(asked)
        said = obey(asked)
        if not (self.hesitates and asked.kind == "reflections" and isinstance(said, dict)):
            return said
        again = len(asked.turns) > 1
        if again and self.hangs:
            return Fault("hang")
        of_shard = again and self.gives_in
        return {"reflections": [one for one in said["reflections"] if of_shard or one["scope"] == "session"]}

    def of(self, kind: str) -> list[Asked]:
        """What was asked of one kind."""
        return [asked for asked in self.asked if asked.kind == kind]


@asynccontextmanager
async def listening(settings: Settings, model: Listening, *, run: bool = True) -> AsyncGenerator[System]:
    """A system of its own, in which agents and shards say themselves whether they learn."""
    async with serving(model) as models, system(by_agents(settings, models), models, run=run) as running:
        yield running


def by_agents(settings: Settings, models: Serving) -> Settings:
    """Nothing that users say reaches an agent that does not say so."""
    return fast(settings, models, memory={"sharing": "agents"})


async def test_a_shard_of_an_agent_that_learns_nothing_collects_from_users_and_shows_it_to_others(
    settings: Settings,
) -> None:
    model = Listening()
    async with listening(settings, model) as running:
        await eden(
            running.settings, "stream", "set", AGENT, "shard:closed", f"extraction_guidance={GUIDANCE}"
        )
        await running.service.set_stream(
            "shard:pricing",
            sharing="team",
            extraction_guidance=GUIDANCE,
            consolidation_guidance=PER_PRODUCT,
            threshold=2,
            word_limit=50,
            extraction_model="shard-model",
            consolidation_model="blob-model",
        )
        adas, bobs = await running.session("ada"), await running.session("bob")
        await running.told(
            adas,
            "ada",
            f"fact shard:pricing: {CABIN}",
            f"note shard:pricing: {HOLDS}",
            f"note shard:pricing: {NEEDS}",
            "fact shard:pricing: Ada owes 300 euros.",
            "note session: Prices were discussed.",
        )
        xml = await running.shows(
            bobs,
            "bob",
            '<MemoryShard name="pricing">',
            "<Consolidated>",
            HOLDS,
            NEEDS,
            f"- [shard pricing] {CABIN}",
        )
        assert "Ada" not in xml
        (found,) = await running.service.search_facts("the price of a cabin", user="bob", scopes=["shard"])
        assert (found.content, found.scope.shard) == (CABIN, "pricing")
        assert await running.contents("facts", scope="user") == ["Ada owes 300 euros."]
        (about_facts,), (about_reflections,) = model.of("facts"), model.of("reflections")
        (about_blob,) = (asked for asked in model.of("consolidation") if PER_PRODUCT in asked.system)
        models = about_facts.model, about_reflections.model, about_blob.model
        assert models == ("shard-model", "shard-model", "blob-model")
        for asked in (about_facts, about_reflections):
            assert f"{GUIDANCE}\n" in f"{asked.system}\n"
            assert "shard:closed" not in asked.system
        assert "pricing" in await eden(running.settings, "stream", "list", "--agent", AGENT)
        await eden(running.settings, "stream", "off", AGENT, "shard:pricing")
        await running.shows(bobs, "bob", without=["MemoryShard", "shard pricing"])


async def test_a_shard_with_prompts_of_its_own_is_asked_for_by_them_and_shows_its_version(
    settings: Settings,
) -> None:
    model, lists = Listening(), "List prices as {kind}, in {words} words."
    named = prompts.FACT_EXTRACTION, prompts.REFLECTION_EXTRACTION
    async with listening(settings, model) as running:
        own = [prompts.own_name(name, lists) for name in named]
        place = running.database, running.settings.names, running.settings.llm
        await passed(*place, "shard-model", own=own)  # as `eden models check --sharing` does
        await running.service.set_stream(
            "shard:pricing",
            sharing="team",
            threshold=1,
            version_line=True,
            extraction_model="shard-model",
            extraction_prompt=lists,
            consolidation_prompt="A table of prices, in {words} words.",
        )
        adas, bobs = await running.session("ada"), await running.session("bob")
        notes = f"fact shard:pricing: {CABIN}", f"note shard:pricing: {NEEDS}", "note session: On prices."
        await running.told(adas, "ada", *notes, "fact user: Ada owes 300 euros.")
        await running.shows(bobs, "bob", "[VERSION 1]", NEEDS, f"- [shard pricing] {CABIN}")
        assert await running.facts("ada") == ["Ada owes 300 euros."]
        asked = {one.model: one.system for one in model.of("facts")}
        assert "List prices as facts, in 30 words." in asked.pop("shard-model")
        assert all("shard:pricing" not in system for system in asked.values())
        (about_blob,) = (one for one in model.of("consolidation") if "A table of prices" in one.system)
        assert "in 600 words" in about_blob.system
        assert await running.dead() == []


def counted(how: str) -> float:
    """Reflections and windows counted so in this process."""
    labels = {"stage": "reflection-extraction", "how": how}
    return REGISTRY.get_sample_value("eden_extraction_items_total", labels) or 0.0


@pytest.mark.parametrize("gives_in", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_shards_minimum_is_asked_for_once_more_and_then_counted(
    settings: Settings, gives_in: bool
) -> None:
    model = Listening(hesitates=True, gives_in=gives_in)
    async with listening(settings, model) as running:
        await running.service.set_stream(
            "shard:pricing", sharing="team", min_items=1, extraction_guidance=GUIDANCE
        )
        before = counted("asked_again"), counted("missing")
        session = await running.session("ada")
        written = await running.write(
            session, "ada", f"note shard:pricing: {HOLDS}", "note session: Prices were discussed."
        )
        await running.form(session)
        await running.formed(written, 1 + gives_in)
        assert await running.contents("reflections", scope="shard") == [HOLDS] * gives_in
        _, again = model.of("reflections")
        assert "shard:pricing has 0, wanted are at least 1" in again.turns[-1][1]
        assert (counted("asked_again"), counted("missing")) == (before[0] + 1, before[1] + (not gives_in))


@pytest.mark.slow
async def test_killed_between_the_two_answers_it_asks_for_the_first_no_second_time(
    settings: Settings, tmp_path: Path
) -> None:
    model, log = Listening(hesitates=True), tmp_path / "eden.log"
    async with listening(settings, model, run=False) as running:
        await running.service.set_stream(
            "shard:pricing", sharing="team", min_items=1, extraction_guidance=GUIDANCE
        )
        session = await running.session("ada")
        written = await running.write(
            session, "ada", f"note shard:pricing: {HOLDS}", "note session: Prices were discussed."
        )
        await running.form(session)
        model.hangs = True
        process = await start(running.settings, log, "run")
        try:

            async def second_is_under_way() -> bool:
                assert process.returncode is None, log.read_text()[-3_000:]
                return len(model.of("reflections")) == 2

            await until(second_is_under_way, "the model is asked for more")
        finally:
            await kill(process)
        model.hangs = False
        process = await start(running.settings, log, "run")
        try:
            await running.formed(written, 2)
        finally:
            await kill(process)
        turns = Counter(len(asked.turns) for asked in model.of("reflections"))
        assert turns == {1: 1, 3: 2}, "only what was under way at the kill is asked again"
        assert len(model.of("facts")) == 1
        assert await running.contents("reflections", scope="shard") == [HOLDS]


async def test_the_offline_rules_fill_a_shard(settings: Settings) -> None:
    async with serving(obey) as models:
        offline = by_agents(settings, models).model_copy(update={"llm": "offline"})
        async with system(offline, models) as running:
            await running.service.set_stream("shard:pricing", sharing="team", extraction_guidance=GUIDANCE)
            adas, bobs = await running.session("ada"), await running.session("bob")
            await running.write(
                adas,
                "ada",
                "The price of a standard cabin is 400 euros since 3 May.",
                "Quotes must never be older than 30 days.",
                "My sister Lea lives in Lund.",
            )
            await running.form(adas)
            await running.shows(
                bobs,
                "bob",
                '<MemoryShard name="pricing">',
                "- Quotes must never be older than 30 days.",
                without=["Lea", "400 euros"],
            )
