"""MongoDB has lost every collection of ours: the topics restore them, and formation goes on as before."""

from collections import Counter
from collections.abc import AsyncGenerator

import pytest
from rich.console import Console

from eden_memory.cli.replay.rebuild import from_nothing
from eden_memory.errors import EdenError
from eden_memory.kafka.groups import GroupAdmin
from eden_memory.kafka.topic_reading import TopicOffsets
from eden_memory.kafka.topics import load_topics
from eden_memory.mongo.ids import encode_id
from eden_memory.processors import pipeline
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.replay.rebuild.document_comparing import MemoryComparison
from eden_memory.schemas.events import FormationRequested
from eden_memory.settings import Settings
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.script import Asked, Said
from tests.model_server.serving import Serving, serving

pytestmark = pytest.mark.servers
KEPT = ("memory_inbox",)
QUIET = Console(quiet=True)


@pytest.fixture
async def asked() -> list[Asked]:
    """Every question to a model."""
    return []


@pytest.fixture
async def lived(settings: Settings, asked: list[Asked]) -> AsyncGenerator[System]:
    """Two users' sessions formed, one of them ended, something forgotten, and a message that waits."""

    def script(one: Asked) -> Said:
        asked.append(one)
        return obey(one)

    async with serving(script) as models, system(fast(settings, models), models, run=False) as one:
        async with stages(one.settings):
            first = await one.session("ann", id="first")
            second = await one.session("bob", id="second")
            await one.told(
                first, "ann", "fact user: Ann keeps nine bees in Tarn.", "note user: Likes tables."
            )
            (gone,) = await one.told(first, "ann", "fact user: Ann has a red bicycle.")
            await one.told(
                first, "ann", *(f"note user: Wants {what}." for what in ("brief", "jokes", "maps"))
            )
            await one.write(
                second, "bob", "fact user: Bob sails the Tern.", "note session: It is about boats."
            )
            await one.end(second)
            await until(lambda: _is_closed(one), "the second session is consolidated")
            await one.forget("message", gone)
            await until(lambda: _facts_are(one, "ann", ["Ann keeps nine bees in Tarn."]), "forgotten")
            await one.write(first, "ann", "fact user: Ann plans to sell honey.")
            await until(lambda: _waits(one, 1), "it waits")
            await settled(one)
        yield one


async def _is_closed(one: System) -> bool:
    return (await one.snapshot(f"session:{encode_id('second')}")).get("blob_version") == 1


async def _facts_are(one: System, user: str, facts: list[str]) -> bool:
    return await one.facts(user) == facts


async def _waits(one: System, count: int) -> bool:
    return await one.memory("messages").count_documents({"formation_id": None, "place": {"$gt": 0}}) == count


async def settled(one: System) -> None:
    """Until the writer has read everything, and nothing waits in an outbox."""
    topics = load_topics(one.settings.kafka)

    async def so() -> bool:
        async with GroupProgress(
            one.client, {topics.group("atlas-writer"): topics.read_by("atlas-writer")}
        ) as places:
            ends, reached = await places.ends(), await places.reached()
        return all(reached.get(tp, 0) >= end for tp, end in ends.items())

    await until(so, "all is written")


async def lose_everything(one: System) -> None:
    """Every collection of ours; memory is copied before, to be compared with."""
    for name in await one.database.list_collection_names():
        if name.startswith("memory_") and name not in KEPT:
            await (await one.database[name].aggregate([{"$out": f"copy_{name}"}])).to_list()
            await one.database[name].drop()


async def _rewind(one: System) -> None:
    """As if all stages had been killed before their first commit: everything comes again."""
    topics = load_topics(one.settings.kafka)
    for stage in ("formation-trigger", "fact-extraction", "fact-dedup", "reflection-extraction"):
        async with (
            TopicOffsets(one.client, topics.read_by(stage)) as places,
            GroupAdmin(one.client) as groups,
        ):
            await groups.commit(topics.group(stage), dict.fromkeys(await places.ends(), 0), anew=True)


async def _windows(one: System) -> dict[str, list[str]]:
    """Each window with its messages."""
    events = [came.event for came in await one.records("memory.formations")]
    windows = {event.formation_id: event for event in events if isinstance(event, FormationRequested)}
    return {name: [ref.message_id for ref in window.messages] for name, window in windows.items()}


