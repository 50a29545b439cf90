"""Whether `eden eval` measures what it says: a reader that knows an answer if and only if it sees the evidence."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eden_memory.evals.dataset import EvalConversation, EvalSet, QuestionLine, eval_set, read_set
from eden_memory.evals.eval_report import markdown
from eden_memory.evals.evaluation import EvalPlan, EvalReport, QuestionResult, evaluate
from eden_memory.evals.judging import accuracy
from eden_memory.evals.published_sets import converted
from eden_memory.evals.systems import mean
from eden_memory.settings import ModelsSettings, Settings
from tests.model_server.script import Asked
from tests.model_server.serving import serving

SETS = Path(__file__).parents[2] / "evals" / "sets"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StandIn:
    """Answers and judges without an error; a deaf one sees no memory."""

    dataset: EvalSet
    deaf: bool = False

    def __call__(self, asked: Asked) -> dict[str, Any]:  # noqa: PLR0911 - a case for each kind of answer
        said = json.loads(asked.user)
        match next(iter((asked.schema or {})["properties"])):
            case "answer":
                where, question = self._asked(said["question"])
                right = "; ".join(question.rubric) or "".join(question.answers[:1])
                return {"answer": right if self._knows(where, question, said["memory"]) else UNKNOWN}
            case "choice":
                where, question = self._asked(said["question"])
                right = (question.correct or 0) + 1
                return {"choice": right if self._knows(where, question, said["memory"]) else 0}
            case "correct" if "explanation" in said:
                return {"correct": said["response"] == UNKNOWN}
            case "correct" if "right_answers" in said:
                return {"correct": said["answer"] in said["right_answers"]}
            case "correct":
                return {"correct": said["response"] == said.get("rubric", said.get("correct_answer"))}
            case "score":
                _, question = self._asked(said["question"])
                right = (
                    said["response"] == UNKNOWN if question.absent else said["criterion"] in said["response"]
                )
                return {"score": 1 if right else 0}
            case "order":
                return {"order": [int(at) for at, item in said["items"].items() if item in said["response"]]}
            case other:
                raise AssertionError(other)

    def _asked(self, text: str) -> tuple[EvalConversation, QuestionLine]:
        (found,) = (pair for pair in self.dataset.questions if pair[1].text == text)
        return found

    def _knows(self, where: EvalConversation, question: QuestionLine, memory: list[str]) -> bool:
        """Look for the words of the evidence in what is shown; what nobody said, it does not know."""
        if self.deaf or question.absent:
            return False
        said = {message.id: message.text for session in where.sessions for message in session.messages}
        words = (" ".join(said[name].split()) for name in question.evidence)
        return all(any(text in line for line in memory) for text in words)


async def measured(
    dataset: EvalSet, out: Path, systems: tuple[str, ...], budgets: tuple[int, ...], *, deaf: bool = False
) -> EvalReport:
    async with serving(StandIn(dataset, deaf)) as server:
        settings = Settings(llm=server.openai_url, models=ModelsSettings(fast="small"))  # pyright: ignore[reportCallIssue]
        return await evaluate(settings, EvalPlan(dataset, systems, out, budgets), lambda _: None)


def results(report: EvalReport) -> list[list[QuestionResult]]:
    """Of each system at each budget."""
    return [part for system in report.systems for part in system.at.values()]


def score(part: list[QuestionResult], *, answerable: bool) -> float:
    """The mean of the questions with evidence, or of those that nobody answered."""
    return mean([accuracy(each.scores) for each in part if (each.evidence is not None) == answerable])


def shown(part: list[QuestionResult]) -> float:
    return mean([each.evidence for each in part if each.evidence is not None])


@pytest.fixture(params=["own", "longmemeval", "beam"])
def dataset(request: pytest.FixtureRequest) -> EvalSet:
    """Our own set, and a few rows about invented people in the form of the public ones."""
    match request.param:
        case "longmemeval":
            return eval_set("longmemeval", converted(SETS / "longmemeval_s.json", "longmemeval"))
        case "beam":
            return eval_set("beam", converted(SETS / "beam", "beam"))
        case _:
            return read_set()


async def test_a_perfect_reader_scores_the_evidence_recall_at_every_budget(
    dataset: EvalSet, tmp_path: Path
) -> None:
    report = await measured(dataset, tmp_path, ("bm25", "whole", "history"), (40, 80, 160))
    found = results(report)
    assert len(found) == 2 * 3 + 1
    for part in found:
        assert score(part, answerable=True) == pytest.approx(shown(part), abs=0.01)
        assert score(part, answerable=False) == 1
    assert len({round(shown(part), 2) for part in found}) >= 4, "the budgets and systems differ"
    assert shown(found[-1]) == 1, "the whole history holds all evidence"
    assert f"Judging prompts: {dataset.name.removesuffix('own') or 'eval'}-" in markdown(report)


async def test_a_deaf_reader_scores_the_floor(dataset: EvalSet, tmp_path: Path) -> None:
    (part,) = results(await measured(dataset, tmp_path, ("bm25",), (160,), deaf=True))
    assert score(part, answerable=True) == 0 < shown(part)
    assert score(part, answerable=False) == 1, "it is right that nothing is known"


@pytest.mark.slow
async def test_a_public_set_is_evaluated_by_one_command_and_a_second_run_pays_nothing(tmp_path: Path) -> None:
    asked: list[str] = []
    dataset = eval_set("beam", converted(SETS / "beam", "beam"))

    def script(request: Asked) -> dict[str, Any]:
        asked.append(request.user)
        return StandIn(dataset)(request)

    async with serving(script) as server:
        given = (str(SETS / "beam"), "--format", "beam", "--llm", server.openai_url, "--out", str(tmp_path))
        await eden_eval(*given, "--system", "bm25", "--system", "history", "--budget", "50", "--yes")
        paid = len(asked)
        settings = Settings(llm=server.openai_url, models=ModelsSettings(fast="small"))  # pyright: ignore[reportCallIssue]
        again = await evaluate(settings, EvalPlan(dataset, ("bm25", "history"), tmp_path, (50,)), print)
    assert paid == len(asked) > 0
    assert score(results(again)[-1], answerable=True) == 1
    page = (tmp_path / "report.md").read_text()
    assert "Judging prompts: beam-rubric/1, beam-order/1." in page
    assert "You judge whether a response to a question meets one criterion." in page
    assert "| all | bm25 | 10 |" in page
    assert "| knowledge-update | history | 1 |" in page


async def eden_eval(*arguments: str) -> None:
    eden, pipe = Path(sys.executable).with_name("eden"), asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(
        eden, "eval", *arguments, stdout=pipe, stderr=pipe, env={**os.environ, "EDEN_MODELS_FAST": "small"}
    )
    _, errors = await running.communicate()
    assert running.returncode == 0, errors.decode()
