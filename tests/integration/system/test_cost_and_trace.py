"""What memory cost, where it came from, and what may be spent: over the whole pipeline, from what is stored."""

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any

import pytest

from eden_memory.assembly import handlers
from eden_memory.cli.cost import shares_of
from eden_memory.cli.following_commands import lineage_of
from eden_memory.errors import EdenError
from eden_memory.models.provider_calls import Tokens
from eden_memory.mongo.ids import encode_id
from eden_memory.names import span_id, trace_id
from eden_memory.observability.lineage import Node, total
from eden_memory.schemas.events import ModelCalled, Watermark
from eden_memory.settings import Settings
from eden_memory.usage.budget_store import MongoBudgets
from eden_memory.usage.usage_store import MongoTotals, UsageQuery
from tests.awaiting import gives
from tests.integration.replay.reform_kit import quiet
from tests.integration.system.commands import eden
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.serving import Serving
from tests.names import NAMES

pytestmark = pytest.mark.servers
TOPICS = (
    "chat.messages",
    "memory.formations",
    "memory.extractions",
    "memory.candidates",
    "memory.facts",
    "memory.reflections",
    "memory.consolidations",
    "memory.changes",
    "memory.usage",
)
ALWAYS = UsageQuery("2000-01-01", "2999-12-31")
MICRO = Decimal("0.000001")
TALK = "note session: The talk is about hives."
NOTES = [f"note user: Wants answer number {n}." for n in range(4)]


class Priced:
    """A price for every model: a micro-dollar a token of input, four of output."""

    def cost(self, provider: str, model: str, tokens: Tokens, at: datetime | None = None) -> Decimal:
        del provider, model, at
        return MICRO * (tokens.input + 4 * tokens.output)


@pytest.fixture(scope="module")
async def priced(shared_settings: Settings, shared_models: Serving) -> AsyncGenerator[System]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handlers, "Prices", Priced)
        async with system(fast(shared_settings, shared_models), shared_models) as running:
            yield running


def kinds(node: Node) -> set[str]:
    return {node.kind}.union(*(kinds(one) for one in node.nodes))


def find(node: Node, kind: str) -> list[Node]:
    own = [node] if node.kind == kind else []
    return own + [found for one in node.nodes for found in find(one, kind)]


async def called(running: System) -> dict[str, ModelCalled]:
    events = [one.event for one in await running.records("memory.usage")]
    return {one.call_id: one for one in events if isinstance(one, ModelCalled)}


def requests(calls: dict[str, ModelCalled]) -> int:
    """As the provider counts them."""
    return sum(one.requests for one in calls.values())


async def test_what_follows_from_a_message_is_one_trace_and_told_to_the_cent_forth_and_back(
    priced: System,
) -> None:
    session = await priced.session("ann")
    said = ["fact user: Ann keeps nine bees in Tarn.", "fact user: Ann's hive stands in Albi.", *NOTES, TALK]
    messages = [encode_id(one) for one in await priced.told(session, "ann", *said)]
    await priced.shows(session, "ann", "<Consolidated>", "nine bees")
    await quiet(priced)
    await every_record_is_in_the_trace(priced, session)
    calls = await every_call_is_in_the_totals(priced)
    await the_message_leads_to_its_memory(priced, messages[0])
    await memory_leads_back_to_the_messages(priced, messages)
    await shares_add_up_to_the_calls(priced, calls)
    await commands_say_the_same(priced, messages[0], calls)


async def every_record_is_in_the_trace(running: System, session: str) -> None:
    """One trace id, and each record's parent is a record that there is."""
    wanted = trace_id(encode_id(session))
    traces: dict[str, tuple[str, str]] = {}
    for topic in TOPICS:
        records = [
            one for one in await running.records(topic) if one.headers["ce_type"] != "eden.Watermark.v1"
        ]
        assert records, f"nothing came on {topic}"
        for one in records:
            _, trace, parent, _ = one.headers["traceparent"].split("-")
            assert trace == wanted, f"{topic} {one.key}"
            traces[span_id(one.headers["ce_id"])] = parent, topic
    roots = {topic for span, (parent, topic) in traces.items() if parent == span}
    assert roots == {"chat.messages"}
    assert {parent for parent, _ in traces.values()} <= traces.keys()


async def every_call_is_in_the_totals(running: System) -> dict[str, ModelCalled]:
    totals = MongoTotals(running.database, NAMES)

    async def all_counted() -> bool:
        (found,) = await totals.sums(ALWAYS) or [None]
        return found is not None and found.counts["calls"] == requests(await called(running))

    await until(all_counted, "all calls counted")
    calls = await called(running)
    (found,) = await totals.sums(ALWAYS)
    assert found.cost_usd == sum((one.cost_usd for one in calls.values() if one.cost_usd), Decimal(0)) > 0
    assert await totals.facts_formed(ALWAYS) == 2
    assert await totals.messages_formed(ALWAYS) == 7
    return calls


