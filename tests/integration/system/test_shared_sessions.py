"""Sessions of several users: what authors say of themselves, in both modes, through the running system."""

import re
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.scopes import SharedSessions
from eden_memory.settings import Settings
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.script import Asked, Said
from tests.model_server.serving import Serving, serving

pytestmark = pytest.mark.servers
prompts: list[str] = []


def noted(asked: Asked) -> Said:
    """As messages ask; the prompts are kept."""
    if asked.kind == "reflections":
        prompts.append(asked.user)
    return obey(asked)


@pytest.fixture(params=["session", "authors"])
def mode(request: pytest.FixtureRequest) -> SharedSessions:
    return cast("SharedSessions", request.param)


@pytest.fixture
async def running(settings: Settings, mode: SharedSessions) -> AsyncGenerator[System]:
    """A private store with groups; users have names."""
    prompts.clear()
    async with serving(noted) as models:
        placed = fast(
            settings,
            models,
            memory={"sharing": "private", "shared_sessions": mode},
            groups={"collection": "groups"},
        )
        async with system(placed, models) as found:
            for name in ("ana", "bob", "eva"):
                await found.source["users"].insert_one({"_id": name, "name": name.title()})
            await found.source["groups"].insert_one({"_id": "club", "members": ["ana", "bob"]})
            yield found


async def talked(running: System, session: str, *said: tuple[str, str]) -> None:
    """What users say in turn, formed together; returns once all that follows is stored."""
    for user, text in said:
        await running.write(session, user, text)
    await running.form(session)

    async def remembered() -> bool:
        of_session = {"session_ids": encode_id(session), "scope": "session"}
        return await running.memory("reflections").count_documents(of_session) > 0

    await until(remembered, "the session is remembered")


async def of(running: System, collection: str, user: str) -> set[str]:
    """What is remembered of a user alone."""
    return set(await running.contents(collection, scope="user", user_id=encode_id(user)))


async def test_an_author_keeps_what_they_say_of_themselves_and_sees_it_alone(
    running: System, mode: SharedSessions
) -> None:
    kept = mode == "authors"
    alone = await running.session("ana")
    await running.told(alone, "ana", "note user: Ana hides her illness.", "note session: Ana speaks.")
    both = await running.session("ana", "bob", "eva")
    await talked(
        running,
        both,
        ("ana", "fact user: I am allergic to nuts."),
        ("bob", "fact user: I was born in Lima."),
        ("bob", "note user: I like short answers."),
        ("ana", "fact user: Bob was born in Peru."),
        ("bob", "note session: They talk about food."),
        ("eva", "Hello all."),
    )

    async def settled() -> bool:
        return await of(running, "facts", "bob") == ({"I was born in Lima."} if kept else set())

    await until(settled, "bob's facts")
    assert await of(running, "facts", "ana") == ({"I am allergic to nuts."} if kept else set()), (
        "not of another"
    )
    assert await of(running, "facts", "eva") == set()
    notes = {"I like short answers."} if kept else set[str]()
    assert await of(running, "reflections", "bob") == notes
    assert "Ana hides her illness." not in prompts[-1], "nobody's own memory is shown where others listen"
    (window,) = [
        cast("FormationRequested", one.event)
        for one in await running.records("memory.formations")
        if cast("Any", one.event).session_id == encode_id(both)
    ]
    assert window.shared_sessions == mode
    assert {one.user_id for one in window.scopes if one.kind == "user"} == (
        {"s.ana", "s.bob", "s.eva"} if kept else set()
    )
    bobs, shown = await running.session("bob"), running.service.search_facts
    assert ("Lima" in str(await shown("Where was he born?", session=bobs, user="bob"))) == kept
    for session, user in (
        (bobs, "ana"),
        (alone, "ana"),
        (both, "ana"),
        (both, "bob"),
        (None, None),
        (None, "eva"),
    ):
        assert "Lima" not in str(await shown("Where was he born?", session=session, user=user))
        assert "Lima" not in await running.context(session or both, user)


