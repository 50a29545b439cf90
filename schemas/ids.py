"""Ids as they stand in keys and events: typed, percent-encoded strings, so that 5 and "5" never meet.

`s.` string, `i.` integer, `u.` UUID, `o.` ObjectId (hex), `l.` UUID of an old driver (its bytes in hex: drivers
ordered them differently). What stands behind the dot is percent-encoded except for letters, digits, `_`, `.`, `-`
and `~`, so `:`, `@` and `#` can join ids into keys.
"""

from typing import Annotated
from urllib.parse import quote, unquote
from uuid import UUID

from pydantic import StringConstraints

EntityId = Annotated[str, StringConstraints(pattern=r"^[siuol]\.[A-Za-z0-9_.~%-]*$", max_length=1_024)]
"""An id with its type, as :func:`encode` writes it."""

ClusterTime = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
"""A cluster time as 16 hexadecimal digits (8 of seconds, 8 of the counter): compares as text does."""

Version = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}(\.[0-9a-f]{8})?$")]
"""The cluster time of a change; a change in a transaction has a dot and its position there, in 8 hexadecimal digits,
behind it. Compares as text does."""


class NoId(TypeError):  # noqa: N818 - a verdict on a value, not a fault of the program
    """A value of a type that no id has."""


def encode(value: object) -> str:
    """The typed form of an id that is text, a whole number or a UUID; NoId for anything else.

    5.0 is 5, as in MongoDB: programs in JavaScript write their integers so.
    """
    if isinstance(value, str):
        return "s." + quote(value, safe="")
    if isinstance(value, UUID):
        return "u." + str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"i.{value:d}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return f"i.{int(value):d}"
    raise NoId(f"an id is text, an integer, a UUID or an ObjectId, not {type(value).__name__}")


def encode_object_id(hexadecimal: str) -> str:
    """The typed form of an ObjectId given as its 24 hexadecimal digits."""
    return "o." + hexadecimal


def encode_legacy_uuid(hexadecimal: str) -> str:
    """The typed form of an old driver's UUID given as the hexadecimal digits of its 16 bytes."""
    return "l." + hexadecimal


def split(encoded: str) -> tuple[str, str]:
    """The type letter and the decoded text of a typed id: `("s", "a b")` for `s.a%20b`."""
    kind, dot, rest = encoded.partition(".")
    if not dot or kind not in ("s", "i", "u", "o", "l"):
        raise ValueError("not a typed id")
    return kind, unquote(rest)