async def the_message_leads_to_its_memory(running: System, message: str) -> None:
    async def shown() -> bool:
        return "context" in kinds(await lineage_of(running.settings, message))

    await until(shown, "a context that shows it")
    node = await lineage_of(running.settings, message)
    assert kinds(node) == {"message", "window", "call", "fact", "reflection", "blob", "context"}
    facts = find(node, "fact")
    assert [one.told["decision"] for one in facts] == ["ADD", "ADD"]
    assert sorted(one.told["rests_on_message"] for one in facts) == [False, True]
    call = next(one for one in find(node, "call") if one.told["stage"] == "fact-extraction")
    assert call.told["prompt"].startswith("fact-extraction/")
    assert Decimal(call.told["cost_usd"]) > 0
    assert "nine bees" not in str(node.as_dict(content=False))
    assert "nine bees" in str(node.as_dict(content=True))


async def memory_leads_back_to_the_messages(running: System, messages: list[str]) -> None:
    fact = await running.memory("facts").find_one({"content": {"$regex": "nine bees"}})
    blob = await running.memory("consolidated").find_one({"user_id": encode_id("ann")})
    reflection = await running.memory("reflections").find_one({"message_ids": messages[2]})
    notes = set(messages[2:6])
    for name, wanted in (
        (fact["_id"], {messages[0]}),
        (f"{fact['_id']}@1", {messages[0]}),
        (f"{blob['_id']}@1", notes),
        (blob["_id"], notes),
        (reflection["_id"], {messages[2]}),
    ):
        node = await lineage_of(running.settings, name)
        assert {one.id for one in find(node, "message")} == wanted, name
    with pytest.raises(EdenError, match="nothing is known"):
        await lineage_of(running.settings, "no such thing")


async def shares_add_up_to_the_calls(running: System, calls: dict[str, ModelCalled]) -> None:
    facts = await running.memory("facts").find().to_list()
    usd = Decimal(0)
    for fact in facts:
        shares = await shares_of(running.settings, fact["_id"])
        assert {one.of for one in shares} >= {"extraction", "vector"}
        usd += total(shares)[0] or 0
    of_facts = [one.cost_usd for one in calls.values() if one.stage in ("fact-extraction", "fact-dedup")]
    assert usd.quantize(MICRO) == sum((one for one in of_facts if one), Decimal(0)).quantize(MICRO)
    blob = await running.memory("consolidated").find_one({"user_id": encode_id("ann")})
    shares = await shares_of(running.settings, blob["_id"])
    assert sorted(one.of for one in shares) == ["consolidation", *["reflection"] * 4]


async def commands_say_the_same(running: System, message: str, calls: dict[str, ModelCalled]) -> None:
    """`eden cost`, `eden budget` and `eden trace`, as a person or a program reads them."""
    usd = sum((one.cost_usd for one in calls.values() if one.cost_usd), Decimal(0))
    told = json.loads(await printed(running, "cost", "month", "--by", "stage", "--json"))
    assert (Decimal(told["cost_usd"]), told["calls"], told["unpriced_calls"]) == (usd, requests(calls), 0)
    assert (told["facts_formed"], told["messages_formed"]) == (2, 7)
    assert Decimal(told["usd_per_fact"]) == (usd / 2).quantize(MICRO)
    assert {one["stage"] for one in told["groups"]} == {one.stage for one in calls.values()}
    assert sum(Decimal(one["cost_usd"]) for one in told["groups"]) == usd
    shown = await printed(running, "cost", "month", "--by", "agent")
    assert f"{usd:.6f} USD for {requests(calls)} calls" in shown
    assert encode_id(AGENT) in shown
    fact = (await running.memory("facts").find_one({"content": {"$regex": "nine bees"}}))["_id"]
    one = json.loads(await printed(running, "cost", "memory", fact, "--json"))
    assert Decimal(one["cost_usd"]) == total(await shares_of(running.settings, fact))[0]
    back = json.loads(await printed(running, "trace", f"{fact}@1", "--json"))
    assert message in json.dumps(back)
    tree = await printed(running, "trace", message)
    assert fact[:8] in tree
    assert "nine bees" not in tree, "texts are people's words"
    assert "formation requested" in tree
    assert "True" not in tree
    assert "nine bees" in await printed(running, "trace", message, "--content")
    blob = f"user:{encode_id(AGENT)}:{encode_id('ann')}"
    for name in (fact, message, blob):
        tree = await printed(running, "trace", name, "--agent", AGENT, "--user", "ann")
        assert tree == await printed(running, "trace", name)
        with pytest.raises(AssertionError, match="nothing is known under"):
            await printed(running, "trace", name, "--agent", AGENT, "--user", "bob")
    nobody = (await printed(running, "cost", "today", "--by", "model", "--user", "bob")).splitlines()
    assert [line.partition(",")[0] for line in nobody] == ["no model was called"]
    assert "budget */*/month: 100 USD" in await printed(running, "budget", "set", "100", "--per-month")
    (budget,) = json.loads(await printed(running, "budget", "list", "--json"))["budgets"]
    assert (budget["limit_usd"], Decimal(budget["spent_usd"])) == ("100", usd)
    assert "*/*/month" in await printed(running, "budget", "list")
    assert "budget */*/month removed" in await printed(running, "budget", "remove", "--per-month")


