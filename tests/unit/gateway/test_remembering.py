"""What of memory a chat is given: within its time, said once, in two parts."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import orjson
from prometheus_client import REGISTRY

from eden_memory.api.gateway.chat_access import ChatAccess
from eden_memory.api.gateway.chat_request import MemoryOptions
from eden_memory.api.gateway.gateway import configuration
from eden_memory.api.gateway.remembering import (
    Remembered,
    RememberedText,
    Remembering,
    joined,
    memory_text,
    parted,
)
from eden_memory.api.service import Memory
from eden_memory.context.context_xml import FactLine
from eden_memory.schemas.scopes import Scope
from eden_memory.search.search_requests import FoundMessage
from eden_memory.settings import GatewaySettings, ModelsSettings, Settings

NOW = datetime(2026, 5, 1, tzinfo=UTC)
USER = Scope.of_user("s.a", "s.u")
HEAD = "<MemoryContext>\n  Notice.\n"
CONTEXT = (
    f"{HEAD}  <UserMemory>\n    <Consolidated>One &lt;Facts&gt;\n  two</Consolidated>\n  </UserMemory>\n"
    "  <Facts>\n    - [user] Has a cat. (1m ago)\n  </Facts>\n</MemoryContext>"
)


@dataclass
class Service:
    """Answers at once, late, or not at all."""

    context: str | Exception | None = CONTEXT
    found: Any = ()
    unformed: Any = ()

    def agent(self, agent_id: Any = "default") -> "Service":
        return self

    async def get_memory_context(self, session: Any, user: Any, *, scopes: Any = None) -> str:
        return await _said(self.context)

    async def explain_search(self, queries: list[str], **given: Any) -> Any:
        self.given = {name: value for name, value in given.items() if value is not None}
        return SimpleNamespace(facts=await _said(self.found), unformed=self.unformed)

    async def origins(self, found: Any) -> dict[str, Any]:
        return {}


async def _said(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value if value is not None else await asyncio.Event().wait()


def hit(content: str) -> Any:
    times = {"formed_at": NOW, "said_at": NOW, "valid_from": NOW}
    return SimpleNamespace(
        fact_id="f", content=content, scope=USER, score=0.9, relevance=0.3, version=1, **times
    )


async def remembered(service: Service, asked: MemoryOptions | None = None, **gateway: Any) -> Remembered:
    seconds = 0.5 if None in (service.context, service.found) else 60
    settings = Settings(gateway=GatewaySettings.model_validate({"memory_seconds": seconds, **gateway}))
    remembering = Remembering(cast("Memory", service), settings, lambda: NOW)
    return await remembering.of(ChatAccess("a", "s", "u"), asked or MemoryOptions(), "What pets?")


def degraded(part: str, why: str) -> float:
    return REGISTRY.get_sample_value("eden_gateway_degraded_total", {"part": part, "why": why}) or 0.0


async def test_what_was_found_is_said_once_and_reported_in_full() -> None:
    found = await remembered(Service(found=[hit("Has a cat."), hit("Had a <dog>.")]))
    assert found.text.stable.count("Has a cat.") == 0
    assert found.text.changing.count("Has a cat.") == 1
    assert "<RetrievedFacts>\n    - [user] Had a &lt;dog&gt;. (just now)" in found.text.changing
    assert [one["content"] for one in orjson.loads(found.hits)] == ["Has a cat.", "Had a <dog>."]


async def test_what_is_not_formed_yet_is_a_hit_without_the_time_of_a_formation() -> None:
    said = FoundMessage("s.m", "s.1", "agent", "Had a dog.", NOW, 0.5)
    (found,) = orjson.loads((await remembered(Service(unformed=[said]))).hits)
    assert (found["id"], found["content"], found["role"]) == ("s.m", "Had a dog.", "assistant")
    assert found["formed_at"] is found["version"] is None


async def test_the_requests_wishes_reach_the_search() -> None:
    service = Service(found=[hit("Has a cat.")])
    found = await remembered(service, MemoryOptions(top_k=3, recency_weight=0.5, score_threshold=0.2))
    assert [one["relevance"] for one in orjson.loads(found.hits)] == [0.3]
    assert service.given == {
        "session": "s",
        "user": "u",
        "top_k": 3,
        "related": False,
        "search_type": "hybrid",
        "as_context": True,
        "recency_weight": 0.5,
    }
    found = await remembered(service, MemoryOptions(score_threshold=0.31))
    assert (found.hits, "RetrievedFacts" in found.text.changing) == (b"[]", False)
    await remembered(service, MemoryOptions(top_k=3))
    assert service.given == {
        "session": "s",
        "user": "u",
        "top_k": 3,
        "search_type": "hybrid",
        "as_context": True,
        "related": True,
    }


async def test_a_search_that_fails_or_is_slow_is_left_out_and_counted() -> None:
    for outcome, why in ((ValueError("secret"), "failed"), (None, "slow")):
        before = degraded("search", why)
        found = await remembered(Service(found=outcome))
        assert (bool(found.text.stable), found.hits, degraded("search", why)) == (True, b"[]", before + 1)


async def test_a_context_that_fails_or_is_slow_is_left_out_and_what_was_found_stays() -> None:
    for outcome, why in ((ValueError("secret"), "failed"), (None, "slow")):
        before = degraded("context", why)
        found = await remembered(Service(outcome, [hit("Had a dog.")]))
        assert (found.text.stable, degraded("context", why)) == ("", before + 1)
        assert "Had a dog." in found.text.changing


async def test_all_of_it_at_the_start_has_what_is_stable_first() -> None:
    found = await remembered(Service(found=[hit("Had a dog.")]), placement="start")
    assert found.text.changing == ""
    places = [
        found.text.stable.index(one)
        for one in ("<UserMemory>", "<Facts>", "<RetrievedFacts>", "</MemoryContext>")
    ]
    assert places == sorted(places)
    assert found.text.stable.count("</MemoryContext>") == 1


def test_a_context_parts_at_its_facts_whatever_memories_say() -> None:
    stable, facts = parted(CONTEXT)
    assert "Consolidated" in stable
    assert "cat" not in stable
    assert facts == f"{HEAD}  <Facts>\n    - [user] Has a cat. (1m ago)\n  </Facts>\n</MemoryContext>"
    assert parted(facts) == ("", facts)
    recent = "  <Recent>\n    - [user] Hi. (just now)\n  </Recent>\n</MemoryContext>"
    assert parted(HEAD + recent) == ("", HEAD + recent)
    with_both = CONTEXT.replace("</MemoryContext>", recent)
    assert parted(with_both) == (stable, facts.replace("</MemoryContext>", recent))
    assert parted("") == ("", "")


def test_nothing_remembered_is_nothing_said() -> None:
    assert memory_text([], [], NOW) == RememberedText("", "")
    assert joined(RememberedText("", "")) == ""
    only = memory_text([], [FactLine(USER, "Had a dog.", NOW)], NOW)
    assert only.stable == ""
    assert joined(only) == only.changing


def test_the_configuration_that_health_shows_has_no_secret_of_an_address() -> None:
    models = ModelsSettings.model_validate({"embeddings": "https://u:secret@api.example.org/v1#m"})
    shown = configuration(Settings(models=models))
    assert "secret" not in str(shown)
    assert "api.example.org" in shown["embedding_model"]
