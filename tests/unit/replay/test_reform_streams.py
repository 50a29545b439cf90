"""A reform with streams of its own: recorded windows get its shards, and lose what it switches off."""

from eden_memory.replay.reform.reform_settings import with_streams
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.scopes import Scope
from eden_memory.windows.window_rule import Limits
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import asked, formations, message, run, trigger

AGENT, SESSION = "s.default", "s.s"


async def window() -> FormationRequested:
    """As formation-trigger records it, of one user's session."""
    (one,) = formations(
        await run(
            trigger(MemoryStore(Limits())),
            [message("s.m", SESSION, 1, 0, user="s.ada"), asked(SESSION, 2, 1)],
        )
    )
    return one


def stream(scope: str, shard: str | None = None, *, active: bool = True) -> Stream:
    name = f"{AGENT}/{scope}" + (f"/{shard}" if shard else "")
    return Stream.model_validate(
        {"_id": name, "agent_id": AGENT, "scope": scope, "shard": shard, "active": active}
    )


async def test_shards_stand_behind_their_agent_and_what_is_off_is_left_out() -> None:
    recorded = await window()
    assert [one.kind for one in recorded.scopes] == ["agent", "user", "session"]
    own = {
        "shard:b": stream("shard", "b"),
        "shard:a": stream("shard", "a"),
        "shard:off": stream("shard", "off", active=False),
        "user": stream("user", active=False),
        "session": stream("session", active=False),
    }
    formed = with_streams(recorded, {AGENT: own})
    assert [one.key for one in formed.scopes] == [
        Scope.of_agent(AGENT).key,
        Scope.of_shard(AGENT, "a").key,
        Scope.of_shard(AGENT, "b").key,
        f"session:{SESSION}",
    ]
    without_agent = with_streams(recorded, {AGENT: {**own, "agent": stream("agent", active=False)}})
    assert [one.kind for one in without_agent.scopes] == ["shard", "shard", "session"]


async def test_other_agents_streams_change_nothing() -> None:
    recorded = await window()
    assert with_streams(recorded, {"s.other": {"user": stream("user", active=False)}}) is recorded