async def printed(running: System, *arguments: str) -> str:
    """What a command prints, without the terminal's line breaks."""
    return await eden(running.settings, *arguments)


async def test_a_budget_holds_windows_back_until_there_is_room(priced: System) -> None:
    budgets, agent = MongoBudgets(priced.database, NAMES), encode_id(AGENT)
    spent = (await budgets.set(agent, None, "day", Decimal(0), "test")).spent
    await noticed(priced)
    sessions = [await priced.session(f"user-{n}") for n in range(6)]
    for n, one in enumerate(sessions):
        await priced.write(one, f"user-{n}", f"fact user: User {n} has a boat.")
        await priced.form(one)
    await until(lambda: held_back(priced, 6), "nothing is asked for without room")
    await budgets.set(agent, None, "day", spent + A_LITTLE, "test")

    async def used_up() -> bool:
        """Nothing is in flight, and no room is left for those that wait."""
        (budget,) = (await budgets.all()).values()
        return not await budgets.in_flight() and budget.room <= 0

    await until(used_up, "what was asked for is formed and counted, until the limit")
    assert await held_back(priced, 5), "the first took all the room, though it was a little"
    await budgets.set(agent, None, "day", Decimal(100), "test")
    for n in range(6):
        await until(lambda n=n: has_fact(priced, n), f"the fact of user {n}")
    await until(lambda: held_back(priced, 0), "nothing waits any more")
    requests = [one.event for one in await priced.records("memory.formations")]
    assert len(requests) == len({one.key() for one in requests})


A_LITTLE = Decimal("0.000001")


class Ahead(datetime):
    """The clock of a process that runs ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "Ahead":  # pyright: ignore[reportIncompatibleMethodOverride]
        at = datetime.now(tz) + timedelta(days=400)
        return cls.fromtimestamp(at.timestamp(), tz)


@pytest.mark.slow
async def test_a_clock_that_ran_ahead_lets_no_window_over_a_budget(
    priced: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets, agent = MongoBudgets(priced.database, NAMES), encode_id(AGENT)
    spent = (await budgets.set(agent, None, "day", Decimal(100), "test")).spent
    await budgets.set(agent, None, "day", spent + A_LITTLE, "test")
    with monkeypatch.context() as ahead:
        ahead.setattr("eden_memory.models.provider_calls.datetime", Ahead)
        session = await priced.session("gus")
        await priced.told(session, "gus", "fact user: Gus has a kite.")

        async def counted() -> bool:
            (budget,) = (await budgets.all()).values()
            return budget.spent > spent and not await budgets.in_flight()

        await until(counted, "its calls are counted")
    (budget,) = (await budgets.all()).values()
    assert budget.spent > spent
    assert budget.period == f"{datetime.now(UTC):%Y-%m-%d}"
    limit = budget.spent + A_LITTLE
    await budgets.set(agent, None, "day", limit, "test")
    users = [f"late-{n}" for n in range(8)]
    for user in users:
        one = await priced.session(user)
        await priced.write(one, user, f"fact user: {user} has a kite.")
        await priced.form(one)
    await until(lambda: some_held_back(priced), "there is no room for all")
    await until(counted, "what was asked for is formed and counted")
    await noticed(priced)
    (budget,) = (await budgets.all()).values()
    assert budget.spent < limit + Decimal("0.06"), "but for what was in flight"
    await budgets.set(agent, None, "day", Decimal(100), "test")
    for user in users:
        await until(
            lambda user=user: gives(priced.facts(user), [f"{user} has a kite."]), f"the fact of {user}"
        )


async def some_held_back(running: System) -> bool:
    return not await held_back(running, 0)


async def noticed(running: System) -> None:
    """Until another watermark has passed: by then the trigger has read the budgets anew."""
    before = len(await watermarks(running))

    async def passed() -> bool:
        return len(await watermarks(running)) >= before + 12

    await until(passed, "a few seconds of watermarks")


async def watermarks(running: System) -> list[Any]:
    records = await running.records("chat.messages")
    return [one for one in records if one.value is not None and isinstance(one.event, Watermark)]


async def held_back(running: System, windows: int) -> bool:
    rows = await running.memory("sessions").find({"waits_for": {"$regex": "^budget "}}).to_list()
    return sum(not one["requested"] for row in rows for one in row["outbox"]) == windows


async def has_fact(running: System, n: int) -> bool:
    return bool(await running.facts(f"user-{n}"))
