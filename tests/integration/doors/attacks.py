"""Who asks which door for whose memory, with what tricks: from a seed, the same for all doors."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, cast, get_args

from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.scopes import Scope
from tests.integration.doors.world import AGENTS, KEYS, SESSIONS, USERS, Key, fact_id, name_of, scopes

Call = Literal[
    "context", "recall", "search", "explain", "facts", "reflections", "blobs", "fact", "history", "stats",
    "consolidation", "start", "export", "edit", "retire", "forget", "add", "end", "form", "delete_user",
    "reflection", "private", "rewrite", "pin",
]  # fmt: skip
CALLS = cast("tuple[Call, ...]", get_args(Call))
WRITES = (
    "edit", "retire", "forget", "add", "end", "form", "delete_user", "private", "rewrite", "pin",
)  # fmt: skip
TRICKS = (
    "$ne", '{"$ne": null}', "s.%24ne", "s.*", "*", ".*", "^", "i.5", "5", "i.05", "i. 5", "s.5", "u.5", "o.5", "i.x",
    "../bob", "..%2Fbob", "%2e%2e/bob", "ada/../bob", "s.ada/../../b", "bob%00", "bob\x00", "Bob", "bob ", " bob",
    "s.bob", "s.%62ob", "s.s.bob", "s.ada%3Abob", "ada:bob", "ada,bob", "user:s.a:s.bob", "s.", "null", "None",
    "true", "[]", "bob#", "bob?user=ada", "bob&user=ada", "b\u00f6b", "\uff42ob", "bob\u200b", "x" * 1_025,
    "eden:added:s.a:s.bob", "eden:added:s.b:s.ada", "s.eden%3Aadded%3As.a%3As.bob",
)  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """One call through a door; ids as text, as a client would write them."""

    number: int
    key: Key
    call: Call
    agent: str
    session: str | None
    user: str | None
    target: str
    """Of a fact, message, session or user, where the call takes one."""
    what: str = "fact"

    def __str__(self) -> str:
        named = f"agent={self.agent!r} session={self.session!r} user={self.user!r} target={self.target!r}"
        return f"{self.number}: {self.key.name} {self.call} {named}"


def attacks(number: int, seed: int) -> Iterator[Attack]:
    """So many, every call by every key among the first; half of the ids are real ones of others."""
    random = Random(seed)
    turns: list[tuple[Key, Call]] = [(key, call) for key in KEYS for call in CALLS]
    for count in range(number):
        key, call = turns[count % len(turns)]
        what, target = _target(random)
        yield Attack(
            number=count,
            key=key,
            call=call,
            agent=_text(random, AGENTS, key.agents),
            session=random.choice((None, _text(random, [one.id for one in SESSIONS], _reached(key)))),
            user=random.choice((None, _text(random, USERS, key.users), _text(random, USERS, key.users))),
            target=target,
            what=what,
        )


def _text(random: Random, real: Any, own: Any) -> str:
    """One of the caller's own, of others, or a trick."""
    kind = random.random()
    if kind < 0.4 and own:
        return encode_id(random.choice(own))
    return encode_id(random.choice(real)) if kind < 0.75 else random.choice(TRICKS)


def _reached(key: Key) -> list[Any]:
    return [one.id for one in SESSIONS if key.reaches(one)]


def _target(random: Random) -> tuple[str, str]:
    scope: Scope = random.choice([one for one in scopes() if one.kind != "session"])
    session = random.choice(SESSIONS)
    return random.choice(
        (
            ("fact", fact_id(scope, random.randrange(2))),
            ("fact", random.choice(("../facts", "f0-/../x", f"f0-{name_of(scope.key)}/history/x", "%24ne"))),
            ("reflection", f"r-{name_of(scope.key)}"),
            ("blob", f"{scope.key}@1"),
            ("message", encode_id(f"m-{session.id!r}-{session.users[0]!r}")),
            ("session", encode_id(session.id)),
            ("user", encode_id(random.choice(USERS))),
        )
    )
