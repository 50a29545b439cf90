"""Records of what a system formed and retrieved, in the output folder: a second run repeats only what changed."""

import json
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from eden_memory.assembly.handlers import settings_version
from eden_memory.demo.judgement import FormedMemory
from eden_memory.demo.local_model import ROLES
from eden_memory.demo.play import running_servers
from eden_memory.evals.dataset import EvalConversation, EvalSet, Outcome, QuestionLine
from eden_memory.evals.spending import EvalModels, Spent, Timer
from eden_memory.evals.systems import (
    Adapter,
    EvalSetup,
    MemoryItem,
    MemorySystem,
    adapter_of,
    baseline,
    counted,
    packed,
)
from eden_memory.files.mirror_folder import write_text
from eden_memory.models.catalogue import OFFLINE
from eden_memory.replay.reform.reform_settings import overridden, overrides_of
from eden_memory.settings import Settings

EDEN, RULES, MEM0 = "eden", "offline", "mem0"


class RetrievedMemory(BaseModel):
    """Items that one question retrieved."""

    model_config = ConfigDict(frozen=True)

    items: tuple[MemoryItem, ...]
    seconds: float


class SystemRecord(BaseModel):
    """Everything that is measured of one system, except answers."""

    model_config = ConfigDict(frozen=True)

    system: str
    digest: str
    """Of the dataset, and the settings that decide."""
    budgets: tuple[int, ...] = ()
    """Those that the retrieved items are enough for."""
    retrieved: dict[str, RetrievedMemory]
    """By `conversation/question`."""
    memory: dict[str, list[FormedMemory]] = {}
    decisions: dict[str, Outcome] = {}
    formed: bool = False
    """Whether it formed memory, so that extraction and decisions can be judged."""
    spent: Spent = Spent()
    """On forming memory."""


def key_of(conversation: EvalConversation, name: str) -> str:
    """Return the key of a question or decision."""
    return f"{conversation.id}/{name}"


def variant(name: str, settings: Settings) -> tuple[Settings, dict[str, str]]:
    """Return the settings of `eden+KEY=VALUE+…` or `offline`, and the variables that give them to a process."""
    first, *given = name.split("+")
    variables: dict[str, str] = {}
    if first == RULES:
        given = ["llm=offline", *(f"models.{role.lower()}={OFFLINE}" for role in ROLES), *given]
    overrides = overrides_of(given, None)
    for override in overrides:
        value = json.loads(override.value)
        text = value if isinstance(value, str) else override.value
        variables[f"EDEN_{override.name.upper().replace('.', '_')}"] = text
    return overridden(settings, overrides), variables


async def recorded(name: str, setup: EvalSetup, budgets: tuple[int, ...]) -> SystemRecord:
    """Return the record of a system, from the folder if nothing that decides has changed. CapReached, EdenError."""
    digest = _digest(name, setup)
    path = setup.folder / f"{sha256(name.encode()).hexdigest()[:8]}-{digest}.json"
    if (kept := _read(path)) is not None:
        if {*budgets} <= {*kept.budgets}:
            setup.note(f"{name}: recorded earlier")
            return kept
        budgets = tuple(sorted({*budgets, *kept.budgets}))
    adapter, own = _adapter(name, setup.settings)
    folder = setup.folder / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    async with adapter(EvalSetup(own, setup.models, folder, setup.dataset, setup.note)) as system:
        record = await _recorded(name, digest, system, setup, budgets)
    if kept is not None and not record.formed:  # its calls were answered from the folder now
        record = record.model_copy(update={"spent": kept.spent})
    write_text(path, record.model_dump_json())
    return record


async def _recorded(
    name: str, digest: str, system: MemorySystem, setup: EvalSetup, budgets: tuple[int, ...]
) -> SystemRecord:
    timer, before = Timer(), setup.models.cap.spent
    setup.note(f"{name}: takes in {counted(len(setup.dataset.conversations), 'conversation')}")
    await system.ingest(setup.dataset.conversations)
    spent = setup.models.cap.spent.since(before, timer.seconds)
    setup.note(f"{name}: searches for {counted(len(setup.dataset.questions), 'question')}")
    retrieved = {
        key_of(where, question.id): await _retrieved(system, where, question, budgets)
        for where, question in setup.dataset.questions
    }
    from eden_memory.evals.own_memory import EdenMemory  # noqa: PLC0415 - loads the whole system

    if not isinstance(system, EdenMemory):
        return SystemRecord(system=name, digest=digest, budgets=budgets, retrieved=retrieved, spent=spent)
    formed = system.formed
    return SystemRecord(
        system=name,
        digest=digest,
        budgets=budgets,
        retrieved=retrieved,
        memory=formed.memory,
        decisions=formed.decisions,
        formed=True,
        spent=formed.spent,
    )


async def _retrieved(
    system: MemorySystem, where: EvalConversation, question: QuestionLine, budgets: tuple[int, ...]
) -> RetrievedMemory:
    timer = Timer()
    found = await system.retrieve(where, question)
    seconds = timer.seconds
    return RetrievedMemory(items=tuple(_needed(found, budgets)), seconds=seconds)


def _needed(found: Sequence[MemoryItem], budgets: tuple[int, ...]) -> list[MemoryItem]:
    """Return what any budget takes, in the order of the search, and the best that rank is judged by."""
    shown = (item for budget in budgets for item in packed(found, budget))
    taken = {id(item) for item in (*shown, *found[:50])}
    return [item for item in found if id(item) in taken]


def _adapter(name: str, settings: Settings) -> tuple[Adapter, Settings]:
    if (found := baseline(name)) is not None:
        return found, settings
    if _is_ours(name):
        own, variables = variant(name, settings)
        return _eden(variables), own
    if name == MEM0:
        return adapter_of("eden_memory.evals.compared_systems:mem0_memory"), settings
    return adapter_of(name), settings


def _eden(variables: dict[str, str]) -> Adapter:
    @asynccontextmanager
    async def opened(setup: EvalSetup) -> AsyncGenerator[MemorySystem]:
        from eden_memory.evals.own_memory import eden_memory  # noqa: PLC0415 - loads the whole system

        setup.note("MongoDB and Kafka start, unless they run")
        with running_servers(setup.settings, keep=False) as found:
            digest = _formed_by(setup.settings, setup.dataset, setup.models)
            async with eden_memory(setup.settings, found, setup, variables, digest) as system:
                yield system

    return opened


def _is_ours(name: str) -> bool:
    return name.split("+", maxsplit=1)[0] in (EDEN, RULES)


def _digest(name: str, setup: EvalSetup) -> str:
    settings = variant(name, setup.settings)[0] if _is_ours(name) else setup.settings
    decides = (
        name,
        setup.dataset.digest,
        version("eden-memory"),
        _formed_by(settings, setup.dataset, setup.models),
        settings.memory.model_dump_json(),
        settings.search.model_dump_json(),
    )
    return sha256("\n".join(decides).encode()).hexdigest()[:16]


def _formed_by(settings: Settings, dataset: EvalSet, models: EvalModels) -> str:
    """Return a digest of what decides which memory is formed: sessions, cases of decisions, settings, embedder."""
    said = [repr((where.id, where.sessions, where.decisions)) for where in dataset.conversations]
    sharing = settings.memory.sharing or "private"
    decides = (*said, settings_version(settings), sharing, models.embedder_name)
    return sha256("\n".join(decides).encode()).hexdigest()[:12]


def _read(path: Path) -> SystemRecord | None:
    try:
        return SystemRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
