"""`eden eval` on real servers: ours and a baseline with a model, what a second run pays for, and the cap."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from eden_memory.evals.dataset import EvalLine, eval_set
from eden_memory.evals.eval_report import markdown, unanswered, write_report
from eden_memory.evals.evaluation import EvalPlan, budget_figures, evaluate
from eden_memory.evals.own_memory import clear
from eden_memory.local.servers import endpoints
from eden_memory.observability.watching import CallTotals, FormationProgress
from eden_memory.settings import Settings
from tests.model_server.script import Asked, Said, default_script
from tests.model_server.serving import Serving, serving

pytestmark = pytest.mark.servers
STATED = {
    "I live in Vigo": "The user lives in Vigo.",
    "my dog is called Tula": "The user's dog is called Tula.",
    "I moved to Lugo": "The user lives in Lugo.",
}
RED = "Ada owns a red car."
ROWS: list[dict[str, Any]] = [
    {
        "kind": "session",
        "id": "s1",
        "at": "2026-01-05T09:00:00Z",
        "messages": [
            {"id": "m1", "text": "Hello, I live in Vigo."},
            {"id": "m2", "text": "What can I do for you?", "role": "assistant"},
            {"id": "m3", "text": "By the way, my dog is called Tula."},
            {"id": "m4", "text": "A nice name.", "role": "assistant"},
        ],
    },
    {
        "kind": "session",
        "id": "s2",
        "at": "2026-02-05T09:00:00Z",
        "messages": [
            {"id": "m5", "text": "News: I moved to Lugo."},
            {"id": "m6", "text": "All the best there.", "role": "assistant"},
        ],
    },
    {
        "kind": "question",
        "id": "dog",
        "text": "What is the dog called?",
        "answers": ["Tula"],
        "evidence": ["m3"],
    },
    {
        "kind": "question",
        "id": "city",
        "text": "In which city does the user live?",
        "choices": ["Vigo", "Lugo"],
        "correct": 1,
        "evidence": ["m5"],
        "outdated": ["m1"],
    },
    {"kind": "question", "id": "cat", "text": "What is the cat called?", "absent": True},
    {"kind": "expected", "id": "dog", "scope": "user:user", "says": "…", "mentions": [["Tula"]]},
    {"kind": "forbidden", "id": "vigo", "scopes": ["user"], "mentions": [["in Vigo"]]},
    {
        "kind": "decision",
        "id": "same",
        "known": ["Ada owns a red car."],
        "new": "Ada has a red car.",
        "expected": "NONE",
    },
    {
        "kind": "decision",
        "id": "other",
        "known": ["Ada owns a red car."],
        "new": "Ada owns a red bike.",
        "expected": "ADD",
    },
]
MORE = {"kind": "question", "id": "name", "text": "Tula is what?", "answers": ["dog"], "evidence": ["m3"]}


@dataclass
class Scripted:
    """A perfect model; counts what it is asked by the answer that is wanted."""

    asked: Counter[str] = field(default_factory=Counter[str])

    def __call__(self, asked: Asked) -> Said:  # noqa: PLR0911 - a case for each kind of answer
        wanted = next(iter((asked.schema or {}).get("properties", {})), "")
        self.asked[wanted] += 1
        match wanted:
            case "facts":
                return {"facts": list(self._facts(asked))}
            case "decisions":
                return {"decisions": list(self._decisions(asked.user))}
            case "memory":  # mem0's only question
                told = (
                    fact for said, fact in STATED.items() if said in asked.user.split("## New Messages")[1]
                )
                row: dict[str, Any] = {"attributed_to": "user", "linked_memory_ids": []}
                return {"memory": [{**row, "id": str(at), "text": text} for at, text in enumerate(told)]}
            case "answer":
                memory = " ".join(json.loads(asked.user)["memory"])
                known = "dog" in asked.user and "Tula" in memory
                return {"answer": "Tula" if known and "cat called" not in asked.user else "unknown"}
            case "choice":
                return {"choice": 2 if "Lugo" in " ".join(json.loads(asked.user)["memory"]) else 1}
            case "correct":
                return {"correct": json.loads(asked.user)["answer"] == "Tula"}
            case _:
                return default_script(asked)

    def _facts(self, asked: Asked) -> Any:
        for number, text in asked.messages.items():
            for said, fact in STATED.items():
                if said in text:
                    yield {"text": fact, "scope": "user", "messages": [number]}

    def _decisions(self, prompt: str) -> Any:
        if "Ada has a red car." in prompt:
            yield {"fact": "N1", "decision": "NONE", "existing": "K1", "text": None, "reason": "the same"}
        if "lives in Lugo" in prompt:
            yield {"fact": "N1", "decision": "DELETE", "existing": "K1", "text": None, "reason": "moved"}


@pytest.fixture
def script() -> Scripted:
    return Scripted()


@pytest.fixture
async def model(
    script: Scripted, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Serving]:
    """The model server, named by the environment, which our memory's process reads."""
    async with serving(script) as server:
        monkeypatch.setenv("EDEN_LLM", server.openai_url)
        monkeypatch.setenv("EDEN_MODELS_FAST", "small")
        monkeypatch.setenv("EDEN_EMBEDDER", "local")
        yield server
    await clear(settings, endpoints(settings))


