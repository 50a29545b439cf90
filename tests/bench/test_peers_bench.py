"""The bench beside other memories: what its conversation states, and its model's answers."""

import json

import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseFormatTextJSONSchemaConfigParam

from tests.bench.peers_answers import answer
from tests.bench.peers_process import Outcome
from tests.bench.peers_talk import OTHER_WORDS, SAME_WORDS, meaning, stated_in, table, turns
from tests.model_server.script import Asked
from tests.model_server.serving import serving

MESSAGE = "By bus, I have no car and no driving licence yet."
FACT = "Tomás has no car and no driving licence."


def test_every_fact_is_told_and_ten_are_told_twice() -> None:
    told = [fact for turn in turns() for fact in turn.facts]
    again = {*SAME_WORDS, *OTHER_WORDS}
    assert set(told) == set(table().users)
    assert {fact for fact in told if told.count(fact) > 1} == again


def test_other_words_of_a_fact_mean_the_same() -> None:
    for fact, (message, statement) in OTHER_WORDS.items():
        assert stated_in(message) == [(fact, statement)]
        assert meaning(statement) == fact


def test_a_repeat_is_named_also_among_facts_that_are_near_to_none() -> None:
    (_, other), first = (
        OTHER_WORDS["mara-run"],
        next(text for text, fact in table().meanings.items() if fact == "mara-run"),
    )
    prompt = f"<<x>>\nKnown\nNew\nN1 near: {first}\nN2 near N1: {other}\n<<x>>"
    said = answer(Asked("decisions", "m", "", prompt, (), None, 0))
    assert isinstance(said, dict)
    assert [(one["fact"], one["decision"], one["existing"]) for one in said["decisions"]] == [
        ("N2", "NONE", "N1")
    ]


@pytest.mark.parametrize(("existing", "expected"), [([], [FACT]), ([{"id": "0", "text": FACT}], [])])
def test_mem0_is_told_what_it_does_not_show_already(existing: list[object], expected: list[str]) -> None:
    shown = f"## Existing Memories\n{json.dumps(existing)}\n\n"
    prompt = f"{shown}## New Messages\nuser: {MESSAGE}\n\n## Observation Date\n"
    said = answer(Asked("unknown", "m", "", prompt, (), None, 0))
    assert isinstance(said, dict)
    assert [one["text"] for one in said["memory"]] == expected


def test_missing_facts_are_silent_unless_reported() -> None:
    outcome = Outcome({"a", "b", "c"}, reported={"b"})
    outcome.stored.update(["a", "a", None])
    assert (outcome.missing, outcome.silent, outcome.copies) == ({"b", "c"}, {"c"}, 1)


async def test_the_model_server_speaks_the_responses_format() -> None:
    prompt = f"<CURRENT MESSAGE>\nTomas: {MESSAGE}\n</CURRENT MESSAGE>"
    schema: dict[str, object] = {"type": "object", "properties": {"extracted_entities": {"type": "array"}}}
    form: ResponseFormatTextJSONSchemaConfigParam = {"type": "json_schema", "name": "E", "schema": schema}
    async with serving(answer) as models, AsyncOpenAI(base_url=models.openai_url, api_key="k") as client:
        response = await client.responses.create(
            model="m",
            input=[{"role": "user", "content": prompt}],
            text={"format": form},
        )
        assert response.usage is not None
        assert response.usage.input_tokens == models.tally.input_tokens
    names = [one["name"] for one in json.loads(response.output_text)["extracted_entities"]]
    assert names == ["Tomas", "tomas no car"]
