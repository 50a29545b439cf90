"""A receipt: what was asked, what was erased, when each store is clean; signed with Ed25519. Pure."""

from base64 import b64decode, b64encode
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