@pytest.fixture
def here(model: Serving, settings: Settings) -> Settings:
    named = Settings()
    return settings.model_copy(update={"llm": named.llm, "embedder": named.embedder, "models": named.models})


def plan(out: Path, rows: list[dict[str, Any]], *systems: str) -> EvalPlan:
    dataset = eval_set("test", [EvalLine.model_validate(row) for row in rows])
    return EvalPlan(dataset, systems, out, budgets=(20, 500))


@pytest.mark.slow
async def test_systems_are_compared_and_a_second_run_pays_only_for_what_changed(
    here: Settings, script: Scripted, tmp_path: Path
) -> None:
    asked = plan(tmp_path, ROWS, "eden", "bm25")
    notes: list[str] = []
    report = await evaluate(here, asked, notes.append)
    ours, words = report.systems
    assert ours.quality is not None
    assert ours.quality.recall == 1.0
    assert (ours.newer_first.hits, ours.newer_first.of) == (1, 1)
    assert ours.extraction is not None
    assert [item.id for item, _ in ours.extraction.found] == ["dog"]
    assert ours.extraction.violated == (), "the city that no longer holds was retired"
    assert ours.decisions is not None
    assert (ours.decisions.false_merges.hits, ours.decisions.missed_duplicates.hits) == (0, 0)
    assert (ours.decisions.false_merges.of, ours.decisions.missed_duplicates.of) == (1, 1)
    assert ours.formed is not None
    assert ours.formed.tokens > 0
    roomy, tight = budget_figures(ours.at[500]), budget_figures(ours.at[20])
    assert roomy.accuracy == roomy.evidence == 1.0
    assert tight.memory_tokens <= 20
    assert roomy.tokens > 0
    assert words.extraction is None
    page = markdown(report)
    assert "| eden | 500 |" in page
    assert "## Curve: accuracy by budget" in page
    assert "You judge whether an answer" in page
    assert {path.name for path in write_report(report, tmp_path)} == {
        "report.md",
        "report.json",
        "accuracy.svg",
    }

    before = script.asked.copy()
    again = await evaluate(here, asked, notes.append)
    assert again.systems == report.systems
    assert script.asked == before, "everything was kept"
    assert "eden: recorded earlier" in notes

    await evaluate(here, plan(tmp_path, [*ROWS, MORE], "eden", "bm25"), notes.append)
    new = script.asked - before
    assert set(new) <= {"answer", "correct"}, "memory that is there is asked"
    assert new["answer"] <= 4, "the new question, of two systems at two budgets"


