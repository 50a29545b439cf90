"""A receipt is genuine only as it was signed, to the byte; the id of an undo leads to all its requests."""

from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eden_memory.errors import Invalid
from eden_memory.mongo.ids import encode_id
from eden_memory.receipts.receipt import (
    AskedToForget,
    CleanStore,
    ErasedInMemory,
    Receipt,
    UndoRequest,
    is_genuine,
    read_receipt,
    requests_of,
    signed,
    written,
)

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
KEY = Ed25519PrivateKey.generate()
ASKED = AskedToForget(
    request_id="s.r1", kind="session", target="s.c1", asked_by="http:support", asked_at=NOON
)
ERASED = ErasedInMemory(
    pipeline="",
    messages=("s.m1",),
    facts=("f1@1",),
    reflections=(),
    blobs=(),
    restated=(),
    texts=("00ff",),
    dead_letters=(),
)
RECEIPT = Receipt(
    asked=ASKED, memories=(ERASED,), clean=(CleanStore(store="MongoDB", by=NOON),), made_at=NOON
)
CHANGED = b"0Az/ =x"


def genuine(text: bytes) -> bool:
    try:
        return is_genuine(read_receipt(text), KEY.public_key())
    except Invalid:
        return False


def test_a_receipt_is_genuine_as_it_was_written_and_indented_otherwise() -> None:
    text = written(signed(RECEIPT, KEY))
    assert genuine(text)
    assert genuine(b"".join(line.strip() for line in text.splitlines()))


def test_another_key_has_not_signed_it() -> None:
    assert not genuine(written(signed(RECEIPT, Ed25519PrivateKey.generate())))


@pytest.mark.parametrize("other", CHANGED)
def test_no_byte_of_it_can_be_changed(other: int) -> None:
    text = written(signed(RECEIPT, KEY))
    accepted = [
        place
        for place, byte in enumerate(text)
        if byte != other
        and not (bytes([byte]).isspace() and bytes([other]).isspace())
        and genuine(text[:place] + bytes([other]) + text[place + 1 :])
    ]
    assert not accepted


def test_the_id_of_an_undo_leads_to_the_ids_of_its_requests() -> None:
    undo = UndoRequest.of("import", "mem0:17/x", "65f0", 2)
    assert UndoRequest.read(undo.request_id) == undo
    assert list(requests_of(undo.request_id)) == list(map(encode_id, undo.inbox_ids))
    assert len(set(undo.inbox_ids)) == 2


@pytest.mark.parametrize("name", ["o.65f0", "s.undo", "s.undo%2Fx", "i.5", "no id", ""])
def test_other_requests_are_one(name: str) -> None:
    assert UndoRequest.read(name) is None
    assert list(requests_of(name)) == [name]


def test_a_very_long_name_is_left_out_so_that_the_requests_fit() -> None:
    undo = UndoRequest.of("call", "x" * 5_000, "65f0", 1)
    assert undo.is_nameless
    assert len(encode_id(undo.inbox_ids[0])) < 1_024
