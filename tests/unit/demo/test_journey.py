"""The demo's book-keeping: what is missing, what came late, what came in another order."""

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.demo.conversation import ApplicationWrite, Arrival, DeliveryLog, Kind


def wrote(
    journey: DeliveryLog, message: str, text: str | None = "a", kind: Kind = "message", at: float = 0.0
) -> None:
    journey.wrote(ApplicationWrite(kind, message, "s", text, at))


def arrived(
    journey: DeliveryLog, message: str, text: str | None = "a", at: float = 1.0
) -> ApplicationWrite | None:
    return journey.arrived(Arrival(message, "s", "ada", text, 0, 0, at))


def test_what_has_not_arrived_is_missing() -> None:
    journey = DeliveryLog()
    wrote(journey, "m1")
    wrote(journey, "m2")
    arrived(journey, "m1")
    assert journey.missing() == ["m2"]
    assert not journey.summary().complete


def test_an_edit_is_missing_until_its_own_text_arrives() -> None:
    journey = DeliveryLog()
    wrote(journey, "m1", "before")
    wrote(journey, "m1", "after", "edit")
    arrived(journey, "m1", "before")
    assert journey.missing() == ["m1"]
    arrived(journey, "m1", "after")
    assert journey.missing() == []
    assert journey.summary().seen == {"message": 1, "edit": 1}


def test_an_edit_that_overtook_the_first_text_stands_for_both() -> None:
    journey = DeliveryLog()
    wrote(journey, "m1", "before")
    wrote(journey, "m1", "after", "edit")
    arrived(journey, "m1", "after")
    assert journey.summary().complete
    assert journey.summary().seen == {"message": 1, "edit": 1}


def test_a_deletion_is_missing_until_its_tombstone_arrives() -> None:
    journey = DeliveryLog()
    wrote(journey, "m1")
    wrote(journey, "m1", None, "delete")
    arrived(journey, "m1")
    assert journey.missing() == ["m1"]
    arrived(journey, "m1", None)
    assert journey.summary().complete


def test_a_placeholder_without_text_need_not_arrive_but_its_edit_must() -> None:
    journey = DeliveryLog()
    wrote(journey, "m1", "")
    wrote(journey, "m2")
    arrived(journey, "m2")
    assert journey.missing() == []
    wrote(journey, "m1", "streamed in", "edit")
    assert journey.missing() == ["m1"]
    arrived(journey, "m1", "streamed in")
    assert journey.summary().complete


def test_a_session_out_of_order_is_named() -> None:
    journey = DeliveryLog()
    wrote(journey, "m1")
    wrote(journey, "m2")
    arrived(journey, "m2")
    arrived(journey, "m1")
    assert journey.summary().out_of_order == ["s"]
    assert not journey.summary().complete


def test_only_the_first_arrival_counts_for_the_delay() -> None:
    journey = DeliveryLog()
    wrote(journey, "m1", at=10.0)
    first = arrived(journey, "m1", at=10.5)
    assert first is not None
    assert first.delay == 0.5
    assert arrived(journey, "m1", at=99.0) is None
    assert journey.summary().p50 == 0.5


def test_a_record_that_nobody_wrote_changes_nothing() -> None:
    journey = DeliveryLog()
    assert arrived(journey, "stranger") is None
    assert journey.summary().complete


@given(st.lists(st.sampled_from(["m1", "m2", "m3", "m4"]), max_size=12))
def test_repeats_never_make_more_than_was_written(order: list[str]) -> None:
    journey = DeliveryLog()
    for message in ("m1", "m2", "m3", "m4"):
        wrote(journey, message)
    for message in order:
        arrived(journey, message)
    summary = journey.summary()
    assert summary.seen["message"] == len(set(order))
    assert set(summary.missing) == {"m1", "m2", "m3", "m4"} - set(order)
    in_order = list(dict.fromkeys(order))
    assert summary.complete == (in_order == ["m1", "m2", "m3", "m4"])
