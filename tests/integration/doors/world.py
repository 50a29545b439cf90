"""A world with a marked secret in every memory space, and who may see which: what no door may ever mix up."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from bson import ObjectId

from eden_memory.assembly.model_factory import Models
from eden_memory.models.call_accounts import Prices
from eden_memory.models.stored_answers import MongoAnswers
from eden_memory.mongo.documents import row_of
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.documents import Consolidated, Fact, FactVersion, Reflection
from eden_memory.schemas.scopes import Scope
from tests.integration.context.harness import Kit, now
from tests.integration.context.harness import fact as recent
from tests.integration.context.harness import reflection as buffered
from tests.names import NAMES

MARK = re.compile(r"zq[0-9a-f]{12}")
AGENTS: tuple[Any, ...] = ("a", "b")
USERS: tuple[Any, ...] = (
    "ada",
    "bob",
    5,
    "5",
    ObjectId("65f000000000000000000001"),
    "ada:bob",
    "$ne",
    "../bob",
    ".*",
)
GROUPS: tuple[Any, ...] = ("red", "blue")


@dataclass(frozen=True)
class Session:
    """One conversation."""

    id: Any
    agent: Any
    users: tuple[Any, ...]
    group: Any = None

    @property
    def scope(self) -> Scope:
        return Scope.of_session(encode_id(self.agent), encode_id(self.id), tuple(map(encode_id, self.users)))


def _sessions() -> Iterable[Session]:
    for agent in AGENTS:
        for number, user in enumerate(USERS):
            yield Session(f"alone-{agent}-{number}", agent, (user,), GROUPS[number % 2])
        yield Session(f"both-{agent}", agent, ("ada", "bob"), "red")
    yield Session(7, "a", ("bob",), "blue")
    yield Session("7", "a", ("ada",), "red")


SESSIONS = tuple(_sessions())


def mark_of(key: str) -> str:
    """The word that stands in this memory space alone."""
    return "zq" + sha256(key.encode()).hexdigest()[:12]


def name_of(key: str) -> str:
    """What ids of this space are made of: no secret."""
    return sha256(f"id of {key}".encode()).hexdigest()[:12]


def scopes() -> list[Scope]:
    """Every memory space."""
    found: list[Scope] = []
    for agent in map(encode_id, AGENTS):
        found.append(Scope.of_agent(agent))
        found += [Scope.of_user(agent, encode_id(one)) for one in USERS]
        found += [Scope.of_group(agent, encode_id(one)) for one in GROUPS]
    return found + [one.scope for one in SESSIONS]


def fact_id(scope: Scope, number: int = 0) -> str:
    """Of a stored fact: 0 stands, 1 is retired."""
    return f"f{number}-{name_of(scope.key)}"


def groups_of(user: Any) -> set[Any]:
    """The groups that list this user: those of the user's sessions."""
    return {one.group for one in SESSIONS if encode_id(user) in map(encode_id, one.users)}


@dataclass(frozen=True)
class Key:
    """An API key; None: all agents, or all users."""

    name: str
    agents: tuple[Any, ...] | None
    users: tuple[Any, ...] | None
    rights: tuple[str, ...] = ("read", "write")

    @property
    def bound(self) -> bool:
        return self.agents is not None or self.users is not None

    def reaches(self, session: Session) -> bool:
        """Its agent and all its users are the key's."""
        agent = self.agents is None or session.agent in self.agents
        return agent and (
            self.users is None or set(map(encode_id, session.users)) <= set(map(encode_id, self.users))
        )

    def seen(self) -> set[str]:
        """The marks that this key may ever see, whatever is asked for."""
        reached = [one for one in SESSIONS if self.reaches(one)]
        marks = {mark_of(one.scope.key) for one in reached}
        for agent in AGENTS if self.agents is None else self.agents:
            typed = encode_id(agent)
            marks.add(mark_of(Scope.of_agent(typed).key))
            users = USERS if self.users is None else self.users
            marks |= {mark_of(Scope.of_user(typed, encode_id(one)).key) for one in users}
            groups = {one.group for one in reached if one.agent == agent}.union(*map(groups_of, users))
            marks |= {mark_of(Scope.of_group(typed, encode_id(one)).key) for one in groups if one is not None}
        return marks


KEYS = (
    Key("ada-on-a", ("a",), ("ada",)),
    Key("bob-on-a", ("a",), ("bob",), ("read", "write", "admin")),
    Key("both-on-a", ("a",), ("ada", "bob")),
    Key("five-on-a", ("a",), (5,)),
    Key("operator-on-a", ("a",), ("$ne", ".*")),
    Key("agent-b", ("b",), None),
    Key("all", None, None),
)
LOCAL = Key("local", None, None, ("read", "write", "admin"))


