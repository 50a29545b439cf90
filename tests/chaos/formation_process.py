"""One process of the fault run over formation: `eden run` with all its parts, and a diary of its calls.

The diary is one JSON object a line, written through at once, so that the verdict knows of every call when its
answer was looked up, and when the answer was stored, whatever happens to the process.
"""

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

from eden_memory.app import system as app
from eden_memory.assembly import handlers
from eden_memory.assembly import model_factory as factory
from eden_memory.cli.structured_logs import configure
from eden_memory.formation import consolidation_rules as consolidating
from eden_memory.models import judging, providers
from eden_memory.models.asking_model import Chat, Request, Route
from eden_memory.models.embedding_calls import EmbeddingCalls, Line
from eden_memory.models.provider_calls import CallFailed
from eden_memory.models.stored_answers import MongoAnswers
from eden_memory.names import Names
from eden_memory.schemas.documents import Answer
from eden_memory.settings import Settings
from eden_memory.stages import membership as consuming
from eden_memory.stages import process
from eden_memory.stages.failure_decisions import Kind, classify
from eden_memory.tasks import claim_process
from tests.chaos.stages_process import SERVER_AWAY, Diary

CONSOLIDATION_SECONDS = 2.0
"""Of the windows' time between two blobs of a scope: a run takes minutes, and many are wanted."""
HOLD_SECONDS = 5.0
"""For which a window that cannot be read waits for others' answers."""
PRELOADED = providers
"""The SDKs take seconds to load: the fork server has them loaded."""


@dataclass(frozen=True)
class Place:
    """Where everything is; `session_ms` is how long a silent member stays in its groups."""

    environment: Mapping[str, str]
    folder: Path
    session_ms: int


class Watch:
    """When what was looked up, and under which name a request stands in the diary."""

    def __init__(self, file: TextIO) -> None:
        self.diary = Diary(file)
        self.looked: dict[str, float] = {}
        self._names: dict[str, str] = {}

    def names(self, request: Request) -> str:
        """The question, and for what follows a bad answer the request itself."""
        name = request.unit if request.repair == 0 else request.key
        self._names[request.key] = name
        return name

    def name_of(self, answer: Answer) -> str:
        """Of the request that it answers."""
        return self._names.get(answer.id, answer.id)


class WatchedAnswers(MongoAnswers):
    """Notes when answers were looked up, and when one was acknowledged by the store."""

    def __init__(self, watch: Watch, database: Any, names: Names) -> None:
        super().__init__(database, names)
        self._watch = watch

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """As the store does."""
        now = time.monotonic()
        found = await super().of_unit(unit, answer_id)
        self._watch.looked[unit] = now
        if answer_id is not None:
            self._watch.looked[answer_id] = now
        return found

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        """As the store does."""
        now, wanted = time.monotonic(), list(ids)
        found = await super().find(wanted)
        self._watch.looked.update(dict.fromkeys(wanted, now))
        return found

    async def keep(self, answer: Answer) -> Answer:
        """As the store does."""
        kept = await super().keep(answer)
        self._note([answer], [kept])
        return kept

    async def keep_all(self, answers: Sequence[Answer]) -> list[Answer]:
        """As the store does."""
        kept = await super().keep_all(answers)
        self._note(answers, kept)
        return kept

    def _note(self, answers: Sequence[Answer], kept: Sequence[Answer]) -> None:
        """`new`: it was not there, or forgetting has deleted it since."""
        for answer, stored in zip(answers, kept, strict=True):
            name, new = self._watch.name_of(answer), float(stored is answer)
            self._watch.diary.note("stored", name, new=new)


class WatchedChat(Chat):
    """Notes every question that is sent, and what became of it."""

    watch: Watch

    async def call(self, route: Route, request: Request) -> Answer:
        """As the chat does."""
        name = self.watch.names(request)
        self.watch.diary.note("asked", name, looked=self.watch.looked.get(name, 0.0), found=0.0)
        try:
            answer = await super().call(route, request)
        except Exception as error:
            self.watch.diary.note("failed", name, **({} if _counts(error) else {"free": 1.0}))
            raise
        self.watch.diary.note("answered", name)
        return answer


def _counts(error: Exception) -> bool:
    """Whether a call was sent that counts: others succeeded meanwhile, not refused for its rate, not one too many."""
    return isinstance(error, CallFailed) and error.counts


class WatchedEmbeddings(EmbeddingCalls):
    """Notes every text whose vector is asked for, and what became of it."""

    watch: Watch

    async def _call(
        self, lines: Sequence[Line], kept: dict[str, Answer], wrong: dict[str, BaseException]
    ) -> None:
        for line in lines:
            looked = self.watch.looked.get(line.key, 0.0)
            self.watch.diary.note("asked", line.key, looked=looked, found=0.0)
        await super()._call(lines, kept, wrong)
        for line in lines:
            self.watch.diary.note("failed" if line.key in wrong else "answered", line.key)


def main(place: Place, log: Path) -> None:
    """Run until SIGTERM; what it says goes to the log."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(place.environment)
    os.chdir(place.folder)
    claim_process()
    configure()
    consuming.SESSION_MS, consuming.HEARTBEAT_MS = place.session_ms, 300
    with ExitStack() as stack:
        watch = Watch(stack.enter_context((place.folder / f"{log.stem}.calls").open("a", buffering=1)))
        WatchedChat.watch = WatchedEmbeddings.watch = watch
        for module, name, replacement in _replacements(watch):
            stack.enter_context(patch.object(module, name, replacement))
        _run()


def _replacements(watch: Watch) -> Sequence[tuple[Any, str, Any]]:
    """Module, name in it, and what is to stand there."""
    return (
        (handlers, "MongoAnswers", partial(WatchedAnswers, watch)),
        (factory, "Chat", WatchedChat),
        (factory, "EmbeddingCalls", WatchedEmbeddings),
        (consolidating, "CONSOLIDATION_SECONDS", CONSOLIDATION_SECONDS),
        (judging, "HOLD", HOLD_SECONDS),
    )


def _run() -> None:
    try:
        process.run_until_signal(partial(app.run, Settings(), ()))
    except Exception as error:
        if classify(error) not in (Kind.AWAY, Kind.TRANSIENT):
            raise
        sys.stderr.write(f"a server is away: {type(error).__name__}: {error}\n")
        sys.exit(SERVER_AWAY)
