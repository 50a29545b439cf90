"""Commands played on a lived installation of its own, as a person types them, and the page that shows them."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from unittest.mock import patch

from eden_memory.demo import play
from eden_memory.demo.conversation import PEOPLE, ApplicationWrite, Arrival, Conversation, read_conversation
from eden_memory.demo.system_process import environment, own_settings, running_system
from eden_memory.local.servers import Endpoints
from eden_memory.observability.watching import FormationProgress
from eden_memory.settings import LocalSettings, Settings
from tests.model_server.serving import ModelServerProcess

RATE, CAP_USD = 400.0, 10.0
COMMAND_SECONDS = 300.0
WIDTH, PAGE_WIDTH = "112", 120
PROGRESS = re.compile(r"N of N windows, ")
VARYING = re.compile(r"\d[\d.,:]*")


@dataclass(frozen=True, slots=True)
class Step:
    """A command and what it said."""

    command: str
    said: str
    code: int

    def shown(self) -> str:
        """As the page has it."""
        code = f"exit code {self.code}\n" if self.code else ""
        return f"$ {self.command}\n{self.said}{code}"

    def frame(self) -> list[str]:
        """What it says without figures, rules and progress: the same in every run."""
        lines = (" ".join(VARYING.sub("N", line).split()) for line in self.said.splitlines())
        return [line for line in lines if line.strip("┏┳┓┡╇┩└┴┘━─ ") and not PROGRESS.match(line)]


@dataclass(slots=True)
class Shell:
    """A folder and an environment in which commands are run, one after the other."""

    folder: Path
    environment: Mapping[str, str]
    steps: list[Step] = field(default_factory=list[Step])

    @asynccontextmanager
    async def system(self) -> AsyncGenerator[None]:
        """`eden run`, for the block."""
        async with running_system(dict(self.environment), self.folder / "run.log"):
            yield

    async def until(self, command: str, said: str) -> None:
        """Repeat a command, which the page does not show, until it says so."""
        while True:
            step = await self.run(command)
            self.steps.pop()
            if said in step.said:
                return

    async def run(self, command: str, answer: str | None = None) -> Step:
        """A command as typed; `answer` is given to the question that it asks, on a terminal."""
        ours, theirs = os.openpty()
        try:
            process = await asyncio.create_subprocess_shell(
                command,
                cwd=self.folder,
                env={**os.environ, **self.environment},
                stdin=theirs if answer is not None else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            if answer is not None:
                os.write(ours, f"{answer}\n".encode())
            said, _ = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
        finally:
            os.close(ours)
            os.close(theirs)
        text = said.decode()
        if answer is not None:
            text = re.sub(r"(\[y/N\]: )\n?", rf"\g<1>{answer}\n", text)
        step = Step(command, text, process.returncode or 0)
        self.steps.append(step)
        return step


class _Silent:
    def note(self, text: str) -> None: ...
    def arrived(self, arrival: Arrival, write: ApplicationWrite | None) -> None: ...
    def forming(self, progress: FormationProgress) -> None: ...


def of_sessions(sessions: Collection[str]) -> Conversation:
    """The demo conversation, or some sessions of it."""
    whole = read_conversation()
    if not sessions:
        return whole
    messages = [one for one in whole.messages if one.session in sessions]
    names = {one.id for one in messages}
    return Conversation(messages, [one for one in whole.changes if one.id in names], whole.people)


@asynccontextmanager
async def formed(
    found: Endpoints, name: str, conversation: Conversation, models: ModelServerProcess, folder: Path
) -> AsyncGenerator[Shell]:
    """The conversation formed by `eden run` with priced models; `eden run` has been stopped.

    Database and topics are called `name`, and are left to whoever gave the servers.
    """
    asked = {"OPENAI_API_KEY": "of-nobody", "OPENAI_BASE_URL": f"{models.url}/v1"}
    settings = Settings(
        llm="openai",
        local=LocalSettings(folder=folder),  # pyright: ignore[reportCallIssue]
    )
    plan = play.DemoPlan(conversation, own=True, rate=RATE, keep=True, cap_usd=CAP_USD)
    mapped = [one for one in PEOPLE if conversation.people[one]]
    own = {
        **environment(found, own_settings(settings, found, name, f"{name}.", mapped)),
        **asked,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "COLUMNS": WIDTH,
        "EDEN_LOCAL_FOLDER": str(folder),
    }
    with patch.multiple(play, DATABASE=name, PREFIX=f"{name}."), patch.dict(os.environ, asked):
        outcome = await play.play(settings, found, plan, _Silent())
    assert outcome.finished, play.log_of(settings).read_text()[-4_000:]
    yield Shell(folder, own)


def commands_of(page: str) -> list[str]:
    """What a page shows as typed."""
    return re.findall(r"^\$ (.+)$", page, re.MULTILINE)


def said_on(page: str, command: str) -> Step:
    """What a page shows of a command."""
    block = page.partition(f"$ {command}\n")[2]
    return Step(command, re.split(r"^(?:\$ |```)", block, maxsplit=1, flags=re.MULTILINE)[0], 0)


def blocks(parts: Iterable[str | Step]) -> str:
    """A page of prose and steps; steps that follow each other stand in one block."""
    page, open_block = list[str](), False
    for part in parts:
        if isinstance(part, Step) and not open_block:
            page.append("```")
        elif isinstance(part, Step):
            page.append("")
        elif open_block:
            page.append("```\n")
        open_block = isinstance(part, Step)
        page.append(
            part.shown().rstrip()
            if isinstance(part, Step)
            else f"{fill(part, PAGE_WIDTH, break_on_hyphens=False)}\n"
        )
    return "\n".join([*page, "```"] if open_block else page).rstrip() + "\n"


def shortened(step: Step, most: int, what: str) -> Step:
    """Without what stands behind so many lines."""
    lines = step.said.splitlines()
    if len(lines) <= most:
        return step
    return Step(step.command, "\n".join([*lines[:most], f"… {len(lines) - most} more {what}", ""]), step.code)
