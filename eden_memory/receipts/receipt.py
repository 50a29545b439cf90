"""A receipt: what was asked, what was erased, when each store is clean; signed with Ed25519. Pure.

Also the id of a request to undo an attack, from which the ids of all its requests to forget follow."""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, ValidationError

from eden_memory.errors import Invalid
from eden_memory.memory.memory_views import View
from eden_memory.schemas.documents import Erasure
from eden_memory.schemas.ids import encode, split

LONGEST = 600
"""With a longer name the ids of the requests would not fit into an event."""
NAMED = ("import", "call")
"""Causes that no request to forget names."""
WHOLE = re.compile("undo/([a-z]+)/([0-9]{1,7})/([0-9a-f]+)/(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class UndoRequest:
    """One undo: `parts` requests to forget, the first of the message, session or user that caused it."""

    cause: str
    parts: int
    token: str
    """Unique."""
    name: str = ""
    """Of an import or a call; "": the first request names what caused it."""

    @classmethod
    def of(cls, cause: str, name: str, token: str, parts: int) -> "UndoRequest":
        """Return a new request; an import or call of a very long name stays without it, and gets no receipt."""
        named = cause in NAMED and len(encode(name)) <= LONGEST
        return cls(cause, parts, token, name if named else "")

    @classmethod
    def read(cls, request_id: str) -> "UndoRequest | None":
        """Return the request of a typed id; None if the id is of another kind of request."""
        try:
            kind, text = split(request_id)
        except ValueError:
            return None
        found = WHOLE.fullmatch(text) if kind == "s" else None
        return None if found is None else cls(found[1], int(found[2]), found[3], found[4])

    @property
    def is_nameless(self) -> bool:
        """Whether nothing says what caused it."""
        return self.cause in NAMED and not self.name

    @property
    def request_id(self) -> str:
        """The typed id of the whole."""
        return encode(self._text)

    @property
    def inbox_ids(self) -> list[str]:
        """The `_id` of each request in `memory_inbox`."""
        return list(self.each_inbox_id())

    def each_inbox_id(self) -> Iterator[str]:
        """Make them while they are read: whoever writes an id chooses how many there are."""
        return (f"{self._text}#{number}" for number in range(self.parts))

    @property
    def _text(self) -> str:
        return f"undo/{self.cause}/{self.parts}/{self.token}/{self.name}"


def requests_of(request_id: str) -> Iterator[str]:
    """Make the typed ids of the requests to forget that a request consists of, while they are read."""
    undo = UndoRequest.read(request_id)
    return iter((request_id,)) if undo is None else map(encode, undo.each_inbox_id())


NOT_REACHED = (
    "backups and snapshots of MongoDB, Kafka and their disks",
    "MongoDB's oplog, pre-images and free pages of its files, until they are overwritten",
    "copies that consumers of the topics, exports and mirrors keep; consumers get the Forgotten events",
    "what the application itself, its model providers and its logs keep",
)


CAUSED_BY = "caused-by "
"""Begins the kind of a request to undo an attack."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AskedToForget(_Part):
    """The request; its id stands only as the application's typed id, or ours."""

    request_id: str
    kind: str
    """`session`, for example; `caused-by session`: with all that it led to, and what it had displaced is restored."""
    target: str
    asked_by: str | None
    asked_at: datetime


class ErasedInMemory(_Part):
    """Everything that was erased in the memory of one pipeline: ids, and keyed hashes of texts."""

    pipeline: str
    messages: tuple[str, ...]
    facts: tuple[str, ...]
    reflections: tuple[str, ...]
    blobs: tuple[str, ...]
    restated: tuple[str, ...]
    """Commands that stated anew what was left of merged facts."""
    texts: tuple[str, ...]
    dead_letters: tuple[str, ...]
    """`<topic> <key>`."""


class CleanStore(_Part):
    """When nothing of it is left in a store, on its disk as well."""

    store: str
    by: datetime


class Receipt(_Part):
    """A receipt, as `eden forget … --receipt FILE` writes it."""

    version: Literal[1] = 1
    asked: AskedToForget
    memories: tuple[ErasedInMemory, ...]
    clean: tuple[CleanStore, ...]
    not_yet: tuple[str, ...] = ()
    """Namespaces that keep what they hold of it until they go on or are dropped."""
    not_reached: tuple[str, ...] = NOT_REACHED
    made_at: datetime
    public_key: str = ""
    """Of the installation, base64."""
    signature: str = ""
    """Ed25519, base64, over the receipt's JSON without this field: keys sorted, no spaces, UTF-8."""


@dataclass(frozen=True, slots=True)
class StillThere(View):
    """Something that a receipt says is erased, and that is there."""

    where: str
    """A collection or topic."""
    name: str
    """An id or key, never a text."""


@dataclass(frozen=True, slots=True)
class CheckedReceipt(View):
    """A receipt of this installation, held against its stores."""

    still_there: tuple[StillThere, ...]
    """Empty, unless something came back."""
    on_disk: int | None
    """Records that a tombstone has ended and compaction has not removed yet; None: the topics were not read."""
    not_clean: tuple[CleanStore, ...]
    """Stores whose disks may hold remains until the time that the receipt names."""
    not_yet: tuple[str, ...]
    """Namespaces that keep what they hold of it until they go on or are dropped."""


def erased_in(pipeline: str, erasures: list[Erasure]) -> ErasedInMemory:
    """Return what several records have erased together."""

    def every(name: str) -> tuple[str, ...]:
        return tuple(sorted({value for erasure in erasures for value in getattr(erasure, name)}))

    return ErasedInMemory(
        pipeline=pipeline,
        messages=every("messages"),
        facts=every("facts"),
        reflections=every("reflections"),
        blobs=every("blobs"),
        restated=every("restated"),
        texts=every("texts"),
        dead_letters=every("dead_letters"),
    )


def signed(receipt: Receipt, key: Ed25519PrivateKey) -> Receipt:
    """Return the receipt with its signature."""
    named = receipt.model_copy(update={"public_key": b64encode(key.public_key().public_bytes_raw()).decode()})
    return named.model_copy(update={"signature": b64encode(key.sign(_said(named))).decode()})


def is_genuine(receipt: Receipt, key: Ed25519PublicKey) -> bool:
    """Return whether the holder of this key has signed exactly this receipt."""
    try:
        signature = b64decode(receipt.signature, validate=True)
        key.verify(signature, _said(receipt))
    except (InvalidSignature, ValueError):
        return False
    as_signed = b64encode(signature).decode(), b64encode(key.public_bytes_raw()).decode()
    return (receipt.signature, receipt.public_key) == as_signed


def read_receipt(text: bytes) -> Receipt:
    """Return a receipt; Invalid if it is none, or says the same otherwise than we write it, such as a time."""
    try:
        receipt = Receipt.model_validate_json(text)
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_input=False)[0]["loc"])) or "the file"
        raise Invalid(
            f"this is not a receipt: {where}", "Give one as `--receipt` or the API returned it."
        ) from None
    if orjson.loads(text) != receipt.model_dump(mode="json"):
        raise Invalid("this receipt was rewritten", "Give it as `--receipt` or the API returned it.")
    return receipt


def written(receipt: Receipt) -> bytes:
    """Return a receipt as a file holds it."""
    return orjson.dumps(receipt.model_dump(mode="json"), option=orjson.OPT_INDENT_2) + b"\n"


def _said(receipt: Receipt) -> bytes:
    fields = receipt.model_dump(mode="json", exclude={"signature"})
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