def asked_marks(agent: Any, session: Any, user: Any) -> set[str]:
    """The marks that a request for this agent, session and user may ever be answered with."""
    typed = encode_id(agent)
    marks = {mark_of(Scope.of_agent(typed).key)}
    if user is not None:
        marks.add(mark_of(f"user:{typed}:{encode_id(user)}"))
        if session is None:
            marks |= {mark_of(Scope.of_group(typed, encode_id(one)).key) for one in groups_of(user)}
    for one in SESSIONS:
        if session is not None and encode_id(one.id) == encode_id(session):
            marks.add(mark_of(Scope.of_group(typed, encode_id(one.group)).key))
            if one.agent == agent:
                marks.add(mark_of(one.scope.key))
    return marks


@dataclass
class Verdict:
    """What came out of a door that should not have."""

    cases: int = 0
    let_through: int = 0
    crossings: list[str] = field(default_factory=list[str])

    def judge(self, what: str, text: str, allowed: Iterable[str]) -> None:
        """One answer."""
        self.cases += 1
        found = set(MARK.findall(text))
        self.let_through += bool(found)
        if others := found - set(allowed):
            self.crossings.append(f"{what}: {sorted(others)}")


async def fill(kit: Kit) -> None:
    """Sessions, and in every space a fact with an earlier text, a retired one, a reflection and a blob."""
    for one in SESSIONS:
        await kit.session(one.id, one.users, one.agent, group_id=one.group)
        for user in one.users:
            message = {"_id": f"m-{one.id!r}-{user!r}", "session_id": one.id, "user_id": user, "role": "user"}
            await kit.database["messages"].insert_one(
                message | {"content": f"hello {mark_of(one.scope.key)}"}
            )
    await remember(kit, scopes())


async def remember(kit: Kit, everywhere: Sequence[Scope]) -> None:
    """A secret of its own in each of these memory spaces."""
    texts = [f"The secret word is {mark_of(one.key)}." for one in everywhere]
    models = Models(kit.settings, MongoAnswers(kit.database, NAMES), Prices().cost)
    vectors = [one.vector for one in await models.embedder.embed(texts)]
    named = models.embedder.model
    await models.close()
    for scope, text, vector in zip(everywhere, texts, vectors, strict=True):
        await _fill(kit, scope, text, vector, named)


async def _fill(kit: Kit, scope: Scope, text: str, vector: bytes, model: str) -> None:
    spread: dict[str, Any] = {
        "scope": scope.kind,
        "scope_key": scope.key,
        "agent_id": scope.agent_id,
        "group_id": scope.group_id,
        "user_id": scope.user_id,
    }
    facts: Sequence[Fact] = () if scope.kind == "session" else _facts(scope, spread, text, vector, model)
    if facts:
        await kit.database["memory_facts"].insert_many([row_of(one) for one in facts])
    remembered = Reflection(
        _id=f"r-{name_of(scope.key)}", content=text, position=1, formed_at=now(), said_at=now(), **spread
    )
    await kit.database["memory_reflections"].insert_one(row_of(remembered))
    blob = Consolidated(
        _id=scope.key,
        content=text,
        version=1,
        word_limit=200,
        absorbed=(),
        last_consolidated_at=now(),
        said_at=now(),
        **spread,
    )
    await kit.database["memory_consolidated"].insert_one(row_of(blob))
    await kit.put(
        scope,
        blob=text,
        blob_version=1,
        buffer=(buffered(text),),
        recent_facts=(recent(text),) if facts else (),
        active_facts=1 if facts else 0,
    )


def _facts(scope: Scope, spread: dict[str, Any], text: str, vector: bytes, model: str) -> Sequence[Fact]:
    earlier = FactVersion(version=1, content=f"Before: {text}", decision="ADD", valid_from=now())
    return [
        Fact(
            _id=fact_id(scope, number),
            content=text,
            hash=sha256(f"{scope.key}{number}".encode()).hexdigest(),
            embedding=vector,
            embedding_model=model,
            active=number == 0,
            version=2,
            history=(earlier,),
            decision="UPDATE",
            formed_at=now(),
            said_at=now(),
            valid_from=now(),
            retired_at=None if number == 0 else now(),
            revision=1,
            **spread,
        )
        for number in (0, 1)
    ]
