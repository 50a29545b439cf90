"""The fault run's verdict finds each kind of violation: a judge that cannot say no is none."""

from dataclasses import replace

from tests.chaos.seen import Seen
from tests.chaos.verdict import (
    Truth,
    broken_promises,
    missing,
    never_arrived,
    reordered,
    repeats,
    shared_ids,
    unlike_what_is_kept,
    wrong,
)

TRUTH = Truth(
    partitions=1,
    documents={"s.a": ("s.one", "first"), "s.b": ("s.one", "second")},
    added={},
    written=frozenset({"s.a", "s.b", "s.gone"}),
    order={"s.one": ["s.a", "s.b"]},
)
A = Seen(0, 0, "s.a", "message", "01", "s.one", "first", id="a@01")
B = Seen(0, 1, "s.b", "message", "02", "s.one", "second", id="b@02")
GONE = Seen(0, 2, "s.gone", "message", "03", "s.one", "gone", id="gone@03")
END = Seen(0, 3, "s.gone", "ended", "04", "s.one", reason="deleted", id="gone@04")
WELL = [A, B, GONE, END]


def test_a_faithful_topic_passes() -> None:
    assert missing(TRUTH, WELL) == wrong(TRUTH, WELL) == never_arrived(TRUTH, WELL) == []
    assert reordered(TRUTH, WELL) == broken_promises(WELL) == []
    assert shared_ids([*WELL, *WELL]) == unlike_what_is_kept(TRUTH, [*WELL, *WELL]) == []
    assert repeats(WELL) == 0


def test_a_message_without_a_record_is_missing() -> None:
    assert len(missing(TRUTH, [A])) == len(never_arrived(TRUTH, [A])) == 1


def test_old_content_as_the_last_record_is_wrong() -> None:
    assert len(wrong(TRUTH, [*WELL, A._replace(text="older", offset=4)])) == 1


def test_a_tombstone_over_an_existing_message_is_wrong() -> None:
    assert len(wrong(TRUTH, [*WELL, END._replace(key="s.a", offset=4)])) == 1


def test_a_deleted_message_that_still_stands_is_wrong() -> None:
    assert len(wrong(TRUTH, [A, B, GONE])) == 1


def test_a_moved_message_must_be_ended_where_it_was() -> None:
    two = replace(TRUTH, partitions=2, written=frozenset({"s.a"}), documents={"s.a": ("s.one", "first")})
    home = two.home("s.one")
    here, there = A._replace(partition=home), A._replace(partition=1 - home)
    assert len(wrong(two, [here, there])) == 1
    assert wrong(two, [there, here, END._replace(key="s.a", partition=1 - home)]) == []
    assert len(missing(two, [there])) == 1


def test_a_key_that_nobody_wrote_is_wrong() -> None:
    assert len(wrong(TRUTH, [*WELL, A._replace(key="s.x", kind="ended")])) == 1


def test_first_arrivals_out_of_order_are_reordered_and_repeats_are_not() -> None:
    assert len(reordered(TRUTH, [B, A._replace(offset=5), GONE, END])) == 1
    assert reordered(TRUTH, [A, B, A._replace(offset=5)]) == []
    assert repeats([A, B, A._replace(offset=5)]) == 1


def test_after_a_merge_a_control_may_come_late_or_early_if_its_version_covers_what_was_before() -> None:
    asked = B._replace(kind="control")
    ends_late = replace(TRUTH, order={"s.one": ["s.b", "s.a"]})
    assert len(reordered(ends_late, [A, asked])) == 1
    assert reordered(ends_late, [A, asked], merged=True) == []
    early = asked._replace(version="00")
    assert len(reordered(TRUTH, [early, A._replace(offset=5)], merged=True)) == 1
    assert len(reordered(TRUTH, [asked, A._replace(offset=5)])) == 1
    assert reordered(TRUTH, [asked, A._replace(offset=5)], merged=True) == []


def test_a_request_of_the_inbox_that_the_stream_brings_again_is_one_event() -> None:
    asked = B._replace(kind="control", id="tailer/inbox/b", version="05")
    assert shared_ids([asked, asked._replace(offset=6, version="02")]) == []
    assert len(shared_ids([asked, asked._replace(offset=6, session="s.two")])) == 1


def test_after_a_merge_a_message_that_is_gone_since_may_come_late() -> None:
    order = replace(TRUTH, order={"s.one": ["s.gone", "s.a"]})
    late = GONE._replace(offset=7)
    assert len(reordered(order, [A, late])) == 1
    assert reordered(order, [A, late], merged=True) == []


def test_a_late_control_hides_no_messages_out_of_order() -> None:
    late = GONE._replace(kind="control", offset=9)
    between = replace(TRUTH, order={"s.one": ["s.b", "s.gone", "s.a"]})
    assert len(reordered(between, [A, B, late], merged=True)) == 1


def test_news_from_before_a_watermark_breaks_its_promise_and_a_repeat_does_not() -> None:
    mark = Seen(0, 5, "watermark:0", "watermark", "02", "")
    assert len(broken_promises([A, mark, B._replace(offset=6)])) == 1
    assert broken_promises([A, B, mark, A._replace(offset=6)]) == []


def test_a_move_whose_two_records_share_an_id_is_lost_to_a_reader() -> None:
    left = Seen(0, 4, "s.a", "ended", "05", "s.two", reason="moved", id="a@05")
    came = A._replace(offset=5, version="05", id="a@05")
    moved = [*WELL, left, came]
    assert wrong(TRUTH, moved) == missing(TRUTH, moved) == []
    assert len(shared_ids(moved)) == len(unlike_what_is_kept(TRUTH, moved)) == 1
    apart = [*WELL, left._replace(id="a@05/moved"), came]
    assert shared_ids(apart) == unlike_what_is_kept(TRUTH, apart) == []


def test_a_change_of_one_transaction_under_an_earlier_ones_id_is_found() -> None:
    placeholder = B._replace(text="", offset=1)
    once = [A, placeholder, B._replace(offset=2), GONE, END]
    assert len(shared_ids(once)) == 1
    assert unlike_what_is_kept(TRUTH, once)


def test_a_redelivered_update_may_tell_of_a_later_change_that_has_a_record() -> None:
    again = A._replace(text="changed", offset=6)
    assert len(shared_ids([*WELL, again])) == 1
    later = A._replace(text="changed", version="05", id="a@05", offset=7)
    assert shared_ids([*WELL, again, later]) == []
    assert len(shared_ids([*WELL, later, END._replace(key="s.a", id="a@01", offset=8)])) == 1


def test_a_last_record_with_an_older_version_than_its_deletion_is_found() -> None:
    again = [A._replace(version="01.0002", id="a@01.0002"), A._replace(version="01.0001", id="a", text="x")]
    assert unlike_what_is_kept(TRUTH, [*again, *WELL[1:]]) == []
    assert unlike_what_is_kept(TRUTH, [*reversed(again), *WELL[1:]]) == []
    ended = END._replace(key="s.a", version="01.0003", id="a@01.0003")
    assert unlike_what_is_kept(TRUTH, [ended, *again, *WELL[1:]])
