"""Answers of models in a file of JSON lines, so that a second run pays only for what changed."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from eden_memory.errors import EdenError
from eden_memory.schemas.documents import Answer


class AnswerFile:
    """An AnswerStore for one process, for its owner alone; an answer is on the disk before it is used."""

    def __init__(self, path: Path) -> None:
        """EdenError if the file holds anything else; a last line that was cut off is dropped.

        Questions that got no valid answer in earlier runs are asked anew.
        """
        self._answers: dict[str, Answer] = {}
        self.calls: dict[str, Answer] = {}
        """Answers by the id of the call that brought them."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for line in _whole_lines(path):
            self._know(_answer(path, line))
        answered = {answer.unit for answer in self._answers.values() if answer.invalid is None}
        self._answers = {name: answer for name, answer in self._answers.items() if answer.unit in answered}
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "ab", buffering=0)

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """The answer under an id; answers are found by what was asked alone."""
        del unit
        return {} if answer_id is None else await self.find([answer_id])

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        """Those of the answers that are kept, by id."""
        return {name: self._answers[name] for name in ids if name in self._answers}

    async def keep(self, answer: Answer) -> Answer:
        """Write it; what is kept under its id already is returned in its place."""
        if answer.id not in self._answers:
            self._write(answer)
        return self._answers[answer.id]

    async def keep_all(self, answers: Sequence[Answer]) -> list[Answer]:
        """The same of several."""
        return [await self.keep(answer) for answer in answers]

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        """Mark it as of no use."""
        if answer_id in self._answers:
            self._write(self._answers[answer_id].model_copy(update={"invalid": reason[:1_000]}))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, answer: Answer) -> None:
        self._file.write(answer.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n")
        self._know(answer)

    def _know(self, answer: Answer) -> None:
        self._answers[answer.id] = self.calls[answer.call_id] = answer


def _whole_lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:  # the process was killed while it wrote
        path.write_bytes(whole)
    return whole.splitlines()


def _answer(path: Path, line: bytes) -> Answer:
    try:
        return Answer.model_validate_json(line)
    except ValueError:
        raise EdenError(
            f"{path} contains a line that is not an answer", "Name another folder with --out."
        ) from None
