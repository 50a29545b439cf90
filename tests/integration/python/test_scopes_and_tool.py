"""A call keeps to the kinds of scope that it names; an agent's tool searches through it."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from eden_memory.api.tool import answer
from eden_memory.errors import Invalid
from eden_memory.schemas.scopes import ScopeKind
from tests.integration.context.harness import Kit
from tests.integration.mcp.stored import remember
from tests.integration.python.stored import ADA, AGENT, BOB

pytestmark = pytest.mark.servers
ABOUT: dict[str, Any] = {"session": "one", "user": "ada"}
QUESTION = "Where does Ada live, and what does the shipyard build?"


@pytest.fixture
async def filled(kit: Kit) -> Kit:
    await kit.session("one", ["ada"])
    await remember(kit, AGENT, "The shipyard in Lyon builds ferries.")
    await remember(kit, ADA, "Ada lives in Turin.")
    await remember(kit, BOB, "Bob lives in Bern.")
    await kit.put(AGENT, blob="Ferries are built to order.", active_facts=1)
    await kit.put(ADA, blob="Ada likes short answers.", active_facts=1)
    return kit


async def test_searches_and_contexts_keep_to_the_scopes_that_are_named(filled: Kit) -> None:
    async with filled.service() as service:
        cases: list[tuple[Sequence[ScopeKind] | None, set[str]]] = [
            (None, {"agent", "user"}),
            (["user"], {"user"}),
            (("group",), set()),
        ]
        for scopes, kinds in cases:
            found = await service.search_facts(QUESTION, **ABOUT, scopes=scopes)
            assert {fact.scope.kind for fact in found} == kinds
        own = await service.get_memory_context("one", "ada", scopes=["user"])
        assert "short answers" in own
        assert "built to order" not in own
        assert await service.get_memory_context("one", "ada", scopes=["group"]) == ""


@pytest.mark.parametrize("bad", ["user", ["everybody"], [{"$ne": ""}], 5], ids=repr)
async def test_what_is_no_list_of_scopes_is_refused(filled: Kit, bad: Any) -> None:
    async with filled.service() as service:
        with pytest.raises(Invalid, match="no such scope"):
            await service.search_facts(QUESTION, **ABOUT, scopes=bad)
        with pytest.raises(Invalid, match="no such scope"):
            await service.get_memory_context("one", "ada", scopes=bad)


async def test_an_agents_tool_searches_the_scopes_it_names_and_shows_how(filled: Kit) -> None:
    async with filled.service() as service:
        search = partial(service.explain_search, **ABOUT)
        arguments = {"queries": [QUESTION], "scopes": ["agent"], "search_type": "text", "debug": True}
        text = await answer(search, arguments)
        everything = await answer(search, {"queries": [QUESTION]})
    assert "builds ferries" in text
    assert "Turin" not in text
    assert '"stage": "text"' in text
    assert '"stage": "semantic"' not in text
    assert "Turin" in everything
    assert "<debug>" not in everything
    assert "Bern" not in everything
