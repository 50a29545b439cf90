"""The collection that describes the sessions of an application's messages, and where its fields are. Pure."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from eden_memory.doctor.proposing import HALF, ID_WORDS, SESSION
from eden_memory.doctor.sampled_fields import WORD, SampledField, is_id, kinds, sampled_fields

USERS = frozenset(
    {"users", "user", "members", "member", "participants", "participant", "people", "customers", "customer"}
)
TITLE = ("title", "subject", "topic", "name")
AGENT = frozenset({"agent", "assistant", "bot"})
NO_FIELD = "-"
"""A path to nothing: the users of a session are then the authors of its messages."""
NAMED = frozenset(word for word, weight in SESSION.items() if weight > 0) - ID_WORDS


@dataclass(frozen=True, slots=True)
class SessionsProposal:
    """Where the fields of a session seem to be; None: nowhere."""

    collection: str
    sampled: int
    """Sessions of the sampled messages."""
    described: int
    """Those of them that have a document."""
    users: str | None
    agent_id: str | None
    title: str | None
    no_ids: str | None = None
    """A field that says something of the users, and is no list of their ids."""
    with_answering: str | None = None
    """A field that lists the ids of users, and of who only answers."""
    forms: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def paths(self) -> dict[str, str]:
        """The paths that were found, by the name of the setting."""
        users = NO_FIELD if self.with_answering else self.users
        found = {"agent_id": self.agent_id, "users": users, "title": self.title}
        return {name: path for name, path in found.items() if path is not None}


def propose_sessions(
    collection: str,
    documents: Sequence[Mapping[str, Any]],
    sampled: int,
    answering: Collection[str] = (),
) -> SessionsProposal | None:
    """The mapping of documents whose ids are those of sessions; None where they do not look like sessions.

    `answering`: ids (as `repr` writes them) of those who only answer, as a bot's: no list of users holds them.
    """
    fields = sampled_fields(documents)
    users = _first(
        fields, lambda sampled_field: _speaks(sampled_field, USERS) and sampled_field.share(_are_ids) >= HALF
    )
    if len(documents) < HALF * sampled or not (users or NAMED & _words(collection)):
        return None
    with_answering = users if users and any(lists_any(value, answering) for value in users.present) else None
    users = None if with_answering else users
    agent = _first(
        fields,
        lambda sampled_field: (
            _speaks(sampled_field, AGENT) and _names_one(sampled_field) and sampled_field.share(is_id) >= HALF
        ),
    )
    titles = {
        sampled_field.path.lower(): sampled_field
        for sampled_field in fields
        if sampled_field.share(lambda value: isinstance(value, str)) >= HALF
    }
    title = next((titles[word] for word in TITLE if word in titles), None)
    no_ids = (
        None
        if users or with_answering
        else _first(fields, lambda sampled_field: _speaks(sampled_field, USERS))
    )
    found = {"users": users, "agent_id": agent, "title": title}
    return SessionsProposal(
        collection,
        sampled,
        len(documents),
        **{name: sampled_field.path if sampled_field else None for name, sampled_field in found.items()},
        no_ids=no_ids.path if no_ids else None,
        with_answering=with_answering.path if with_answering else None,
        forms={name: _forms(sampled_field) for name, sampled_field in found.items() if sampled_field}
        | (
            {"users": f"no field: {with_answering.path} lists who only answers, too"}
            if with_answering
            else {}
        ),
    )


def _first(fields: Sequence[SampledField], fits: Callable[[SampledField], bool]) -> SampledField | None:
    return next((sampled_field for sampled_field in fields if fits(sampled_field)), None)


def _words(name: str) -> set[str]:
    """The words of a collection's name, in the singular too."""
    words = {word.lower() for word in WORD.findall(name)}
    return words | {word.removesuffix("s") for word in words}


def _speaks(sampled_field: SampledField, words: frozenset[str]) -> bool:
    return bool(words & {*sampled_field.words, *(word.removesuffix("id") for word in sampled_field.words)})


def _names_one(sampled_field: SampledField) -> bool:
    """Whether its name is an id's: `agent`, `agentId`, `bot_id`."""
    return len(sampled_field.words) == 1 or sampled_field.words[-1] == "id"


def lists_any(value: Any, ids: Collection[str]) -> bool:
    """Whether a list holds one of these ids, as `repr` writes them."""
    return isinstance(value, list) and any(repr(item) in ids for item in cast("list[Any]", value))


def _forms(sampled_field: SampledField) -> str:
    """The kinds of its values; of lists, those of what they list."""
    lists = [cast("list[Any]", value) for value in sampled_field.present if isinstance(value, list)]
    items = [item for some in lists for item in some]
    return f"list of {kinds(items)}" if items else kinds(sampled_field.present)


def _are_ids(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    items = cast("list[Any]", value)
    return bool(items) and all(map(is_id, items))
