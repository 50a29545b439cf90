"""Facts as the writer stores them, for tests that read them through the tools."""

from collections.abc import Sequence

from eden_memory.assembly.model_factory import Models
from eden_memory.models.call_accounts import Prices
from eden_memory.models.stored_answers import MongoAnswers
from eden_memory.mongo.documents import row_of
from eden_memory.schemas.documents import Fact
from eden_memory.schemas.scopes import Scope
from tests.integration.context.harness import Kit, now
from tests.names import NAMES


async def remember(kit: Kit, scope: Scope, *texts: str) -> None:
    """Active facts `<scope kind>-<user>-<number>`, with the vectors of the model that searches."""
    models = Models(kit.settings, MongoAnswers(kit.database, NAMES), Prices().cost)
    vectors = [one.vector for one in await models.embedder.embed(texts)]
    await models.close()
    await store_facts(kit, scope, texts, vectors, models.embedder.model)


async def store_facts(
    kit: Kit, scope: Scope, texts: Sequence[str], vectors: Sequence[bytes | None], model: str
) -> None:
    """The same with given vectors."""
    facts = [
        Fact(
            _id=f"{scope.kind}-{scope.user_id}-{number}",
            scope=scope.kind,
            scope_key=scope.key,
            agent_id=scope.agent_id,
            user_id=scope.user_id,
            content=text,
            hash=f"{abs(hash((scope.key, text))):064x}"[:64],
            embedding=vectors[number],
            embedding_model=model,
            active=True,
            version=1,
            decision="ADD",
            formed_at=now(),
            said_at=now(),
            valid_from=now(),
            revision=1,
        )
        for number, text in enumerate(texts)
    ]
    await kit.database["memory_facts"].insert_many([row_of(one) for one in facts])
    await kit.put(scope, active_facts=len(facts), revision=1)
