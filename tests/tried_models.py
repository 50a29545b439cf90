"""Models of tests that count as tried by `eden models check`."""

from collections.abc import Collection
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.formation import prompts
from eden_memory.formation.sharing_store import store_trials
from eden_memory.formation.sharing_trial import SharingTrial
from eden_memory.formation.window_question import SharedKnowledge
from eden_memory.models.catalogue import provider_name
from eden_memory.names import Names
from eden_memory.schemas.provenance import Call


class EveryModelTried:
    """Knows nobody's name, and trusts every model's judgement."""

    async def known(self, agent_id: str) -> SharedKnowledge:
        return SharedKnowledge()

    async def may_judge(self, provider: str | None, call: Call) -> bool:
        return True


EVERY_MODEL_TRIED = EveryModelTried()


async def passed(
    memory: AsyncDatabase[dict[str, Any]],
    names: Names,
    url: str,
    *models: str,
    mistakes: int = 0,
    own: Collection[str] = (),
) -> None:
    """Store how many personal statements these models of an endpoint shared, with every prompt and these."""
    used = {*prompts.versions(short=False), *prompts.versions(short=True), *own}
    found = [
        SharingTrial(provider_name(url), model, prompt, 60, mistakes, 60, 60)
        for model in models
        for prompt in used
    ]
    await store_trials(memory, names, found)
