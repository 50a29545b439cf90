"""Aggregations over Atlas' search indexes; the scopes stand inside the search stage, never behind it. Pure.

Queries and scope keys are values in them, wherever MongoDB would read an operator: nothing that is asked for can
change what is asked.
"""

from collections.abc import Sequence
from typing import Any

from eden_memory.mongo.documents import vector_of
from eden_memory.search.search_documents import SHOWN
from eden_memory.search.search_index_store import ENGLISH, TEXT_INDEX, VECTOR_INDEX

Row = dict[str, Any]
PER_RESULT, MOST_CANDIDATES = 20, 10_000
"""Candidates that the graph is searched for, per result; the server's greatest number."""
LEAST_CANDIDATES = 200
EXACT_BOOST = 3.0
"""What a word as it was written counts more than one that only resembles it."""


def nearest(scope_keys: Sequence[str], vector: bytes, model: str, most: int, least: float) -> list[Row]:
    """Facts near a packed vector; `vectorSearchScore` is (1 + cosine) / 2."""
    return [
        {
            "$vectorSearch": {
                "index": VECTOR_INDEX,
                "path": "embedding",
                "queryVector": vector_of(vector),
                "numCandidates": min(max(PER_RESULT * most, LEAST_CANDIDATES), MOST_CANDIDATES),
                "limit": most,
                "filter": {
                    "$and": [
                        {"scope_key": {"$in": list(scope_keys)}},
                        {"active": {"$eq": True}},
                        {"embedding_model": {"$eq": model}},
                    ]
                },
            }
        },
        *_shown("vectorSearchScore", least),
    ]


def by_words(scope_keys: Sequence[str], query: str, most: int, least: float) -> list[Row]:
    """Facts by words: as written, by their English stem, or with a typo; `searchScore` is Lucene's BM25."""
    path = ["content", {"value": "content", "multi": ENGLISH}]
    exact: Row = {"query": query, "path": path, "score": {"boost": {"value": EXACT_BOOST}}}
    fuzzy: Row = {"query": query, "path": "content", "fuzzy": {"maxEdits": 1, "prefixLength": 1}}
    return [
        {
            "$search": {
                "index": TEXT_INDEX,
                "compound": {
                    "should": [{"text": exact}, {"text": fuzzy}],
                    "minimumShouldMatch": 1,
                    "filter": [
                        {"in": {"path": "scope_key", "value": list(scope_keys)}},
                        {"equals": {"path": "active", "value": True}},
                    ],
                },
            }
        },
        {"$limit": most},
        *_shown("searchScore", least),
    ]


def _shown(score: str, least: float) -> list[Row]:
    fields = dict.fromkeys((*SHOWN, "active", "embedding", "embedding_model"), 1)
    return [
        {"$project": {**fields, "score": {"$meta": score}}},
        {"$match": {"score": {"$gte": least}}},
    ]
