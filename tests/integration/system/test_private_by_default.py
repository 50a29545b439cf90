"""What one user says, and who finds it: chat writes and added texts up to search, context and gateway, both modes."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.events import FactsExtracted
from eden_memory.schemas.scopes import Sharing
from eden_memory.settings import Settings
from tests.integration.gateway.gateway_kit import behind, chats_of
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.chat_upstream import chat_upstream
from tests.model_server.script import Asked, Said, default_script
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers

SAID = "The team meets Dr. Voss every Monday in Utrecht about Tom's depression."
REPEATED = "I noted that the team meets Dr. Voss in Utrecht about depression."
SECRETS = ("depression", "Voss")
FOR_ALL = "The office in Haarlem closes at six every Monday."
ABOUT_PEOPLE = (*SECRETS, "Vera", "Priya", "Ines", "Kim", "Max", "Nadia")
FOUND: dict[Sharing, bool] = {"private": False, "team": True}
"""Whether others find what one user says and what the model judges to be for all."""


def greedy(asked: Asked) -> Said:
    """Every message is a fact and a reflection of the broadest scope offered, judged by whom it names."""
    if asked.kind not in ("facts", "reflections") or not asked.labels:
        return default_script(asked)
    stated = [
        {
            "text": text.splitlines()[-1].rpartition(": ")[2],
            "scope": asked.labels[0],
            "messages": [number],
            "about": "person" if any(name in text for name in ABOUT_PEOPLE) else "organisation",
        }
        for number, text in asked.messages.items()
        if text
    ]
    return {asked.kind: stated}


@pytest.fixture(params=["private", "team"])
def mode(request: pytest.FixtureRequest) -> Sharing:
    return cast("Sharing", request.param)


@pytest.fixture(params=["scripted", "offline"])
async def running(
    request: pytest.FixtureRequest, settings: Settings, mode: Sharing
) -> AsyncGenerator[System]:
    """A fresh store: nothing is chosen in it where memory is private."""
    async with serving(greedy) as models:
        chosen = None if mode == "private" else mode
        placed = fast(settings, models, memory={"sharing": chosen, "without_users": True})
        if request.param == "offline":
            placed = placed.model_copy(update={"llm": "offline"})
        async with system(placed, models) as found:
            yield found


async def wrote(running: System, session: str, *said: tuple[str, str | None, str]) -> None:
    """Messages (role, author, text) that are formed; returns once reflections of them are stored."""
    for role, author, text in said:
        message = {"session_id": session, "role": role, "content": text, "created_at": datetime.now(UTC)}
        named = {"user_id": author} if author is not None else {}
        await running.source["messages"].insert_one(message | named)
    await running.form(session)

    async def remembered() -> bool:
        of_session = {"session_ids": encode_id(session)}
        return await running.memory("reflections").count_documents(of_session) > 0

    await until(remembered, f"something is remembered of {session}")


async def extracted(running: System, session: str) -> set[str]:
    """The kinds of scope of the facts that were extracted from a session."""
    found = [cast("FactsExtracted", one.event) for one in await running.records("memory.extractions")]
    mine = (one.facts for one in found if one.window.session_id == encode_id(session))
    return {fact.scope.kind for facts in mine for fact in facts}


async def kinds(running: System, collection: str, word: str) -> set[str]:
    """The kinds of scope that hold something with this word."""
    rows = await running.memory(collection).find({"content": {"$regex": word}}).to_list()
    return {row["scope"] for row in rows}


def shows(text: Any) -> bool:
    return any(one in str(text) for one in SECRETS)


async def test_others_find_in_a_team_what_is_for_all_and_never_what_is_of_a_person(
    running: System, mode: Sharing
) -> None:
    said = (("user", "dora", SAID), ("assistant", None, REPEATED), ("user", "dora", FOR_ALL))
    await wrote(running, await running.session("dora"), *said)
    bobs = await running.session("bob")
    search = running.service.search_facts
    questions = ("Tom depression", "Dr. Voss Utrecht Monday", "When does the office close?")

    async def own() -> bool:
        found = str(await search(questions, user="dora", top_k=50))
        return shows(found) and FOR_ALL in found

    await until(own, "whoever said it finds it")
    listed = running.service.list_facts, running.service.list_reflections
    shown = [await search(one, user=user, top_k=50) for one in questions for user in ("bob", None)]
    shown += [(await of(user="bob")).items for of in listed]
    shown += [await running.context(bobs, "bob")]
    async with chat_upstream() as upstream:
        placed = behind(running.settings, upstream.openai_url, AGENT)
        async with chats_of(placed, upstream) as chats:
            await chats.say("How is Tom?", user="bob", memory_id=bobs)
            shown += [chats.came.messages]
    assert not any(map(shows, shown))
    by_rules = running.settings.llm == "offline"  # rules share what a user states as a rule, and this is none
    seen = [FOR_ALL in str(one) for one in shown]
    assert seen == [FOUND[mode] and not by_rules] * len(shown)


async def test_an_added_text_is_its_users_alone_and_without_a_user_the_agents(running: System) -> None:
    await running.service.add("Rui's boat is called Gaivota.", user="rui")
    await running.service.add("The team meets every Monday in Lisbon.")

    async def stored() -> bool:
        return bool(await kinds(running, "facts", "Gaivota") and await kinds(running, "facts", "Lisbon"))

    await until(stored, "both are remembered")
    assert await kinds(running, "facts", "Gaivota") == {"user"}
    assert await kinds(running, "reflections", "Gaivota") <= {"user", "session"}
    assert await kinds(running, "facts", "Lisbon") == {"agent"}


@pytest.mark.parametrize("running", ["scripted"], indirect=True)
async def test_without_users_the_agent_learns_from_itself_and_in_private_never_from_tools(
    running: System, mode: Sharing
) -> None:
    await wrote(
        running,
        await running.session(),
        ("assistant", None, "The nightly import ran in Porto."),
        ("tool", None, "Customer Vera Lind owes 300 euros."),
        ("system", None, "The depot is in Braga."),
        ("assistant", None, "Alerts go to Slack."),
        ("assistant", None, "Alerts go to Priya."),
    )

    async def stored() -> bool:
        facts = await running.memory("facts").count_documents({"content": {"$regex": "Porto|Braga|Slack"}})
        return facts == 3

    await until(stored, "what was said is remembered")
    assert await kinds(running, "facts", "Porto|Braga|Slack") == {"agent"}
    assert await kinds(running, "facts", "Vera|Priya") == set()
    assert await kinds(running, "reflections", "Vera") == {"session"}
    nameless = await running.session()
    await wrote(
        running,
        nameless,
        ("user", None, "Our tenant Ines is ill."),
        ("assistant", None, "Ines is ill."),
        ("user", None, FOR_ALL),
    )
    assert await extracted(running, nameless) == ({"agent"} if FOUND[mode] else set())
    assert await kinds(running, "facts", "Ines") == set()
    assert await kinds(running, "reflections", "Ines") == {"session"}


@pytest.mark.parametrize("running", ["scripted"], indirect=True)
async def test_agents_and_shards_may_say_how_they_share(running: System, mode: Sharing) -> None:
    agent = {"agent_id": "s.crew", "scope": "agent", "sharing": "private" if mode == "team" else "team"}
    shards = [
        {"agent_id": f"s.{AGENT}", "scope": "shard", "shard": "plain"},
        {"agent_id": f"s.{AGENT}", "scope": "shard", "shard": "open", "sharing": "team"},
    ]
    for number, one in enumerate((agent, *shards)):
        await running.memory("streams").insert_one({"_id": str(number), **one})
    crew, here = await running.session("ada", agent_id="crew"), await running.session("ada")
    for session in (crew, here):
        await wrote(running, session, ("user", "ada", "The depot is in Braga."))
    windows = [one.event for one in await running.records("memory.formations")]
    by_session = {cast("Any", one).session_id: cast("Any", one) for one in windows}
    of_crew, of_here = by_session[f"s.{crew}"], by_session[f"s.{here}"]
    assert (of_crew.sharing, of_here.sharing) == ("private", mode), "private wins over what an agent says"
    assert "agent" not in {one.kind for one in of_crew.scopes}
    shown = {one.shard for one in of_here.scopes if one.kind == "shard"}
    assert shown == ({"plain", "open"} if mode == "team" else set())
