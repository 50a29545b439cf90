"""Why something is remembered so, or is not: asked at every door, told only to who may see it."""

import json
from collections.abc import AsyncGenerator
from uuid import uuid4

import pytest

from eden_memory.doctor.mongodb_checks import rooms
from eden_memory.memory.memory_views import Explained
from eden_memory.mongo.ids import encode_id
from eden_memory.settings import MemorySettings, Settings
from tests.integration.system.commands import eden
from tests.integration.system.every_door import HEADERS, EveryDoor, every_door
from tests.integration.system.obedient_model import WORD
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers


def somebody() -> str:
    return f"u{uuid4().hex[:8]}"


@pytest.fixture(scope="module")
async def doors(shared: System) -> AsyncGenerator[EveryDoor]:
    async with every_door(shared) as opened:
        yield opened


async def of_message(running: System, user: str, text: str) -> Explained | None:
    """What is said of the user's own message with these words, asked outside of any session."""
    found = await running.service.why(text, user=user)
    return next((explained for explained in found if explained.what == "message"), None)


async def becomes(running: System, user: str, text: str, outcome: str) -> Explained:
    async def so() -> bool:
        found = await of_message(running, user, text)
        return found is not None and found.outcome == outcome

    await until(so, f"{text}: {outcome}")
    found = await of_message(running, user, text)
    assert found is not None
    return found


async def test_a_message_is_followed_to_its_memory_step_by_step(shared: System) -> None:
    user = somebody()
    session = await shared.session(user)
    await shared.write(session, user, "fact user: Pixel is a greyhound.")
    assert (await becomes(shared, user, "Pixel greyhound", "waiting")).content
    await shared.form(session)
    await becomes(shared, user, "Pixel greyhound", "remembered")

    async def counted() -> bool:
        found = await of_message(shared, user, "Pixel greyhound")
        return "fast-model" in str([step for step in found.steps if step.what == "call"] if found else ())

    await until(counted, "the calls are counted")
    found = await becomes(shared, user, "Pixel greyhound", "remembered")
    assert [step.what for step in found.steps if step.what != "call"] == [
        "message",
        "window",
        "answer",
        "decision",
        "memory",
    ]
    told = {step.what: step.told for step in found.steps}
    assert told["window"].endswith("closed because somebody asked for it")
    assert told["answer"].startswith("1 fact of the window, from this message: 1;")
    assert told["decision"] == "ADD: Pixel is a greyhound."
    (fact,) = [one for one in await shared.service.why("Pixel greyhound", user=user) if one.what == "fact"]
    assert {step.what for step in fact.steps} >= {"message", "window", "call", "decision"}


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("The weather in Porto is dull.", "nothing_proposed"),
        ("fact nowhere: Porto has seven bridges.", "rejected"),
        (f"The boiler in Porto is {WORD}.", "dead"),
    ],
)
async def test_it_says_why_nothing_is_remembered(shared: System, said: str, outcome: str) -> None:
    user = somebody()
    session = await shared.session(user)
    await shared.write(session, user, said)
    await shared.form(session)
    await becomes(shared, user, said, outcome)


async def test_a_room_says_that_it_keeps_no_facts_and_what_can_be_chosen(
    settings: Settings, models: Serving
) -> None:
    first, second = somebody(), somebody()
    async with system(fast(settings, models, memory={"sharing": "private"}), models) as running:
        session = await running.session(first, second)
        for user in (first, second):
            await running.write(session, user, f"fact user: {user} sleeps on the sofa.")
        await running.form(session)
        found = await becomes(running, first, f"{first} sleeps on the sofa", "kept_nowhere")
        assert "EDEN_MEMORY_SHARED_SESSIONS=authors" in found.because
        assert [step.told for step in found.steps if step.what == "answer"] == [
            "no fact was asked for: no scope of the window holds facts"
        ]
        client = running.database.client
        (room,) = await rooms(client, running.settings)
        assert (room.state, room.what) == ("warn", "1 sessions of several users keep no facts")
        memory = MemorySettings(shared_sessions="session")
        assert not await rooms(client, running.settings.model_copy(update={"memory": memory}))


