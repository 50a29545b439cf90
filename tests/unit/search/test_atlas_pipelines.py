"""Atlas' aggregations by shape: scopes inside the search stage, queries as values, thresholds on Atlas' scale."""

from typing import Any, cast

import pytest

from eden_memory.mongo.documents import packed_of
from eden_memory.schemas.fields import pack_vector
from eden_memory.search.atlas_list_store import TEXT_INDEX, VECTOR_INDEX, by_words, definitions, nearest

KEYS = ["user:s.a:s.u", "agent:s.a"]
VECTOR = pack_vector([0.6, 0.8])
CRAFTED = '{"$ne": null} +scope_key:* /.*/'


def paths_of(name: str) -> dict[str, str]:
    """The filters and fields of an index, by what they are."""
    _, definition = definitions(2)[name]
    if name == VECTOR_INDEX:
        return {one["path"]: one["type"] for one in definition["fields"]}
    return {path: one["type"] for path, one in definition["mappings"]["fields"].items()}


def test_scopes_stand_inside_the_vector_search() -> None:
    stages = nearest(KEYS, VECTOR, "model", 20, 0.65)
    search = stages[0]["$vectorSearch"]
    assert search["filter"] == {
        "$and": [
            {"scope_key": {"$in": KEYS}},
            {"active": {"$eq": True}},
            {"embedding_model": {"$eq": "model"}},
        ]
    }
    assert (search["index"], search["path"], search["limit"]) == (VECTOR_INDEX, "embedding", 20)
    assert packed_of(search["queryVector"]) == VECTOR
    assert stages[1]["$project"]["score"] == {"$meta": "vectorSearchScore"}
    assert stages[2] == {"$match": {"score": {"$gte": 0.65}}}
    filters = {name for part in search["filter"]["$and"] for name in part}
    assert all(paths_of(VECTOR_INDEX)[name] == "filter" for name in filters)


@pytest.mark.parametrize(("most", "candidates"), [(5, 200), (100, 2_000), (5_000, 10_000)])
def test_more_candidates_than_results_are_looked_at(most: int, candidates: int) -> None:
    (search, *_) = nearest(KEYS, VECTOR, "model", most, 0)
    assert search["$vectorSearch"]["numCandidates"] == candidates


def test_scopes_stand_inside_the_text_search() -> None:
    stages = by_words(KEYS, "tea", 20, 1.5)
    search = stages[0]["$search"]
    compound = search["compound"]
    assert search["index"] == TEXT_INDEX
    assert compound["filter"] == [
        {"in": {"path": "scope_key", "value": KEYS}},
        {"equals": {"path": "active", "value": True}},
    ]
    assert compound["minimumShouldMatch"] == 1
    assert stages[1] == {"$limit": 20}
    assert stages[2]["$project"]["score"] == {"$meta": "searchScore"}
    assert stages[3] == {"$match": {"score": {"$gte": 1.5}}}
    fields = paths_of(TEXT_INDEX)
    assert (fields["scope_key"], fields["active"], fields["content"]) == ("token", "boolean", "string")


def test_a_query_is_a_value_and_no_syntax() -> None:
    """`text` has no query syntax; nothing of the query is a name in the pipeline."""
    stages = by_words(KEYS, CRAFTED, 5, 0)
    asked = [one["text"]["query"] for one in stages[0]["$search"]["compound"]["should"]]
    assert asked == [CRAFTED, CRAFTED]
    assert all(CRAFTED not in name for name in names_in(stages))
    assert not {"queryString", "regex", "wildcard"} & set(names_in(stages))


def test_every_indexed_way_and_typos_are_asked_for() -> None:
    (search, *_) = by_words(KEYS, "tea", 5, 0)
    exact, fuzzy = (one["text"] for one in search["$search"]["compound"]["should"])
    assert fuzzy["fuzzy"]["maxEdits"] == 1
    assert exact["score"]["boost"]["value"] > 1
    as_written, *ways = cast("list[Any]", exact["path"])
    content = cast("dict[str, Any]", definitions(2)[TEXT_INDEX][1]["mappings"]["fields"])["content"]
    assert as_written == "content"
    assert [way["multi"] for way in ways] == list(content["multi"])


def names_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        parts = cast("dict[str, Any]", value)
        return [*parts, *(name for one in parts.values() for name in names_in(one))]
    if isinstance(value, list):
        return [name for one in cast("list[Any]", value) for name in names_in(one)]
    return []