@pytest.mark.slow
async def test_forming_goes_on_where_it_was_stopped(here: Settings, script: Scripted, tmp_path: Path) -> None:
    asked = replace(plan(tmp_path, ROWS, "eden"), answers=False)
    running = asyncio.create_task(evaluate(here, asked, lambda _: None))
    while not script.asked["text"]:  # a consolidation: extraction is paid for
        await asyncio.sleep(0.05)
        assert not running.done()
    running.cancel()
    await asyncio.wait([running])
    report = await evaluate(here, asked, lambda _: None)
    assert report.systems[0].quality is not None
    assert report.systems[0].quality.recall == 1.0
    assert script.asked["facts"] == 2, "a window is paid for once"


def a_cent(*_: object) -> Decimal:
    return Decimal("0.01")


async def test_it_ends_at_the_cap_and_goes_on_with_a_higher_one(
    here: Settings, script: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eden_memory.evals.spending.Prices.cost", a_cent)
    monkeypatch.setattr("eden_memory.evals.spending.AT_ONCE", 1)
    asked = plan(tmp_path, ROWS, "bm25")
    first = await evaluate(here, replace(asked, cap=Decimal("0.02")), lambda _: None)
    assert first.capped
    assert first.paid == Decimal("0.02")
    assert script.asked.total() == 2
    second = await evaluate(here, replace(asked, cap=Decimal(1)), lambda _: None)
    assert not second.capped
    assert second.paid == Decimal("0.01") * (script.asked.total() - 2)
    assert budget_figures(second.systems[0].at[500]).accuracy == 1.0


@pytest.mark.slow
async def test_the_mapping_of_the_users_own_chat_does_not_matter(
    here: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDEN_MONGODB_PREFIX", "mem_")
    monkeypatch.setenv("EDEN_MESSAGES_ROLE", "sender.kind")
    monkeypatch.setenv("EDEN_SESSIONS_AGENT_ID", "bot.id")
    own = Settings()
    mapped = here.model_copy(
        update={
            "mongodb": here.mongodb.model_copy(update={"prefix": own.mongodb.prefix}),
            "messages": own.messages,
            "sessions": own.sessions,
        }
    )
    report = await evaluate(mapped, replace(plan(tmp_path, ROWS, "eden"), answers=False), lambda _: None)
    assert report.systems[0].quality is not None
    assert report.systems[0].quality.recall == 1.0


@pytest.mark.slow
async def test_it_ends_at_the_cap_while_memory_is_formed(
    here: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def total(progress: FormationProgress) -> CallTotals:
        return CallTotals(cost=Decimal("0.5") * bool(progress.spent))

    asked = replace(plan(tmp_path, ROWS, "eden"), answers=False, cap=Decimal("0.1"))
    with monkeypatch.context() as priced:
        priced.setattr(FormationProgress, "total", property(total))
        first = await evaluate(here, asked, lambda _: None)
    assert (first.capped, first.paid, first.systems) == (True, Decimal("0.5"), [])
    second = await evaluate(here, asked, lambda _: None)
    assert not second.capped
    assert second.systems[0].quality is not None


async def test_questions_without_a_valid_answer_are_shown_and_asked_anew(
    here: Settings, script: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = plan(tmp_path, ROWS, "bm25")

    def nothing(scripted: Scripted, asked: Asked) -> Said:
        return "nothing"

    with monkeypatch.context() as broken:
        broken.setattr(Scripted, "__call__", nothing)
        first = await evaluate(here, asked, lambda _: None)
    assert unanswered(first) == 6
    assert "| 3 of 3 |" in markdown(first)
    second = await evaluate(here, asked, lambda _: None)
    assert unanswered(second) == 0
    assert "failed" not in markdown(second)
    assert script.asked["answer"] > 0


@pytest.mark.skipif(find_spec("mem0") is None, reason="mem0 is not installed")
async def test_mem0_is_asked_with_the_same_model_and_embedder(
    here: Settings, script: Scripted, tmp_path: Path
) -> None:
    (found,) = (await evaluate(here, plan(tmp_path, ROWS, "mem0"), lambda _: None)).systems
    assert script.asked["memory"] == 3, "a turn is a message and its answer"
    assert found.quality is not None
    assert found.quality.recall == 1.0
    assert found.formed is not None
    assert found.formed.tokens > 0
    assert budget_figures(found.at[500]).accuracy == 1.0
