"""What a merge makes of messages without text, and what it takes for a message."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from eden_memory.kafka.outgoing import Outgoing
from eden_memory.mongo.bson_ids import encode_id
from eden_memory.mongo.changes import DocumentPage
from eden_memory.schemas.envelope import Envelope
from eden_memory.source.inbox_mapping import InboxMapping
from eden_memory.source.known_message_topics import Known
from eden_memory.source.message_mapping import TOPIC
from eden_memory.stages.codec import Encoder
from eden_memory.stages.stage import Delivery
from eden_memory.windows.trigger_batch import erased
from tests.unit.source.mappings import BEGAN, SOURCE, message, recorded, source_mapping

VERSION = "69a42000" + "00000001"


class Stored(NamedTuple):
    """A record as a consumer hands it over."""

    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]
    partition: int = 0


class WholeTopic:
    """Stands in for a consumer of a topic of one partition that holds these records."""

    def __init__(self, records: list[Outgoing]) -> None:
        self._records = [Stored(one.key, one.value, one.headers) for one in records]
        self._position = 0

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def assignment(self) -> set[int]:
        return {0}

    async def end_offsets(self, places: set[int]) -> Mapping[int, int]:
        return {0: len(self._records)}

    async def position(self, place: int) -> int:
        return self._position

    async def getmany(self, **_: Any) -> dict[int, list[Stored]]:
        self._position = len(self._records)
        return {0: self._records}


def page(*documents: dict[str, Any]) -> DocumentPage:
    return DocumentPage(documents, documents[-1]["_id"], VERSION, BEGAN)


async def known(*records: Outgoing) -> Known:
    found = Known()
    await found.read(lambda _: WholeTopic(list(records)))
    return found


def test_a_merge_keeps_messages_without_text_apart() -> None:
    mapped = source_mapping().page(page(message("full"), message("bare", content="")), "merge")
    assert [recorded(one).message_id for one in mapped.records] == ["s.full"]
    (emptied,) = mapped.emptied
    assert (recorded(emptied).message_id, recorded(emptied).text) == ("s.bare", "")


def test_a_backfill_leaves_messages_without_text_out() -> None:
    mapped = source_mapping().page(page(message("bare", content="")), "backfill")
    assert not mapped.records
    assert not mapped.emptied


def test_an_unusable_message_without_text_is_told_once() -> None:
    mapped = source_mapping().page(page(message("bare", content="", session_id=None)), "merge")
    assert not mapped.emptied
    assert len(mapped.unmapped) <= 1


async def test_an_added_text_is_not_missing_for_want_of_a_document() -> None:
    asked = {"_id": "asked", "kind": "added_text", "session_id": "s1", "text": 'said "origin":"added"'}
    added = InboxMapping(SOURCE, encode_id).record(asked, VERSION, BEGAN)
    (said,) = source_mapping().page(page(message("said", content='"origin":"added"')), "backfill").records
    topic = await known(added, said)
    try:
        assert [place.key for places in topic.unmet() for place in places] == [b"s.said"]
        assert topic.holds(b"s.said")
        assert not topic.holds(b"s.asked")
    finally:
        topic.close()


async def test_a_message_that_is_ended_while_the_topic_is_read_is_of_no_other_source() -> None:
    stands, goes = source_mapping().page(page(message("m1"), message("m2")), "backfill").records
    cause = Delivery(Envelope.of_headers(goes.headers), recorded(goes), TOPIC, goes.key.decode())
    encoder = Encoder("formation-trigger", lambda _: TOPIC)
    (end,) = encoder.records([erased(goes.key.decode(), VERSION, "s.s1")], [cause])
    tombstone = Outgoing(
        end.topic, goes.key, None, [(name, value or b"") for name, value in end.headers], b"s.s1"
    )
    topics = {"read_uncommitted": [stands, goes], "read_committed": [stands, goes, tombstone]}
    found = Known()
    try:
        await found.read(lambda isolation: WholeTopic(topics[isolation]))
        assert found.by_source() == {SOURCE: 1}
    finally:
        found.close()


async def test_a_merge_knows_where_a_message_stands_that_can_no_longer_be_recorded() -> None:
    stands = source_mapping().page(page(message("m1")), "backfill").records
    found = await known(*stands)
    unmapped = source_mapping().page(page(message("m1", session_id=None)), "merge").unmapped
    key = source_mapping().key(unmapped[0].document)
    assert key is not None
    assert key == stands[0].key
    assert found.meet(key) == [0]
    assert not list(found.unmet())
    assert found.meet(b"s.unknown") == []