@pytest.mark.parametrize(
    "again",
    [pytest.param(False, id="committed", marks=pytest.mark.slow), pytest.param(True, id="all comes again")],
)
async def test_what_the_topics_hold_is_restored_and_formation_goes_on(
    lived: System, asked: list[Asked], again: bool
) -> None:
    before = await _windows(lived)
    states = await lived.memory("sessions").find(sort=[("_id", 1)]).to_list()
    if again:
        await _rewind(lived)
    await lose_everything(lived)
    await from_nothing(lived.settings, QUIET)
    comparing = MemoryComparison(lived.database, "copy_memory_", "memory_")
    assert not (await comparing.whole()).differing
    restored = await lived.memory("sessions").find(sort=[("_id", 1)]).to_list()
    names = ("_id", "seq", "controls", "audience_changes", "users", "outbox", "partition")
    assert [{key: row[key] for key in names} for row in restored] == [
        {key: row[key] for key in names} for row in states
    ]
    assert await _waits(lived, 1)
    asked.clear()
    async with stages(lived.settings):
        await lived.told("first", "ann", "fact user: Ann moved to Albi.")
        await settled(lived)
    assert await lived.facts("ann") == [
        "Ann keeps nine bees in Tarn.",
        "Ann moved to Albi.",
        "Ann plans to sell honey.",
    ]
    assert await lived.facts("bob") == ["Bob sails the Tern."]
    assert len(await lived.contents("reflections")) == 5
    windows = await _windows(lived)
    assert before.items() <= windows.items()
    assert len(windows) == len(before) + 1
    assert max(Counter(one for of in windows.values() for one in of).values()) == 1
    assert Counter(one.kind for one in asked) <= Counter({"facts": 1, "reflections": 2, "decisions": 1})
    await from_nothing(lived.settings, QUIET)  # once more does nothing


async def test_what_was_forgotten_before_the_trigger_had_read_it_does_not_come_back(lived: System) -> None:
    """The mark is restored first, so the trigger never takes the message as waiting."""
    behind = set(pipeline.NAMES) - {"formation-trigger"}
    async with stages(lived.settings, behind):
        (hidden,) = await lived.write("first", "ann", "fact user: Ann hides her gold.")
        await lived.form("first")
        await lived.forget("session", "first")
        await until(lambda: _is_forgotten(lived, "first"), "the session is forgotten")
    await lose_everything(lived)
    await from_nothing(lived.settings, QUIET)
    async with stages(lived.settings):
        await lived.told("first", "ann", "fact user: Ann moved to Albi.")
        await settled(lived)
    assert await lived.facts("ann") == ["Ann moved to Albi."]
    await _nothing_is_left_of(lived, hidden)


@pytest.mark.slow
async def test_what_was_forgotten_stays_so_when_it_is_edited_after_everything_was_lost(lived: System) -> None:
    async with stages(lived.settings):
        hidden = await lived.told("first", "ann", "fact user: Ann hides her gold.")
        hidden += await lived.write("first", "ann", "fact user: Ann has debts.")
        await until(lambda: _waits(lived, 1), "it waits")
        await lived.forget("session", "first")
        await until(lambda: _is_forgotten(lived, "first"), "the session is forgotten")
        await settled(lived)
    await lose_everything(lived)
    await from_nothing(lived.settings, QUIET)
    async with stages(lived.settings):
        for one in hidden:
            change = {"$set": {"content": "fact user: Ann hides her gold elsewhere."}}
            await lived.source["messages"].update_one({"_id": one}, change)
        await lived.told("first", "ann", "fact user: Ann moved to Albi.")
        await settled(lived)
    assert await lived.facts("ann") == ["Ann moved to Albi."]
    for one in hidden:
        await _nothing_is_left_of(lived, one)


async def _is_forgotten(one: System, session: str) -> bool:
    """Forgetting has carried out all that was asked."""
    topics = load_topics(one.settings.kafka)
    async with GroupProgress(
        one.client, {topics.group("forgetting"): topics.read_by("forgetting")}
    ) as places:
        ends, reached = await places.ends(), await places.reached()
    marked = await one.memory("forgotten").find_one({"kind": "session", "target": encode_id(session)})
    return marked is not None and all(reached.get(tp, 0) >= end for tp, end in ends.items())


async def _nothing_is_left_of(one: System, message: str) -> None:
    row = await one.memory("messages").find_one({"_id": encode_id(message)})
    assert (row["text"], row["forgotten"]) == (None, True)
    windows = await one.memory("windows").find({"messages.message_id": encode_id(message)}).to_list()
    texts = {told["text"] for window in windows for told in window["messages"]}
    assert texts <= {None}
    newest = [came for came in await one.records("chat.messages") if came.key == encode_id(message)][-1]
    assert newest.value is None


async def test_while_anything_is_there_or_anybody_runs_nothing_is_restored(
    settings: Settings, shared_models: Serving
) -> None:
    async with system(fast(settings, shared_models), shared_models, run=False) as one:
        await one.memory("facts").insert_one({"_id": "there"}, bypass_document_validation=True)
        with pytest.raises(EdenError, match=r"memory_facts \(1\)"):
            await from_nothing(one.settings, QUIET)
        await one.memory("facts").delete_many({})
        async with stages(one.settings, ("formation-trigger",)):
            await until(lambda: _busy(one), "somebody reads")
        await from_nothing(one.settings, QUIET)


async def _busy(one: System) -> bool:
    try:
        await from_nothing(one.settings, QUIET)
    except EdenError as error:
        return "somebody reads" in error.what
    await one.memory("installation").delete_many({})
    return False
