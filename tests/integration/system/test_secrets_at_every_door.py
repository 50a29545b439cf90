"""Secrets told in users' sessions, asked for at every door by everybody else: all modes, by rules and by a model."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import cast

import pytest

from eden_memory.api.service import Memory
from eden_memory.schemas.scopes import SharedSessions, Sharing
from eden_memory.settings import Settings
from tests.integration.system.every_door import Asker, EveryDoor, every_door
from tests.integration.system.running_system import System, fast, system, until
from tests.integration.system.test_borne_by_shared_sessions import decided
from tests.integration.system.test_private_by_default import greedy, wrote
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
ALONE = "The team meets Dr. Voss every Monday in Utrecht about Tom's depression."
REPEATED = "I noted that the team meets Dr. Voss in Utrecht about depression."
SHARED = "The crew meets Dr. Quist every Friday in Leiden about Kim's asthma."
CLUB = "The club meets Dr. Brandt every Sunday in Delft about Max's insomnia."
TOOL = "Customer Vera Lind owes Dr. Ruiz 300 euros in Gouda."
ADDED = "Rui's boat in Faro is called Gaivota."
JOINED = "Nadia moved to Tartu in May."
SECRETS = ("Voss", "depression", "Quist", "asthma", "Brandt", "insomnia", "Ruiz", "Vera", "Gaivota", "Tartu")
OPEN = "Haarlem"
FOR_ALL = f"The office in {OPEN} closes at six every Monday."
QUESTIONS = (
    "Who has depression, asthma or insomnia?",
    "Dr. Voss Dr. Quist Dr. Brandt Dr. Ruiz Haarlem",
    "What did I say about Gaivota and Tartu?",
)


@dataclass(frozen=True)
class World:
    """A running system in one mode, its doors, and who asks."""

    doors: EveryDoor
    sharing: Sharing
    shared_sessions: SharedSessions
    others: tuple[Asker, ...]
    """Nobody of them heard what is asked for where they ask."""
    dora: Asker

    async def found(self, asker: Asker) -> dict[str, set[str]]:
        """The secrets that each door says, where it says any."""
        said = await self.doors.quick(asker, QUESTIONS)
        if asker.session is not None:
            said["ready"] = await self.doors.ready(asker)
        return told_by(said)


def told_by(said: dict[str, str]) -> dict[str, set[str]]:
    """The secrets by door, and what is for all."""
    found = {name: {one for one in (*SECRETS, OPEN) if one in text} for name, text in said.items()}
    return {name: words for name, words in found.items() if words}


@pytest.fixture
async def world(settings: Settings, mode: str, llm: str) -> AsyncGenerator[World]:
    """What dora said: alone, with eva, in a club, by tools, added, and in a session that bob joins later."""
    sharing, shared = cast("tuple[Sharing, SharedSessions]", mode.split("-"))
    async with serving(greedy) as models:
        memory = {"sharing": sharing, "shared_sessions": shared, "without_users": True}
        placed = fast(settings, models, memory=memory, groups={"collection": "groups"})
        if llm == "offline":
            placed = placed.model_copy(update={"llm": "offline"})
        async with system(placed, models) as running, every_door(running) as doors:
            await running.source["groups"].insert_one({"_id": "club", "members": ["dora", "eva"]})
            yield World(doors, sharing, shared, await told(running), Asker(None, "dora"))


async def told(running: System) -> tuple[Asker, ...]:
    """Everything is said and formed; those who may not find it."""
    alone = await running.session("dora")
    said = (("user", "dora", ALONE), ("assistant", None, REPEATED), ("tool", None, TOOL))
    await wrote(running, alone, *said, ("user", "dora", FOR_ALL))
    both = await running.session("dora", "eva")
    await wrote(running, both, ("user", "dora", SHARED), ("user", "eva", "Good morning."))
    club = await running.session("dora", "eva", group_id="club")
    await wrote(running, club, ("user", "dora", CLUB), ("user", "eva", "Good evening."))
    await running.service.add(ADDED, user="dora")
    joined = await running.session("dora", "bob")
    await wrote(running, joined, ("user", "dora", "Good night."), ("user", "bob", "Good night."))
    await running.service.add(JOINED, session=alone, user="dora")
    await wrote(running, alone)
    own, evas = await running.session("bob"), await running.session("eva")
    await wrote(running, own, ("user", "bob", "Good day."))
    await wrote(running, evas, ("user", "eva", "Good day."))

    async def all_found() -> bool:
        own = str(await running.service.search_facts(QUESTIONS[2], user="dora", top_k=50))
        return await decided(running) and "Gaivota" in own and "Tartu" in own

    await until(all_found, "all is decided, and dora finds what is hers")
    return (
        Asker(),
        Asker(None, "bob"),
        Asker(own, "bob"),
        Asker(joined, "bob"),
        Asker(joined, "dora"),
        Asker(alone, "bob"),
        Asker(both, "bob"),
        Asker(club, "bob"),
        Asker(None, "eva"),
        Asker(evas, "eva"),
        Asker(None, "nobody-known"),
    )


@pytest.mark.parametrize(
    ("mode", "llm"),
    [
        pytest.param("private-session", "scripted", marks=pytest.mark.slow),
        pytest.param("team-authors", "scripted", marks=pytest.mark.slow),
        ("private-authors", "offline"),
        pytest.param("private-authors", "scripted", marks=pytest.mark.slow),
        pytest.param("team-session", "scripted", marks=pytest.mark.slow),
        pytest.param("private-session", "offline", marks=pytest.mark.slow),
        pytest.param("team-session", "offline", marks=pytest.mark.slow),
        pytest.param("team-authors", "offline", marks=pytest.mark.slow),
    ],
)
async def test_only_who_heard_a_secret_finds_it_and_in_a_team_all_find_what_is_for_all(
    world: World, llm: str
) -> None:
    mine = {word for words in (await world.found(world.dora)).values() for word in words}
    assert {"Voss", "depression", "Gaivota", "Tartu", OPEN} <= mine, "dora finds what she said alone"
    for asker in world.others:
        crossed = {word for words in (await world.found(asker)).values() for word in words}
        heard = {"Brandt", "insomnia"} if asker.user == "eva" else set[str]()  # as a member of the club
        assert crossed - heard == ({OPEN} if world.sharing == "team" else set()), asker
    if llm == "scripted":  # the doors are the same, and each command is a process
        slow = told_by(await world.doors.slow(world.others[2], QUESTIONS))
        assert bool(slow) == (world.sharing == "team"), slow
        assert all(words == {OPEN} for words in slow.values()), slow
    async with Memory(world.doors.running.settings) as memory:
        crew = memory.agent("crew")
        for user in (None, "bob", "dora"):
            found = await crew.search_facts(QUESTIONS, user=user, top_k=50, include_retired=True)
            listed = await crew.list_facts(user=user, active=None)
            context = await crew.get_memory_context(None, user, QUESTIONS[2])
            assert told_by({"another agent": f"{found} {listed} {context}"}) == {}
