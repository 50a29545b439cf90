"""The fault run's verdict finds each kind of violation: a judge that cannot say no is none."""

from dataclasses import replace

from tests.chaos.seen import Seen
from tests.chaos.verdict import Truth, broken_promises, missing, never_arrived, reordered, repeats, wrong

TRUTH = Truth(
    partitions=1,
    documents={"s.a": ("s.one", "first"), "s.b": ("s.one", "second")},
    added={},
    written=frozenset({"s.a", "s.b", "s.gone"}),
    order={"s.one": ["s.a", "s.b"]},
)
A = Seen(0, 0, "s.a", "message", "01", "s.one", "first")
B = Seen(0, 1, "s.b", "message", "02", "s.one", "second")
GONE = Seen(0, 2, "s.gone", "message", "03", "s.one", "gone")
END = Seen(0, 3, "s.gone", "ended", "04", "s.one", reason="deleted")
WELL = [A, B, GONE, END]


def test_a_faithful_topic_passes() -> None:
    assert missing(TRUTH, WELL) == wrong(TRUTH, WELL) == never_arrived(TRUTH, WELL) == []
    assert reordered(TRUTH, WELL) == broken_promises(WELL) == []
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


def test_after_a_merge_a_control_may_come_late_but_never_early() -> None:
    asked = B._replace(kind="control")
    ends_late = replace(TRUTH, order={"s.one": ["s.b", "s.a"]})
    assert len(reordered(ends_late, [A, asked])) == 1
    assert reordered(ends_late, [A, asked], merged=True) == []
    assert len(reordered(TRUTH, [asked, A._replace(offset=5)], merged=True)) == 1


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
