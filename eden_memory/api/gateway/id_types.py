"""Check that a chat's ids have the types of those in the application's messages. Pure.

A text beside ObjectIds is another session, of which the application knows nothing and no memory is ever shown to it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from bson import ObjectId

from eden_memory.errors import NotAnId
from eden_memory.mongo.document_fields import getter
from eden_memory.settings import IdForm, MessagesSettings

_TYPES: Mapping[type, str] = {str: "text", int: "integer", ObjectId: "ObjectId", UUID: "UUID"}
_FORMS: Mapping[str, IdForm] = {
    "text": "given",
    "integer": "integer",
    "ObjectId": "object_id",
    "UUID": "uuid",
}
_WRITTEN: Mapping[IdForm, str] = {form: name for name, form in _FORMS.items()}


class IdTypes(NamedTuple):
    """The types of session and author ids in some messages; empty: no message has such an id."""

    session: frozenset[str] = frozenset()
    user: frozenset[str] = frozenset()


def id_types(documents: Iterable[Mapping[str, Any]], fields: MessagesSettings) -> IdTypes:
    """Return the types that stand in these messages."""
    rows = list(documents)
    session, user = (
        frozenset(name for row in rows if (name := _type_of(getter(path)(row))) is not None)
        for path in (fields.session_id, fields.user_id)
    )
    return IdTypes(session, user)


def demand_type(value: Any, types: frozenset[str], field: str, setting: str) -> None:
    """Raise NotAnId if messages hold ids of other types than this one."""
    given = _type_of(value)
    if given is not None and types and given not in types:
        raise NotAnId(
            f"an id that is {given}, and `{field}` of the messages is {_listed(types)}", _hint(types, setting)
        )


def mistyped(form: IdForm, types: frozenset[str], field: str, setting: str) -> tuple[str, str] | None:
    """Return what is wrong with a setting for ids, and what to do; None if it fits what stands in the messages."""
    written = _WRITTEN[form]
    if not types or written in types:
        return None
    stands = f"`{field}` of the messages is {_listed(types)}"
    return f"{stands}, and {setting}={form} writes {written}: such chats are refused", _hint(types, setting)


def _hint(types: frozenset[str], setting: str) -> str:
    return f"Set {setting}={' or '.join(sorted(_FORMS[name] for name in types))}."


def _listed(types: frozenset[str]) -> str:
    return " or ".join(sorted(types))


def _type_of(value: Any) -> str | None:
    """Return the type of an id; None if it is not an id."""
    if isinstance(value, bool):
        return None
    return next((name for kind, name in _TYPES.items() if isinstance(value, kind)), None)
