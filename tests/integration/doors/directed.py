"""Attacks by callers who say rightly who they are, and name a thing to be forgotten: their own, or another's."""

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from eden_memory.mongo.ids import encode_id, id_of
from tests.integration.doors.attacks import Attack
from tests.integration.doors.http_door import out_of_reach
from tests.integration.doors.world import KEYS, SESSIONS, Key, Session, fact_id, name_of, scopes


class Thing(NamedTuple):
    """What may be forgotten, as a client names it."""

    what: str
    id: str
    of: Session | None = None
    """The session that it is, or is said in."""

    def asked(self) -> dict[str, Any]:
        """As it would stand in the inbox."""
        plain = self.what in ("fact", "reflection")
        return {
            "kind": "forget",
            "what": self.what,
            "target": self.id if plain else id_of(self.id, self.what),
        }


def things() -> list[Thing]:
    """Everything of the world."""
    spaces = [one for one in scopes() if one.kind != "session"]
    return [
        *(Thing("fact", fact_id(one, number)) for one in spaces for number in (0, 1)),
        *(Thing("reflection", f"r-{name_of(one.key)}") for one in scopes()),
        *(
            Thing("message", encode_id(f"m-{one.id!r}-{user!r}"), one)
            for one in SESSIONS
            for user in one.users
        ),
        *(Thing("session", encode_id(one.id), one) for one in SESSIONS),
    ]


def directed(each: int, seed: int) -> Iterator[tuple[Attack, bool]]:
    """For each bound key so many of what is its own (True), and so many of what is not."""
    random, number = Random(seed), 0
    for key in (one for one in KEYS if one.bound):
        own = [one for one in things() if not out_of_reach(key, one.asked())]
        others = [one for one in things() if out_of_reach(key, one.asked())]
        for thing in (*_some(random, own, each), *_some(random, others, each)):
            yield _attack(random, key, number, thing), thing in own
            number += 1


def _some(random: Random, all_of_them: list[Thing], most: int) -> list[Thing]:
    return random.sample(all_of_them, min(most, len(all_of_them)))


def _attack(random: Random, key: Key, number: int, thing: Thing) -> Attack:
    """In a session that the key reaches, or in the thing's own, by one who is in it."""
    session = random.choice([one for one in SESSIONS if key.reaches(one)])
    if thing.of is not None and (key.reaches(thing.of) or number % 2):
        session = thing.of
    return Attack(
        number=3 * number,  # as arguments: what the host fixes is tried by the others
        key=key,
        call="forget",
        agent=encode_id(session.agent),
        session=encode_id(session.id),
        user=encode_id(random.choice(session.users)),
        target=thing.id,
        what=thing.what,
    )
