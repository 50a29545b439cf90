"""Which model is asked on whose behalf, from a chat write on."""

import pytest

from eden_memory.schemas.events import ModelCalled
from eden_memory.settings import Settings
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
FREE, PAID = "slow-model", "pro-model"
OF_USER = [f"note user: Wants answer number {n}." for n in range(4)]
OF_SESSION = [[f"note session: Step {n} of part {part} is done." for n in range(2)] for part in range(2)]


async def asked(running: System) -> dict[tuple[str, str], set[str]]:
    """(stage, scope or session) → the models that the provider was asked for."""
    found: dict[tuple[str, str], set[str]] = {}
    for one in [record.event for record in await running.records("memory.usage")]:
        assert isinstance(one, ModelCalled)
        found.setdefault((one.stage, one.scope or one.session_id or "-"), set()).add(one.model)
    return found


async def test_tier_and_privacy_of_authors_whom_no_session_lists(
    settings: Settings, shared_models: Serving
) -> None:
    """Sessions have documents, and none of them lists its users: who writes is looked up."""
    chosen = {"sharing": "private", "shared_sessions": "authors"}
    own = fast(settings, shared_models, models={"paid": PAID}, memory=chosen)
    async with system(own, shared_models) as running:
        pia = {"_id": "pia", "tier": 1, "memory_private": True}
        await running.source["users"].insert_many([pia, {"_id": "fred", "tier": 0}])
        sessions = {user: f"of-{user}" for user in ("pia", "fred")}
        for user, session in sessions.items():
            await running.source["sessions"].insert_one({"_id": session, "agent_id": AGENT})
            await running.told(session, user, "note user: Wants lists.")
        models = await asked(running)
        assert models["reflection-extraction", "s.of-pia"] == {PAID}
        assert models["reflection-extraction", "s.of-fred"] == {FREE}
        rows = await running.memory("reflections").find().to_list()
        assert {row["user_id"]: row["private"] for row in rows} == {"s.pia": True, "s.fred": False}


async def test_consolidations_take_the_tier_of_their_scopes_users(
    settings: Settings, shared_models: Serving
) -> None:
    own = fast(settings, shared_models, models={"paid": PAID})
    async with system(own, shared_models) as running:
        await running.source["users"].insert_many([{"_id": "pia", "tier": 1}, {"_id": "fred", "tier": 0}])
        sessions = {user: await running.session(user) for user in ("pia", "fred")}
        team = await running.session("fred", "pia")
        for user, session in (*sessions.items(), ("fred", team)):
            for part in OF_SESSION:
                await running.told(session, user, *part)
        for user, session in sessions.items():
            await running.told(session, user, *OF_USER)

        async def consolidated() -> bool:
            stages = [stage for stage, _ in await asked(running)]
            return stages.count("consolidation") >= 5

        await until(consolidated, "two users and three sessions are consolidated")
        models = await asked(running)
        wanted = {
            "user:s.helper:s.pia": PAID,
            "user:s.helper:s.fred": FREE,
            f"session:s.{sessions['pia']}": PAID,
            f"session:s.{sessions['fred']}": FREE,
            f"session:s.{team}": PAID,
        }
        found = {scope: models for (stage, scope), models in models.items() if stage == "consolidation"}
        assert found == {scope: {model} for scope, model in wanted.items()}
        assert models["reflection-extraction", f"s.{team}"] == {PAID}
