"""Memory of two agents, three users and a group, as the writer stores it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from eden_memory.memory.memory_batch import fact_hash
from eden_memory.mongo.documents import row_of
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.documents import Consolidated, Fact, Reflection
from eden_memory.schemas.provenance import Call, SourceMessage
from eden_memory.schemas.scopes import Scope
from tests.integration.context.harness import Kit

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
AGENT, OTHER_AGENT = Scope.of_agent("s.a"), Scope.of_agent("s.b")
ADA, BOB = Scope.of_user("s.a", "s.ada"), Scope.of_user("s.a", "s.bob")
ADA_OF_B = Scope.of_user("s.b", "s.ada")
YARD = Scope.of_group("s.a", "s.yard")
ALONE = Scope.of_session("s.a", "s.one", ("s.ada",))
CALL = Call(call_id="c1", model="fast", prompt="fact-decision/1", cost_usd=Decimal("0.004"), items=4)


def spread(scope: Scope) -> dict[str, Any]:
    """The scope, as documents have it."""
    return {
        "scope": scope.kind,
        "scope_key": scope.key,
        "agent_id": scope.agent_id,
        "group_id": scope.group_id,
        "user_id": scope.user_id,
    }


def source(user: str | None, session: str = "s.one", message: str = "s.m1") -> SourceMessage:
    return SourceMessage(message_id=message, version="0" * 16, session_id=session, user_id=user, time=AT)


def fact(name: str, scope: Scope, text: str, minutes: int = 0, **fields: Any) -> Fact:
    """Stated so many minutes after AT."""
    at = AT + timedelta(minutes=minutes)
    rest: dict[str, Any] = {"active": True, "version": 1, "decision": "ADD", "call": CALL}
    rest |= {"formed_at": at, "said_at": fields.get("formed_at", at), "valid_from": at}
    return Fact(
        _id=name,
        content=text,
        hash=fact_hash(text),
        revision=1,
        **spread(scope),
        **(rest | fields),
    )


def reflection(name: str, scope: Scope, text: str, minutes: int = 0, **fields: Any) -> Reflection:
    at = AT + timedelta(minutes=minutes)
    said: dict[str, Any] = {"said_at": at}
    return Reflection(_id=name, content=text, position=1, formed_at=at, **spread(scope), **{**said, **fields})


def blob(scope: Scope, text: str, **fields: Any) -> Consolidated:
    said: dict[str, Any] = {"said_at": AT}
    return Consolidated(
        _id=scope.key,
        content=text,
        version=2,
        word_limit=300,
        absorbed=(),
        last_consolidated_at=AT,
        **spread(scope),
        **{**said, **fields},
    )


async def store(kit: Kit, documents: Sequence[Fact | Reflection | Consolidated]) -> None:
    """Each into its collection."""
    for one in documents:
        await kit.database["memory_" + one.COLLECTION].insert_one(row_of(one))


SCOPES = (AGENT, OTHER_AGENT, ADA, BOB, ADA_OF_B, YARD, ALONE)


def marked(scope: Scope) -> str:
    """Stands in whatever is of the scope, and nowhere else."""
    return f"mark-{SCOPES.index(scope)}-mark"


async def fill(kit: Kit) -> None:
    """Of every scope a fact (not of the session), a reflection and a blob; sessions one (ada) and both (ada, bob)."""
    await kit.session("one", ["ada"])
    await kit.session("both", ["ada", "bob"], group_id="yard")
    for number, scope in enumerate(SCOPES):
        mark = marked(scope)
        documents: list[Any] = [
            reflection(f"r-{number}", scope, f"reflects {mark}"),
            blob(scope, f"blob {mark}"),
        ]
        if scope.kind != "session":
            documents.append(
                fact(f"f-{number}", scope, f"says {mark}", number, sources=(source(scope.user_id),))
            )
        await store(kit, documents)
        await kit.put(scope, blob=f"blob {mark}", blob_version=2, active_facts=1)


def fact_of(scope: Scope) -> str:
    return f"f-{SCOPES.index(scope)}"


async def inbox(kit: Kit) -> list[dict[str, Any]]:
    """What was asked, in order."""
    return await kit.database["memory_inbox"].find(sort=[("_id", 1)]).to_list()


def typed(value: Any) -> str:
    return encode_id(value)