async def test_authors_of_one_name_keep_what_names_them_alone(running: System, mode: SharedSessions) -> None:
    for user, name in (("ana-1", "Ana"), ("ana-2", "Ana"), ("tom", "Tom Silva"), ("rui", "Rui Silva")):
        await running.source["users"].insert_one({"_id": user, "name": name})
    both = await running.session("ana-1", "ana-2", "tom", "rui")
    await talked(
        running,
        both,
        ("ana-1", "fact user: Ana 1's boat is called Gaivota."),
        ("ana-1", "fact user: Ana 2's dog is called Skot."),
        ("ana-2", "fact user: Ana was born in Faro."),
        ("tom", "fact user: Tom Silva was born in Lima."),
        ("rui", "fact user: Silva was born in Goa."),
        ("rui", "note session: They talk about themselves."),
    )
    kept = mode == "authors"

    async def settled() -> bool:
        said = {"tom": "Tom Silva was born in Lima.", "ana-1": "Ana's boat is called Gaivota."}
        found = [
            await of(running, "facts", user) == ({text} if kept else set()) for user, text in said.items()
        ]
        return all(found)

    await until(settled, "tom's facts, and those of the first Ana")
    for user in ("ana-2", "rui"):
        assert await of(running, "facts", user) == set(), "it may be of the other"


async def test_a_group_gets_what_its_members_share_in_both_modes(
    running: System, mode: SharedSessions
) -> None:
    club = await running.session("ana", "bob", group_id="club")
    await talked(
        running,
        club,
        ("ana", "fact group: The club meets in Faro."),
        ("bob", "fact user: I keep bees."),
        ("bob", "note session: They plan the club."),
    )

    async def stored() -> bool:
        return await running.contents("facts", scope="group") == ["The club meets in Faro."]

    await until(stored, "the group's fact")

    async def own() -> bool:
        return await of(running, "facts", "bob") == ({"I keep bees."} if mode == "authors" else set())

    await until(own, "bob's own")
    assert "Faro" in str(await running.service.search_facts("Where does it meet?", session=club, user="ana"))
    assert "bees" not in str(await running.service.search_facts("Who keeps bees?", session=club, user="ana"))


async def test_a_redelivered_window_is_decided_by_the_mode_it_was_requested_in(
    settings: Settings, mode: SharedSessions
) -> None:
    """The request is recorded while extraction stands still; then the other mode is set, and extraction goes on."""
    other: SharedSessions = "authors" if mode == "session" else "session"
    async with serving(noted) as models:
        placed = fast(settings, models, memory={"sharing": "private", "shared_sessions": mode})
        async with system(placed, models, run=False) as running:
            both = await running.session("ana", "bob")

            async def requested() -> bool:
                return bool(await running.records("memory.formations"))

            async with stages(placed, ["formation-trigger"]):
                await running.write(both, "ana", "fact user: I am allergic to nuts.")
                await running.write(both, "bob", "note session: They talk.")
                await running.form(both)
                await until(requested, "the window is requested")
            async with stages(
                fast(settings, models, memory={"sharing": "private", "shared_sessions": other})
            ):

                async def remembered() -> bool:
                    return await running.memory("reflections").count_documents({"scope": "session"}) == 1

                async def facts() -> bool:
                    kept = ["I am allergic to nuts."] if mode == "authors" else []
                    return await running.contents("facts") == kept

                await until(remembered, "the session is remembered")
                await until(facts, "as it was requested")


async def test_a_user_is_called_by_the_name_in_their_document_and_never_by_a_number(
    settings: Settings, shared_models: Serving
) -> None:
    """No document lists the session's users; of two who have no name either, rules keep nothing under a number."""
    chosen = {"sharing": "private", "shared_sessions": "authors"}
    placed = fast(settings, shared_models, sessions={"collection": None}, memory=chosen)
    async with system(placed.model_copy(update={"llm": "offline"}), shared_models) as at:
        await at.source["users"].insert_one({"_id": "ana", "name": "Ana"})
        await talked(
            at,
            "s-1",
            ("ana", "My boat is called Gaivota."),
            ("bob", "My dog is called Skot."),
            ("eva", "My cat is called Mimi."),
            ("eva", "Please always answer in Spanish."),
        )

        async def named() -> bool:
            both = await of(at, "facts", "ana"), await of(at, "facts", "bob")
            return both == ({"Ana's boat is called Gaivota."}, {"User's dog is called Skot."})

        await until(named, "ana's fact bears her name, bob's no number")
        kept = [text for kind in ("facts", "reflections") for text in await at.contents(kind)]
        assert not [text for text in kept if re.search(r"User \d", text)], kept
