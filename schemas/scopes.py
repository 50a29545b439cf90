"""Scopes: whom a memory is for, and the key that names one memory space."""

from collections.abc import Collection
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Literal, Self
from urllib.parse import quote, unquote

from pydantic import Field, StringConstraints, model_validator

from eden_memory.schemas.fields import Ordinal, Part
from eden_memory.schemas.ids import EntityId

ScopeKind = Literal["session", "user", "group", "agent", "shard"]
"""From narrow to broad; a shard is a named part of an agent's memory."""
Sharing = Literal["private", "team"]
"""Whether memory from sessions with users reaches beyond them (`team`), or stays theirs (`private`)."""
SharingMode = Literal["private", "agents", "team"]
"""Which agents of an installation learn from sessions with users: none, those that say so of themselves, or all."""
NotShared = Literal[
    "person",
    "sensitive",
    "identifier",
    "name",
    "role",
    "planted",
    "private_user",
    "contradicts",
    "taken_back",
    "untried_model",
]
"""The check that kept an item from those who did not take part: the model's judgement (`person`, `sensitive`),
contact data or a number of a person, somebody's name, a role that shares nothing, a planted instruction, a user whose
memory is private, what the operator gave, what a person took back before, a model that `eden models check` has not
passed."""

SharedSessions = Literal["session", "authors"]
"""What a session of several users leaves: memory of the session and its group, or each author's own as well."""

FormedKind = Literal["facts", "reflections"]
FORMED_KINDS: tuple[FormedKind, ...] = ("facts", "reflections")

_ID = r"[siuol]\.[A-Za-z0-9_.~%-]*"
ScopeKey = Annotated[
    str,
    StringConstraints(
        pattern=rf"^(session:{_ID}(:[1-9][0-9]*)?|(user|group):{_ID}:{_ID}|agent:{_ID}|shard:{_ID}:[A-Za-z0-9_.~%-]+)$",
        max_length=4_096,
    ),
]
"""`session:S`, `session:S:2` (its audience grew), `user:A:U`, `group:A:G`, `agent:A`, `shard:A:NAME`."""

LISTED_USERS = 100
"""Users whom a record or document lists, at most, whatever the size of the session."""


class LargeAudience(Part):
    """The users who may see a session's memory, where they are too many to be listed."""

    users: Ordinal
    """How many."""
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of their ids: sorted, each followed by a line feed."""

    @classmethod
    def of(cls, users: frozenset[str]) -> Self:
        """The audience that consists of these users."""
        return cls(users=len(users), hash=_hash_of(users))


Audience = Annotated[tuple[EntityId, ...], Field(max_length=LISTED_USERS)] | LargeAudience
"""Up to 100 users are listed; of more, records hold number and hash."""


def audience_of(users: Collection[str]) -> Audience:
    """These users as records and documents hold them; a short list keeps its order."""
    return tuple(users) if len(users) <= LISTED_USERS else LargeAudience.of(frozenset(users))


@lru_cache(maxsize=16)
def _hash_of(users: frozenset[str]) -> str:
    """Remembered: the contexts of a session are built one after the other."""
    return sha256("".join(f"{user}\n" for user in sorted(users)).encode()).hexdigest()


class AudienceChange(Part):
    """How the audience of a generation of session memory differs from that of an earlier one."""

    joined: tuple[EntityId, ...] = ()
    left: tuple[EntityId, ...] = ()


class Scope(Part):
    """One memory space with the ids that make it; `key` follows from the rest and is checked against it."""

    kind: ScopeKind
    key: ScopeKey
    agent_id: EntityId
    group_id: EntityId | None = None
    user_id: EntityId | None = None
    session_id: EntityId | None = None
    shard: str | None = None
    """The shard's name."""
    generation: Ordinal | None = None
    """Session scopes: 1, and one more whenever a user joined and session memory began anew."""
    audience: Audience = ()
    """Session scopes: the users who may see it; of more than 100 their number and hash."""

    @model_validator(mode="after")
    def _key_follows(self) -> Self:
        if self.key != _key(self):
            raise ValueError("the scope key does not follow from the kind and the ids")
        return self

    @property
    def belongs_to(self) -> str | None:
        """The one user whose memory it is: a user scope's, or the only one who may see a session's."""
        if isinstance(self.audience, tuple) and len(self.audience) == 1:
            return self.audience[0]
        return self.user_id

    @classmethod
    def of_session(
        cls, agent_id: EntityId, session_id: EntityId, audience: Audience, generation: int = 1
    ) -> Self:
        """A session's memory, for the users who were in it."""
        key = f"session:{session_id}" + (f":{generation}" if generation > 1 else "")
        return cls(
            kind="session",
            key=key,
            agent_id=agent_id,
            session_id=session_id,
            generation=generation,
            audience=audience_of(audience) if isinstance(audience, tuple) else audience,
        )

    @classmethod
    def of_user(cls, agent_id: EntityId, user_id: EntityId) -> Self:
        """An agent's memory of one user."""
        return cls(kind="user", key=f"user:{agent_id}:{user_id}", agent_id=agent_id, user_id=user_id)

    @classmethod
    def of_group(cls, agent_id: EntityId, group_id: EntityId) -> Self:
        """An agent's memory of a group of users."""
        return cls(kind="group", key=f"group:{agent_id}:{group_id}", agent_id=agent_id, group_id=group_id)

    @classmethod
    def of_agent(cls, agent_id: EntityId) -> Self:
        """An agent's memory whomever it talks to."""
        return cls(kind="agent", key=f"agent:{agent_id}", agent_id=agent_id)

    @classmethod
    def of_shard(cls, agent_id: EntityId, name: str) -> Self:
        """A named part of an agent's memory, formed by instructions of its own."""
        return cls(
            kind="shard", key=f"shard:{agent_id}:{quote(name, safe='')}", agent_id=agent_id, shard=name
        )

    @classmethod
    def of_key(cls, key: str, agent_id: EntityId, audience: Audience = ()) -> Self:
        """The scope that a key names; only the keys of session scopes do not name the agent themselves."""
        kind, *ids = key.split(":")
        match kind, ids:
            case "session", [session, *generation]:
                return cls.of_session(agent_id, session, audience, int(generation[0]) if generation else 1)
            case "user", [agent, user]:
                return cls.of_user(agent, user)
            case "group", [agent, group]:
                return cls.of_group(agent, group)
            case "shard", [agent, name]:
                return cls.of_shard(agent, unquote(name))
            case "agent", [agent]:
                return cls.of_agent(agent)
            case _:
                raise ValueError("not a scope key")


def _key(scope: Scope) -> str | None:
    """The key that kind and ids call for; None where an id is missing or too many are given."""
    given = (scope.group_id, scope.user_id, scope.session_id, scope.shard, scope.generation)
    match scope.kind, given:
        case "session", (None, None, str() as session, None, int() as generation):
            return f"session:{session}" + (f":{generation}" if generation > 1 else "")
        case "user", (None, str() as user, None, None, None):
            return f"user:{scope.agent_id}:{user}"
        case "group", (str() as group, None, None, None, None):
            return f"group:{scope.agent_id}:{group}"
        case "shard", (None, None, None, str() as name, None):
            return f"shard:{scope.agent_id}:{quote(name, safe='')}"
        case "agent", (None, None, None, None, None):
            return f"agent:{scope.agent_id}"
        case _:
            return None
