"""Groups from chat writes to contexts, and what goes up from a user to the group and the agent, and comes back."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eden_memory.formation import consolidation_rules
from eden_memory.mongo.ids import encode_id
from eden_memory.replay.installation import Installation
from eden_memory.schemas.events import Propagated
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.unpoison.attack_rules import Attack
from eden_memory.unpoison.attack_store import AttackUndo
from tests.integration.system.commands import eden, kill, start
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.script import NUMBERED, Asked, Said
from tests.model_server.serving import Serving, serving

pytestmark = pytest.mark.servers
SHARED, PERSONAL, LATER = (
    "The team deploys on Tuesdays.",
    "Ann wants brief answers.",
    "The office closes at 18:00 on Fridays.",
)
CREW = Scope.of_group(encode_id(AGENT), encode_id("crew"))
WIDE = Scope.of_agent(encode_id(AGENT))


class Judges:
    """What messages tell it; and of every reflection that it is shown, that it matters to all."""

    def __init__(self) -> None:
        self.judged: Counter[str] = Counter()

    def __call__(self, asked: Asked) -> Said:
        if asked.kind != "propagation":
            return obey(asked)
        self.judged.update(asked.messages.values())
        return {"propagated": [{"reflection": n, "text": text} for n, text in asked.messages.items()]}


def mapped(settings: Settings, models: Serving) -> Settings:
    return fast(settings, models, groups={"collection": "groups"}, tailer={"lease_seconds": 2.0})


async def prepared(running: System, **agent: Any) -> None:
    """The crew of ann and bob; a user's and the group's reflections are consolidated soon."""
    await running.source["groups"].insert_many(
        [
            {"_id": "crew", "name": "The crew", "members": ["ann", "bob"]},
            {"_id": "choir", "name": "The choir", "members": ["ann", "zoe"]},
        ]
    )
    for scope, fields in {"user": {"threshold": 2}, "group": {"threshold": 1}, "agent": agent}.items():
        name = {"_id": f"{WIDE.agent_id}/{scope}", "agent_id": WIDE.agent_id, "scope": scope}
        await running.memory("streams").insert_one({**name, **fields})


async def held(running: System, scope: Scope) -> list[str]:
    return await running.contents("reflections", scope_key=scope.key)


async def test_what_a_group_shares_is_shown_to_its_members_wherever_no_other_group_listens(
    settings: Settings,
) -> None:
    async with serving(Judges()) as models, system(mapped(settings, models), models) as running:
        await prepared(running)
        both = await running.session("ann", "bob", group_id="crew")
        await running.told(both, "ann", "note group: The crew rows at six.", "fact group: The boat is Tern.")
        choir = await running.session("ann", "zoe", group_id="choir")
        await running.told(choir, "zoe", "note group: The choir sings at eight.")
        (anns, bobs, shared) = [await running.session(*users) for users in (["ann"], ["bob"], ["ann", "bob"])]
        xml = await running.shows(anns, "ann", "rows at six", "Tern", "sings at eight")
        assert xml.index('<GroupMemory group="The choir">') < xml.index('<GroupMemory group="The crew">')
        await running.shows(bobs, "bob", "rows at six", without=["sings"])
        await running.shows(shared, "ann", "rows at six", without=["sings"])
        await running.shows(choir, "ann", "sings at eight", without=["rows"])
        (found,) = await running.service.search_facts("What is the boat?", user="bob", top_k=1)
        assert "Tern" in found.content
        await running.source["groups"].update_one({"_id": "crew"}, {"$pull": {"members": "bob"}})
        await running.shows(bobs, "bob", without=["rows at six", "Tern"])
        assert await running.service.search_facts("What is the boat?", user="bob") == []


async def test_what_matters_to_all_goes_up_and_is_forgotten_with_its_sources(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidation_rules, "CONSOLIDATION_SECONDS", 0.0)
    model = Judges()
    async with serving(model) as models, system(mapped(settings, models), models) as running:
        await prepared(running, propagation=True)
        anns = await running.session("ann", group_id="crew")
        bobs = await running.session("bob", group_id="crew")
        outsiders = await running.session("zoe")
        await running.told(anns, "ann", f"note user: {SHARED}", f"note user: {PERSONAL}")
        for session, user in ((bobs, "bob"), (outsiders, "zoe")):
            await running.shows(session, user, SHARED, without=["brief answers"])
        assert (await held(running, CREW), await held(running, WIDE)) == ([SHARED], [SHARED])
        assert model.judged == {SHARED: 2, PERSONAL: 1}, "each once for each broader scope"
        assert await running.memory("answers").count_documents({"prompt": "propagation/5"}) == 2
        await eden(running.settings, "rebuild", "again", "--verify")  # exit code 1 if anything differs

        (later, _) = await running.told(anns, "ann", f"note user: {LATER}", "note user: Ann likes maps.")
        await running.shows(outsiders, "zoe", SHARED, LATER)
        page = await running.service.list_reflections(user="ann", scopes=["user"])
        own = {one.content: one for one in page.items}
        assert own[SHARED].absorbed
        await running.service.mark_private(own[SHARED].reflection_id, user="ann")
        for session, user in ((bobs, "bob"), (outsiders, "zoe")):
            await running.shows(session, user, LATER, without=[SHARED])
        await running.shows(anns, "ann", SHARED)

        await running.forget("message", later)
        await until(lambda: nothing_of(running, LATER), "forgotten in every scope")
        await until(lambda: nothing_of(running, SHARED, CREW, WIDE), "taken back from the others")
        await running.shows(anns, "ann", SHARED)
        await eden(running.settings, "rebuild", "once-more", "--verify")
        assert await running.dead() == []


def judges_alike(asked: Asked) -> Said:
    """What messages tell it; and of others, which say the same."""
    if asked.kind != "propagation":
        return obey(asked)
    own = len(NUMBERED.findall(asked.user.split("# of other ")[0]))
    found = [number for number, text in asked.messages.items() if SHARED in text]
    same = [number for number in found if number > own]
    return {"propagated": [{"reflection": n, "text": SHARED, "same": same} for n in found if n <= own]}


async def test_what_two_users_must_show_goes_up_with_the_second_and_ends_with_either(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidation_rules, "CONSOLIDATION_SECONDS", 0.0)
    async with serving(judges_alike) as models, system(mapped(settings, models), models) as running:
        await prepared(running, propagation=True, propagation_from=2)
        sessions = {user: await running.session(user, group_id="crew") for user in ("ann", "bob")}
        await running.told(sessions["ann"], "ann", f"note user: {SHARED}", f"note user: {PERSONAL}")
        await until(lambda: absorbed_of(running, "ann"), "ann's are absorbed")
        assert await held(running, CREW) == []
        await running.told(sessions["bob"], "bob", f"note user: {SHARED}", "note user: Bob likes maps.")
        await until(lambda: shows_it(running, CREW), "bob has shown it, too")
        assert await running.memory("answers").count_documents({"prompt": "propagation-shown/1"}) == 1
        anns = (await running.service.list_reflections(user="ann", scopes=["user"])).items
        (own,) = (item for item in anns if item.content == SHARED)
        await running.service.mark_private(own.reflection_id, user="ann")
        await until(lambda: nothing_of(running, SHARED, CREW), "one user is not two")
        assert await running.dead() == []


async def absorbed_of(running: System, user: str) -> bool:
    query = {"user_id": encode_id(user), "scope": "user", "absorbed": True}
    return await running.memory("reflections").count_documents(query) == 2


async def shows_it(running: System, scope: Scope) -> bool:
    return await held(running, scope) == [SHARED]


async def test_the_call_that_sent_something_up_is_undone_where_it_went(settings: Settings) -> None:
    async with serving(Judges()) as models, system(mapped(settings, models), models) as running:
        await prepared(running, propagation=True)
        anns = await running.session("ann", group_id="crew")
        bobs = await running.session("bob", group_id="crew")
        outsiders = await running.session("zoe")
        notes = (f"user: {SHARED}", f"user: {PERSONAL}", "session: Ann spoke of work.")
        await running.told(anns, "ann", *(f"note {note}" for note in notes))
        await running.shows(bobs, "bob", SHARED)
        await running.shows(outsiders, "zoe", SHARED)
        own = Scope.of_user(WIDE.agent_id, encode_id("ann")).key
        work = AttackUndo(Installation(running.settings, running.database))

        formed = await work.plan(await called(running, stage="reflection-extraction"))
        assert [found.text for found in formed.reflections].count(SHARED) == 3, "in each scope"
        attack = await called(running, stage="propagation", scope=own)
        plan = await work.plan(attack)
        assert {found.scope.key for found in plan.reflections} == {CREW.key, WIDE.key}
        await work.ask(attack, plan, "test")
        async with asyncio.timeout(60):
            await work.finish(attack, plan, "test")
        for session, user in ((bobs, "bob"), (outsiders, "zoe")):
            await running.shows(session, user, without=[SHARED])
        await running.shows(anns, "ann", SHARED)
        assert not await work.plan(attack)


async def called(running: System, **wanted: str) -> Attack:
    """The question to a model that is counted with these fields."""
    wanted["operation"] = "chat"
    calls = running.memory("calls")
    await until(lambda: one_of(calls, **wanted), f"the call {wanted}")
    (call,) = await calls.find(wanted).to_list()
    return Attack("call", call["_id"])


async def nothing_of(running: System, text: str, *scopes: Scope) -> bool:
    """Whether no document, of these scopes or any, holds it."""
    wanted: dict[str, Any] = {"scope_key": {"$in": [scope.key for scope in scopes]}} if scopes else {}
    names = ("reflections", "consolidated", "blobs", "snapshots")
    kept = [row for name in names async for row in running.memory(name).find(wanted)]
    return text not in repr(kept)


@pytest.mark.parametrize(
    ("agent", "user"),
    [
        pytest.param({}, {}, id="off", marks=pytest.mark.slow),
        pytest.param({"propagation": True}, {"memory_private": True}, id="private"),
    ],
)
async def test_nothing_goes_up_for_a_private_user_or_where_it_is_off(
    settings: Settings, agent: dict[str, Any], user: dict[str, Any]
) -> None:
    model = Judges()
    async with serving(model) as models, system(mapped(settings, models), models) as running:
        await prepared(running, **agent)
        await running.source["users"].insert_one({"_id": "ann", **user})
        anns = await running.session(group_id="crew", users=None if user else ["ann"])  # None: lists nobody
        await running.told(anns, "ann", f"note user: {SHARED}", f"note user: {LATER}")
        bobs = await running.session("bob", group_id="crew")
        await running.source["users"].insert_one({"_id": "bob"})
        await running.told(bobs, "bob", "note user: The depot opens on Mondays.", "note user: Bob likes tea.")
        for name in ("ann", "bob"):
            key = Scope.of_user(WIDE.agent_id, encode_id(name)).key
            await until(lambda key=key: absorbs(running, key), f"the blob of {name}")
        if agent:
            await running.shows(anns, "ann", "The depot opens on Mondays.")
        assert await held(running, CREW) == (["The depot opens on Mondays."] if agent else [])
        assert model.judged[SHARED] == 0
        assert bool(model.judged) is bool(agent)


async def test_what_rests_on_a_private_facts_message_does_not_go_up_whenever_it_was_formed(
    settings: Settings,
) -> None:
    model = Judges()
    async with serving(model) as models, system(mapped(settings, models), models) as running:
        await prepared(running, propagation=True)
        anns = await running.session("ann", group_id="crew")
        bobs = await running.session("bob", group_id="crew")
        said = await running.write(anns, "ann", f"fact user: Ann keeps the keys.\nnote user: {SHARED}")
        await running.form(anns)
        await running.formed(said, 2)
        (fact,) = (await running.service.list_facts(user="ann")).items
        (own,) = (await running.service.list_reflections(user="ann", scopes=["user"])).items
        await running.service.mark_private(fact.fact_id, user="ann")
        reflections, facts = running.memory("reflections"), running.memory("facts")
        await until(lambda: one_of(facts, content=fact.content, private=True), "the fact is private")
        await until(lambda: one_of(reflections, content=SHARED, private=True), "so is what rests on it")
        await running.service.mark_private(own.reflection_id, False, user="ann")  # as if it were formed later
        await until(lambda: one_of(reflections, content=SHARED, private=False), "its own mark is gone")
        await running.told(anns, "ann", f"note user: {LATER}")
        await running.shows(bobs, "bob", LATER, without=[SHARED])
        assert await held(running, CREW) == [LATER]
        assert model.judged[SHARED] == 0
        await eden(running.settings, "rebuild", "again", "--verify")
        assert await running.dead() == []


async def one_of(collection: Any, **fields: Any) -> bool:
    return await collection.find_one(fields) is not None


async def absorbs(running: System, key: str) -> bool:
    return (await running.snapshot(key)).get("blob_version", 0) == 1


async def test_killed_while_it_judges_it_pays_for_no_answer_twice(settings: Settings, tmp_path: Path) -> None:
    model, log = Judges(), tmp_path / "eden.log"
    async with serving(model) as models, system(mapped(settings, models), models, run=False) as running:
        await prepared(running, propagation=True)
        anns = await running.session("ann", group_id="crew")
        await running.write(anns, "ann", f"note user: {SHARED}", f"note user: {PERSONAL}")
        await running.form(anns)
        answers = running.memory("answers")

        async def answered() -> bool:
            return await answers.count_documents({"prompt": "propagation/5", "text": {"$ne": None}}) > 0

        async def climbed() -> bool:
            return await held(running, WIDE) == [SHARED]

        for condition in (answered, climbed):
            process = await start(running.settings, log, "run")
            try:
                await until(condition, condition.__name__)
            finally:
                await kill(process)
        assert model.judged[PERSONAL] == 1, "its answer had arrived before the kill"
        assert await held(running, CREW) == [SHARED]
        (row,) = await running.memory("reflections").find({"scope_key": CREW.key}).to_list()
        assert row["_id"] == Propagated.id_of(row["propagated_from"])
