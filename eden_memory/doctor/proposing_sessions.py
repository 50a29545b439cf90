"""The collection that describes the sessions of an application's messages, and where its fields are. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from eden_memory.doctor.proposing import HALF, ID_WORDS, SESSION
from eden_memory.doctor.sampled_fields import WORD, SampledField, is_id, kinds, sampled_fields

USERS = frozenset(
    {"users", "user", "members", "member", "participants", "participant", "people", "customers", "customer"}
)
TITLE = ("title", "subject", "topic", "name")
AGENT = frozenset({"agent", "assistant", "bot"})
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
    forms: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def paths(self) -> dict[str, str]:
        """The paths that were found, by the name of the setting."""
        found = {"agent_id": self.agent_id, "users": self.users, "title": self.title}
        return {name: path for name, path in found.items() if path is not None}


def propose_sessions(
    collection: str, documents: Sequence[Mapping[str, Any]], sampled: int
) -> SessionsProposal | None:
    """The mapping of documents whose ids are those of sessions; None where they do not look like sessions."""
    fields = sampled_fields(documents)
    users = _first(
        fields, lambda sampled_field: _speaks(sampled_field, USERS) and sampled_field.share(_are_ids) >= HALF
    )
    if len(documents) < HALF * sampled or not (users or NAMED & _words(collection)):
        return None
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
    no_ids = None if users else _first(fields, lambda sampled_field: _speaks(sampled_field, USERS))
    found = {"users": users, "agent_id": agent, "title": title}
    return SessionsProposal(
        collection,
        sampled,
        len(documents),
        **{name: sampled_field.path if sampled_field else None for name, sampled_field in found.items()},
        no_ids=no_ids.path if no_ids else None,
        forms={name: _forms(sampled_field) for name, sampled_field in found.items() if sampled_field},
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
