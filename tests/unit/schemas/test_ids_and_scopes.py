"""Typed ids and scope keys: no two different ones meet, and none can be crafted to look like another."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from eden_memory.schemas.ids import EntityId, encode, split
from eden_memory.schemas.scopes import LISTED_USERS, LargeAudience, Scope, ScopeKey

raw_ids = st.one_of(st.text(max_size=40), st.integers(), st.uuids())
entity = TypeAdapter[str](EntityId)
scope_key = TypeAdapter[str](ScopeKey)


@given(raw_ids, raw_ids)
def test_different_ids_have_different_texts(one: str | int | UUID, other: str | int | UUID) -> None:
    same = type(one) is type(other) and one == other
    assert (encode(one) == encode(other)) is same


@given(raw_ids)
def test_an_encoded_id_is_valid_and_comes_back(raw: str | int | UUID) -> None:
    encoded = entity.validate_python(encode(raw))
    assert split(encoded)[1] == str(raw)
    assert not set(encoded) & set(":@#/ ")


@pytest.mark.parametrize("raw", [True, 1.5, 2.0**63, float("nan"), float("inf"), None, b"x", ["x"]])
def test_other_types_are_no_ids(raw: object) -> None:
    with pytest.raises(TypeError):
        encode(raw)


def scopes(one: str, other: str) -> list[Scope]:
    return [
        Scope.of_session(one, other, ()),
        Scope.of_session(one, other, (), generation=2),
        Scope.of_user(one, other),
        Scope.of_group(one, other),
        Scope.of_agent(one),
        Scope.of_shard(one, other),
    ]


@given(raw_ids, raw_ids)
def test_scope_keys_are_valid_and_differ(one: str | int | UUID, other: str | int | UUID) -> None:
    keys = [scope.key for scope in scopes(encode(one), encode(other))]
    assert len(set(keys)) == len(keys)
    assert [scope_key.validate_python(key) for key in keys] == keys


@given(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30))
def test_shards_of_different_names_have_different_keys(one: str, other: str) -> None:
    assert (Scope.of_shard("s.a", one).key == Scope.of_shard("s.a", other).key) is (one == other)


@given(raw_ids, raw_ids)
def test_scopes_survive_json(one: str | int | UUID, other: str | int | UUID) -> None:
    for scope in scopes(encode(one), encode(other)):
        assert Scope.model_validate_json(scope.model_dump_json()) == scope


def test_a_key_that_is_not_of_its_ids_is_refused() -> None:
    honest = Scope.of_user("s.a", "s.u").model_dump()
    for lie in ({"key": "user:s.a:s.other"}, {"kind": "group"}, {"user_id": None}, {"session_id": "s.s"}):
        with pytest.raises(ValidationError):
            Scope.model_validate({**honest, **lie})


def test_a_session_scope_begins_anew_under_another_key() -> None:
    first = Scope.of_session("s.a", "s.s", ("s.u",))
    second = Scope.of_session("s.a", "s.s", ("s.u", "s.v"), generation=2)
    assert (first.key, second.key) == ("session:s.s", "session:s.s:2")


@given(raw_ids, raw_ids, st.text(min_size=1, max_size=20), st.integers(1, 30))
def test_a_scope_is_read_back_from_its_key(
    raw: str | int | UUID, raw_other: str | int | UUID, name: str, generation: int
) -> None:
    one, other = encode(raw), encode(raw_other)
    for scope in (
        Scope.of_session(one, other, (one,), generation),
        Scope.of_user(one, other),
        Scope.of_group(one, other),
        Scope.of_agent(one),
        Scope.of_shard(one, name),
    ):
        assert Scope.of_key(scope.key, scope.agent_id, scope.audience) == scope


def test_of_a_large_audience_a_scope_holds_number_and_hash_in_whatever_order_its_users_come() -> None:
    users = [f"i.{number}" for number in range(LISTED_USERS + 1)]
    listed = Scope.of_session("s.a", "s.s", tuple(users[:LISTED_USERS]))
    assert listed.audience == tuple(users[:LISTED_USERS])
    large = Scope.of_session("s.a", "s.s", tuple(users))
    assert large == Scope.of_session("s.a", "s.s", tuple(reversed(users)))
    assert (
        Scope.of_key(large.key, "s.a", large.audience)
        == large
        == Scope.model_validate_json(large.model_dump_json())
    )
    assert large.audience == LargeAudience.of(frozenset(users))
    told = (
        "5946eb72b988b54232384799f85a0f712657978c01d002e7087416d78d74443f"  # printf 's.a\ns.b\n' | sha256sum
    )
    assert LargeAudience.of(frozenset({"s.b", "s.a"})) == LargeAudience(users=2, hash=told)
