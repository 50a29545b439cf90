"""What an evaluation writes about people: for its owner alone, and nothing that stays about live users."""

import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from eden_memory.evals import eval_report, recording, trial
from eden_memory.evals.dataset import EvalSet
from eden_memory.evals.evaluation import EvalPlan, EvalReport
from eden_memory.evals.recording import SystemRecord
from eden_memory.evals.spending import AnswerFile, EvalCap, EvalModels
from eden_memory.evals.systems import EvalSetup
from eden_memory.settings import Settings

NO_QUESTIONS = EvalSet("empty", (), "0")


@pytest.fixture(autouse=True)
def readable_by_all() -> Generator[None]:
    """As on most machines."""
    former = os.umask(0o022)
    yield
    os.umask(former)


def found(folder: Path, pattern: str) -> list[Path]:
    return list(folder.rglob(pattern))


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_answers_and_memory_are_for_their_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undrawn(*_: object) -> None:
        """There is nothing to draw."""

    monkeypatch.setattr(eval_report, "draw", undrawn)
    out = tmp_path / "eden-eval"
    answers = out / "kept" / "answers.jsonl"
    AnswerFile(answers).close()
    eval_report.write_report(EvalReport("empty", 10, None, None, "words"), out)
    assert (mode(answers), mode(answers.parent), mode(out / "report.json")) == (0o600, 0o700, 0o600)


async def test_memory_that_is_recorded_is_for_its_owner_alone(tmp_path: Path) -> None:
    settings = Settings()
    models = EvalModels(settings, tmp_path / "answers.jsonl", EvalCap(trial.UNCAPPED))
    try:
        await recording.recorded("bm25", EvalSetup(settings, models, tmp_path, NO_QUESTIONS, print), (1,))
    finally:
        await models.close()
    (record,) = found(tmp_path, "*.json")
    assert mode(record) == 0o600


async def test_a_trial_on_live_memory_keeps_no_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def recorded(name: str, *_: object) -> SystemRecord:
        return SystemRecord(system=name, digest="", retrieved={}, memory={}, formed=True)

    seen: list[list[str]] = []

    async def measured(plan: EvalPlan, *_: object) -> Any:
        seen.append([path.name for path in found(plan.out, "*")])
        return await evaluated(plan, *_)

    evaluated: Any = trial.measured
    monkeypatch.setattr(trial, "_record", recorded)
    monkeypatch.setattr(trial, "measured", measured)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    await trial.tried(Settings(), "new", Settings(), NO_QUESTIONS, None)
    assert seen == [["answers.jsonl"]] * 2
    assert found(tmp_path, "*.jsonl") == []
