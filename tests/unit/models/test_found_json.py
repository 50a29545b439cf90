"""JSON found in the answers of models that could not be held to it."""

import json
import timeit
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.models.provider_calls import found_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)


@pytest.mark.parametrize(
    "said",
    [
        '{"a": 1}',
        '```json\n{"a": 1}\n```',
        '```\n{"a": 1}\n```',
        'Sure!\n\n```json\n{"a": 1}\n```\nAnything else?',
        'Here: {"a": 1} - done.',
        '<think>maybe {"a": 2}?</think>\n{"a": 1}',
        '{"a": 1,}',
        '  \n{"a": 1}\n',
    ],
)
def test_the_object_is_found(said: str) -> None:
    assert json.loads(found_json(said)) == {"a": 1}


@pytest.mark.parametrize("said", ["", "no JSON here", '{"a": [1, 2', '```json\n{"a": [1', "[1, 2]", "{}}{"])
def test_what_holds_no_whole_object_stays_as_it_is(said: str) -> None:
    assert found_json(said) == said


@given(OBJECTS)
def test_an_object_is_never_changed(value: dict[str, object]) -> None:
    text = json.dumps(value)
    assert found_json(text) == text
    assert json.loads(found_json(f"Sure:\n```json\n{text}\n```")) == value


@given(OBJECTS.filter(bool), st.data())
def test_a_truncated_object_is_never_completed(value: dict[str, object], data: st.DataObject) -> None:
    text = json.dumps({"outer": value})
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    found = found_json(cut)
    assert found == cut or json.loads(found) != {"outer": value}


def test_commas_inside_of_strings_are_kept() -> None:
    assert json.loads(found_json('{"a": "x,}", "b": [1, 2,],}')) == {"a": "x,}", "b": [1, 2]}


@pytest.mark.parametrize("piece", ['\\"', "x", "{", "[", '{"a":', "```json\n", "{} ", ",", ", "])
@pytest.mark.parametrize("end", ["", "\\", "}"])
def test_the_cost_of_an_answer_grows_with_its_length_and_no_faster(piece: str, end: str) -> None:
    assert _seconds(piece * 32_000 + end) < 100 * _seconds(piece * 2_000 + end)


def _seconds(said: str) -> float:
    """Of CPU: other work beside it does not count."""
    return min(timeit.repeat(lambda: found_json(f'{{"a": "{said}'), number=1, repeat=3, timer=process_time))