async def test_a_statement_that_was_left_out_says_nothing_of_other_messages(shared: System) -> None:
    user = somebody()
    session = await shared.session(user)
    await shared.write(session, user, "fact nowhere: Faro has nine gates.", "The lamp in Faro is dull.")
    await shared.form(session)
    left = await becomes(shared, user, "Faro has nine gates", "rejected")
    assert left.because.endswith("the model named a scope that the window does not have")
    await becomes(shared, user, "The lamp in Faro is dull", "nothing_proposed")


async def test_what_is_already_known_or_was_replaced_says_so(shared: System) -> None:
    user = somebody()
    first, second, third = [await shared.session(user) for _ in range(3)]
    await shared.told(first, user, "fact user: same-car The car is red.")
    await shared.write(second, user, "fact user: same-car Yes, the car is truly red.")
    await shared.form(second)
    found = await becomes(shared, user, "truly red", "remembered")
    assert any(step.told.startswith("NONE: ") for step in found.steps)
    await shared.write(third, user, "fact user: same-car The car is blue instead.")
    await shared.form(third)
    found = await becomes(shared, user, "truly red", "retired")
    assert "contradicted" in found.because


async def test_what_is_forgotten_or_switched_off_is_not_repeated(shared: System) -> None:
    user, hidden = somebody(), somebody()
    session = await shared.session(user)
    (message,) = await shared.write(session, user, "Pixel bit the postman.")
    await shared.forget("message", message)
    found = await becomes(shared, user, "Pixel bit the postman", "forgotten")
    assert found.content is None
    assert [step.what for step in found.steps] == ["message"]
    off = await shared.session(hidden, incognito=True)
    await shared.write(off, hidden, "Pixel bit the baker.")
    found = await becomes(shared, hidden, "Pixel bit the baker", "switched_off")
    assert found.content is None
    assert "baker" not in str(found)


async def test_a_session_that_is_switched_off_after_its_messages_were_recorded_is_not_repeated(
    shared: System,
) -> None:
    user = somebody()
    session = await shared.session(user)
    await shared.write(session, user, "Pixel bit the grocer.")
    await becomes(shared, user, "Pixel bit the grocer", "waiting")
    await shared.source["sessions"].update_one({"_id": session}, {"$set": {"incognito": True}})
    found = await of_message(shared, user, "Pixel bit the grocer")
    assert found is not None
    assert (found.outcome, found.content) == ("switched_off", None)


async def test_nobody_else_learns_anything_by_asking_why(shared: System) -> None:
    user, other = somebody(), somebody()
    alone, both = await shared.session(user), await shared.session(user, other)
    await shared.told(
        alone, user, "fact user: The safe opens with Gruyere.", "note user: Likes Gruyere most."
    )
    await shared.write(alone, user, "Gruyere again tomorrow.")
    of_another_agent = await shared.session(user, agent_id="another")
    await shared.write(of_another_agent, user, "Gruyere for the other agent.")
    mine = str(await shared.service.why("Gruyere", user=user))
    assert all(text in mine for text in ("safe opens", "Likes Gruyere", "again tomorrow"))
    assert "other agent" not in mine
    await shared.write(both, other, "Hello.")
    for session, asker in ((None, other), (None, None), (both, user), (both, other), (alone, other)):
        said = str(await shared.service.why("Gruyere", session=session, user=asker))
        assert "Gruyere" not in said, (session, asker)
        assert encode_id(alone) not in said


async def test_every_door_answers_why(shared: System, doors: EveryDoor) -> None:
    user = somebody()
    await shared.write(await shared.session(user), user, "Pixel waits at the door.")
    await becomes(shared, user, "Pixel waits", "waiting")
    params = {"text": "Pixel waits", "user": user}
    (over_http,) = (await doors.http.get(f"/v1/agents/{AGENT}/why", params=params)).json()
    assert (over_http["outcome"], over_http["content"]) == ("waiting", "Pixel waits at the door.")
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "why", "arguments": params},
    }
    answer = await doors.http.post("/mcp", content=json.dumps(body), headers=HEADERS)
    assert '"waiting"' in answer.text.replace("\\", "")
    said = await eden(shared.settings, "why", "Pixel waits", "--user", user, "--agent", AGENT)
    assert "message Pixel waits at the door." in said
    assert "waiting: no window holds it yet" in said
    assert (await doors.http.get(f"/v1/agents/{AGENT}/why", params={"text": " "})).status_code == 422
