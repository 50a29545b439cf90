"""Atlas search indexes by shape: what is asked of a server that has search."""

from typing import Any, cast

import pytest
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel

from eden_memory.errors import EdenError
from eden_memory.search.atlas_list_store import (
    TEXT_INDEX,
    VECTOR_INDEX,
    definitions,
    found,
    make,
    problems,
    wait_until_queryable,
)

Row = dict[str, Any]


class Cursor:
    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    async def to_list(self) -> list[Row]:
        return self._rows


class Server:
    """Answers as an Atlas server does; after `asked` looks a new index answers queries."""

    name = "facts"

    def __init__(self, asked: int = 0, error: OperationFailure | None = None) -> None:
        self.rows: dict[str, Row] = {}
        self.updated: list[str] = []
        self._left, self._error = asked, error

    async def list_search_indexes(self) -> Cursor:
        if self._error is not None:
            raise self._error
        self._left -= 1
        for row in self.rows.values():
            row.setdefault("status", "READY")
            row["queryable"] = row["status"] == "READY" and self._left <= 0
        return Cursor(list(self.rows.values()))

    async def create_search_index(self, model: SearchIndexModel) -> str:
        document = model.document
        name = str(document["name"])
        defaults = {"storedSource": False}
        definition = {**document["definition"], **defaults}
        self.rows[name] = {"name": name, "type": document["type"], "latestDefinition": definition}
        return name

    async def update_search_index(self, name: str, definition: Row) -> None:
        self.updated.append(name)
        self.rows[name]["latestDefinition"] = definition

    @property
    def facts(self) -> AsyncCollection[Row]:
        return cast(AsyncCollection[Row], self)


def test_vectors_are_compared_by_cosine_within_scope_and_activity() -> None:
    kind, definition = definitions(384)[VECTOR_INDEX]
    vector, *filters = definition["fields"]
    assert kind == "vectorSearch"
    assert (vector["path"], vector["numDimensions"], vector["similarity"]) == ("embedding", 384, "cosine")
    wanted = {"agent_id", "user_id", "group_id", "scope", "scope_key", "active", "embedding_model"}
    assert {one["path"] for one in filters if one["type"] == "filter"} == wanted


def test_words_are_searched_within_scope_and_activity() -> None:
    kind, definition = definitions(384)[TEXT_INDEX]
    fields = definition["mappings"]["fields"]
    assert kind == "search"
    assert definition["mappings"]["dynamic"] is False
    assert fields["content"]["type"] == "string"
    assert fields["scope_key"] == {"type": "token"}
    assert fields["active"] == {"type": "boolean"}


async def test_both_are_made_once_and_put_right_when_vectors_change_their_length() -> None:
    server = Server()
    assert await make(server.facts, 384) == [VECTOR_INDEX, TEXT_INDEX]
    assert await make(server.facts, 384) == []
    assert await make(server.facts, 1_536) == [VECTOR_INDEX]
    assert server.updated == [VECTOR_INDEX]


async def test_the_check_says_what_is_missing_differs_or_does_not_answer_yet() -> None:
    server = Server(asked=3)
    named = [f"search index facts.{name}" for name in (VECTOR_INDEX, TEXT_INDEX)]
    assert await problems(server.facts, 384) == [f"{name} is missing" for name in named]
    await make(server.facts, 384)
    server.rows[TEXT_INDEX]["status"] = "BUILDING"
    assert await problems(server.facts, 1_536) == [
        f"{named[0]} has another definition",
        f"{named[1]} does not answer yet (BUILDING)",
    ]
    server.rows[TEXT_INDEX]["status"] = "READY"
    assert await problems(server.facts, 384) == []
    assert await problems(Server(error=OperationFailure("no", 59)).facts, 384) == []


async def test_the_wait_ends_when_both_answer() -> None:
    server = Server(asked=4)
    await make(server.facts, 384)
    await wait_until_queryable(server.facts, 30, pause=0)
    assert all(row["queryable"] for row in server.rows.values())


async def test_an_index_that_failed_or_takes_too_long_is_said() -> None:
    server = Server(asked=1_000_000)
    await make(server.facts, 384)
    with pytest.raises(EdenError, match="not ready"):
        await wait_until_queryable(server.facts, 0, pause=0)
    server.rows[TEXT_INDEX]["status"] = "FAILED"
    with pytest.raises(EdenError, match="facts_text failed"):
        await wait_until_queryable(server.facts, 30, pause=0)


@pytest.mark.parametrize("code", [59, 31_082, 40_324, 6_047_401])
async def test_a_server_without_search_is_known_by_its_refusal(code: int) -> None:
    server = Server(error=OperationFailure("no", code))
    assert await found(server.facts) is None
    assert await make(server.facts, 384) is None


async def test_any_other_refusal_is_raised() -> None:
    with pytest.raises(OperationFailure):
        await make(Server(error=OperationFailure("not allowed", 13)).facts, 384)
