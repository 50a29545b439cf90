"""Moments, money and vectors: what goes into JSON comes back the same, and nothing else goes in."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from eden_memory.schemas.fields import Moment, Part, Usd, Vector, pack_vector, unpack_vector


class Sample(Part):
    at: Moment | None = None
    cost: Usd | None = None
    vector: Vector | None = None


def again(sample: Sample) -> Sample:
    return Sample.model_validate_json(sample.model_dump_json())


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_moment_survives_json_to_the_millisecond(at: datetime) -> None:
    sample = Sample(at=at)
    assert again(sample) == sample
    assert sample.at is not None
    assert timedelta() <= at - sample.at < timedelta(milliseconds=1)


def test_the_first_year_is_written_with_four_digits() -> None:
    assert json.loads(Sample(at=datetime(1, 1, 1, tzinfo=UTC)).model_dump_json())["at"].startswith(
        "0001-01-01T"
    )


def test_a_moment_is_written_in_utc() -> None:
    at = datetime(2026, 3, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert json.loads(Sample(at=at).model_dump_json())["at"] == "2026-02-28T23:30:00.000Z"


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValidationError):
        Sample(at=datetime(2026, 3, 1))


@given(st.decimals(min_value=0, max_value=10**9, places=12))
def test_money_survives_json_exactly(cost: Decimal) -> None:
    assert again(Sample(cost=cost)).cost == cost


def test_small_money_is_written_without_an_exponent() -> None:
    assert json.loads(Sample(cost=Decimal("1E-7")).model_dump_json())["cost"] == "0.0000001"


@pytest.mark.parametrize("cost", ["-0.01", "NaN", "Infinity", "much", "1e-3x", "0.0000000000001"])
def test_what_is_no_price_is_refused(cost: str) -> None:
    with pytest.raises(ValidationError):
        Sample.model_validate_json(json.dumps({"cost": cost}))


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1))
def test_a_vector_survives_json(numbers: list[float]) -> None:
    packed = pack_vector(numbers)
    assert list(unpack_vector(packed)) == numbers
    assert again(Sample(vector=packed)).vector == packed


def test_a_vector_is_little_endian_float32() -> None:
    assert pack_vector([1.0, -2.0]) == b"\x00\x00\x80\x3f\x00\x00\x00\xc0"


@pytest.mark.parametrize("text", ["", "AAA", "AAAA", "not base64!", "AAAAAA="])
def test_what_is_no_vector_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Sample.model_validate_json(json.dumps({"vector": text}))
