"""Callers, their limits, the ids they write, and the names a server answers to without a key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.access.admission_store import (
    LOCAL,
    Caller,
    Rates,
    Refused,
    host_name,
    is_loopback,
    is_own_origin,
    secret_of,
)
from eden_memory.api.http.routes import tag_is_known
from eden_memory.errors import NotAnId
from eden_memory.mongo.ids import id_of, typed
from eden_memory.schemas.ids import encode

ADA = Caller("ada", frozenset({"s.a"}), frozenset({"s.ada"}), frozenset({"read"}))


@pytest.mark.parametrize(
    ("right", "agent", "user"),
    [("write", "s.a", "s.ada"), ("read", "s.b", "s.ada"), ("read", "s.a", "s.bob"), ("read", "s.a", None)],
)
def test_a_bound_caller_is_refused_whatever_is_not_its_own(right: str, agent: str, user: str | None) -> None:
    ADA.demand("read", "s.a", "s.ada")
    with pytest.raises(Refused):
        ADA.demand(right, agent, user)  # pyright: ignore[reportArgumentType]


def test_an_administrator_may_read_and_write() -> None:
    one = Caller("boss", None, None, frozenset({"admin"}))
    assert one.may("read")
    assert one.may("write")
    LOCAL.demand("admin", "s.any", None)


def test_requests_beyond_the_limit_wait_for_their_turn_and_no_longer() -> None:
    now = 0.0
    rates = Rates(None, lambda: now)
    one = Caller("one", None, None, frozenset(), requests_per_minute=6)
    assert [rates.wait_of(one) for _ in range(7)] == [0.0] * 6 + [10.0]
    now = 9.0
    assert rates.wait_of(one) == pytest.approx(1.0)  # pyright: ignore[reportUnknownMemberType]
    now = 10.0
    assert rates.wait_of(one) == 0.0
    assert rates.wait_of(LOCAL) == 0.0


@given(st.text(min_size=1, max_size=60).filter(lambda text: text[1:2] != "."))
def test_plain_text_is_a_text_id(text: str) -> None:
    assert id_of(text, "user") == text
    assert typed(id_of(text, "user"), "user").startswith("s.")


@given(st.one_of(st.text(min_size=1, max_size=40), st.integers(-(2**63), 2**63 - 1), st.uuids()))
def test_a_typed_id_stands_for_what_it_was_made_of(value: object) -> None:
    assert id_of(encode(value), "user") == value


@pytest.mark.parametrize("text", ["", "i.x", "i.", "u.5", "o.5", "i.9223372036854775808", "s." + "x" * 1_100])
def test_what_looks_typed_and_is_none_is_no_id(text: str) -> None:
    with pytest.raises(NotAnId):
        id_of(text, "user")


def test_five_and_the_text_of_it_are_two_ids() -> None:
    assert (id_of("i.5", "user"), id_of("5", "user"), id_of("s.5", "user")) == (5, "5", "5")
    assert typed(id_of("i.005", "user"), "user") == "i.5"
    assert typed(id_of("s.%62ob", "user"), "user") == "s.bob"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:80", "localhost"),
        ("[::1]:80", "::1"),
        ("LOCALHOST", "localhost"),
        ("[::1", ""),
        ("a@b", "b"),
    ],
)
def test_the_name_in_a_host_header_is_read_without_its_port(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("192.168.0.1", False), ("memory.example", False), ("", False)],
)  # fmt: skip
def test_only_what_cannot_be_reached_by_others_is_loopback(host: str, own: bool) -> None:
    assert is_loopback(host) is own


@pytest.mark.parametrize(
    ("origin", "own"),
    [("http://localhost:80", True), ("https://LOCALHOST:80", True), ("http://localhost", False),
     ("http://[::1", False), ("localhost:80", False), ("null", False), ("", False)],
)  # fmt: skip
def test_an_origin_is_the_servers_own_or_not_whatever_is_written(origin: str, own: bool) -> None:
    assert is_own_origin(origin, "Localhost:80") is own


def test_a_key_in_its_own_header_comes_before_authorization() -> None:
    both = [(b"Authorization", b"Bearer upstream"), (b"X-Eden-Key", b"eden_x")]
    assert secret_of(both) == "eden_x"
    assert secret_of(both[:1]) == "upstream"
    assert secret_of(both[:1], bearer=False) is None
    assert secret_of([(b"authorization", b"Basic x")]) == ""
    assert secret_of([]) is None


def test_an_etag_is_found_among_several_and_compared_weakly() -> None:
    assert tag_is_known('"a"', '"b", W/"a"')
    assert tag_is_known('"a"', "*")
    assert not tag_is_known('"a"', '"b"')
    assert not tag_is_known('"a"', None)
