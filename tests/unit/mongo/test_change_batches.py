"""The server's answers are taken apart in whichever order it writes a cursor's fields."""

from typing import Any

import pytest
from bson import Binary, Int64, encode  # pyright: ignore[reportUnknownVariableType]
from bson.raw_bson import RawBSONDocument

from eden_memory.mongo.change_stream import ChangeStream
from eden_memory.mongo.changes import PART, Unreadable

COUNT = PART + 11
LOOKS_SO = "\x04nextBatch\x00\x05\x00\x00\x00"


def token(number: int) -> str:
    return f"8265000000{number + 1:08X}2B022C0100296E5A1004"


def event(number: int) -> dict[str, Any]:
    document = {"_id": number, "content": LOOKS_SO}
    key, ns = {"_id": number}, {"db": "d", "coll": "messages"}
    changed = {"_id": {"_data": token(number)}, "operationType": "insert", "ns": ns}
    return {**changed, "documentKey": key, "fullDocument": document}


class Server:
    """Answers every command with one cursor."""

    def __init__(self, cursor: dict[str, Any]) -> None:
        self._reply = RawBSONDocument(encode({"cursor": cursor, "ok": 1.0}))

    def get_database(self, *_: Any, **__: Any) -> "Server":
        return self

    def start_session(self, **_: Any) -> None:
        return None

    async def command(self, *_: Any, **__: Any) -> RawBSONDocument:
        return self._reply


@pytest.mark.parametrize("name", ["firstBatch", "nextBatch"])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("count", [0, 1, COUNT])
async def test_all_changes_of_an_answer_are_read(count: int, name: str, batch_first: bool) -> None:
    batch = {name: [event(number) for number in range(count)]}
    others = {"postBatchResumeToken": {"_data": token(count)}, "id": Int64(7), "ns": "d.$cmd.aggregate"}
    server: Any = Server({**batch, **others} if batch_first else {**others, **batch})
    found = await ChangeStream(server, "d", {"messages": ["content"]}, batch=COUNT).next(token(0))
    changes = [change for part in found.parts() for change in part]
    assert found.size == count
    assert found.position == token(count)
    assert [change.id for change in changes] == list(range(count))
    assert {change.document["content"] for change in changes if change.document} <= {LOOKS_SO}


def broken(number: int) -> RawBSONDocument:
    """A change of a document with a truth value that is neither, which no driver decodes."""
    spelled = encode({**event(number), "fullDocument": {"_id": number, "content": {"odd": True}}})
    return RawBSONDocument(spelled.replace(b"odd\x00\x01", b"odd\x00\x02"))


async def test_a_document_that_cannot_be_decoded_costs_no_other_its_change() -> None:
    odd = {**event(1), "fullDocument": {"_id": 1, "content": "text", "by": Binary(b"short", 4)}}
    deletion = {**event(3), "operationType": "delete", "fullDocumentBeforeChange": broken(3)["fullDocument"]}
    del deletion["fullDocument"]
    batch = {"nextBatch": [event(0), odd, broken(2), deletion, event(4)]}
    others = {"postBatchResumeToken": {"_data": token(5)}, "id": Int64(7), "ns": "d.$cmd.aggregate"}
    server: Any = Server({**batch, **others})
    found = await ChangeStream(server, "d", {"messages": ["content"]}, batch=COUNT).next(token(0))
    changes = [change for part in found.parts() for change in part]
    assert [change.id for change in changes] == [0, 1, 2, 3, 4]
    assert [isinstance(change.document, Unreadable) for change in changes] == [
        False,
        False,
        True,
        False,
        False,
    ]
    assert changes[1].document is not None
    assert changes[1].document["content"] == "text"
    assert (changes[2].document, changes[3].before) == ({"_id": 2}, {"_id": 3})
    assert len({change.version for change in changes}) == 5
