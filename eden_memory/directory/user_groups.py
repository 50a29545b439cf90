"""Groups of users as the application's documents say: what they are called, and who is in them."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from eden_memory.mongo.bson_ids import encode_id
from eden_memory.mongo.document_fields import getter
from eden_memory.settings import GroupsSettings

NOBODY = frozenset[str]()


class Group(NamedTuple):
    """What is known of a group."""

    name: str | None = None
    members: frozenset[str] | None = None
    """Typed ids; None: nothing lists them, so whoever is in a session of the group counts."""


def group_of(paths: GroupsSettings, row: Mapping[str, Any] | None) -> Group:
    """The group of a document; where groups are mapped and it is missing or not readable, nobody is in it."""
    if paths.collection is None:
        return Group()
    if row is None:
        return Group(members=NOBODY)
    listed = getter(paths.members)(row)
    return Group(text_of(getter(paths.name)(row)), None if listed is None else _members(listed))


def text_of(value: Any) -> str | None:
    """A name or title; None for anything but text."""
    return value if isinstance(value, str) and value.strip() else None


def _members(listed: Any) -> frozenset[str]:
    if not isinstance(listed, list):
        return NOBODY
    try:
        return frozenset(map(encode_id, cast("list[Any]", listed)))
    except TypeError:
        return NOBODY
