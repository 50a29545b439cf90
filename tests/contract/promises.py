"""Everything that stored data, other programs and people rely on by name, as one JSON document.

`make promises` writes `promises.json` anew. A line that goes or changes there breaks somebody's
data, dashboard, script or consumer: give it a new version or a migration, or keep it. A new line is a new promise.
"""

import asyncio
import importlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

from prometheus_client import REGISTRY as METRICS
from prometheus_client.metrics import MetricWrapperBase
from pydantic import BaseModel

from eden_memory.api.mcp.mcp_server import mcp_server
from eden_memory.cli.main import COMMANDS
from eden_memory.formation import prompts
from eden_memory.formation.prompt_material import (
    ConsolidationMaterial,
    DatedText,
    DecisionMaterial,
    FactMaterial,
    KnownLine,
    NewFact,
    PropagationMaterial,
    ReflectionMaterial,
    ScopeBrief,
    TranscriptLine,
)
from eden_memory.kafka.topics import read_topics, topics_path
from eden_memory.models.stored_answers import first_key
from eden_memory.schemas import documents
from eden_memory.schemas.answers import (
    ConsolidatedText,
    ExtractedFacts,
    FactDecisions,
    JudgedReflections,
    StatedReflections,
)
from eden_memory.schemas.documents import DOCUMENTS
from eden_memory.schemas.events import REGISTRY
from eden_memory.settings import Settings

FILE = Path(__file__).with_name("promises.json")


def promises() -> dict[str, Any]:
    """Return the promises by kind; everything is sorted, and nothing depends on the machine."""
    topics = read_topics(topics_path())
    return {
        "events": {name: f"{event.NAME}.v{event.VERSION}" for name, event in sorted(REGISTRY.events.items())},
        "documents": {one.__name__: f"{one.COLLECTION} v{one.VERSION}" for one in sorted(DOCUMENTS, key=str)},
        "schema classes": sorted(documents.__all__),
        "topics": {name: sorted(topic.groups) for name, topic in sorted(topics.topics.items())},
        "programs": sorted(topics.programs),
        "settings": sorted(_settings(Settings, "")),
        "metrics": dict(sorted(_labels())),
        "commands": {name: _options(COMMANDS[name].load(name)) for name in sorted(COMMANDS)},
        "keys of kept answers": _answer_keys(),
        "mcp tools": asyncio.run(_tools()),
    }


def _settings(group: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in group.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _settings(kind, f"{prefix}{name}.")
        else:
            yield prefix + name


def _labels() -> Iterator[tuple[str, list[str]]]:
    importlib.import_module("eden_memory.metrics")
    collectors = cast("Any", METRICS)._collector_to_names
    for one in collectors:
        if isinstance(one, MetricWrapperBase):
            (described,) = one.describe()
            yield described.name, list(cast("Any", one)._labelnames)


def _options(command: Any) -> Any:
    """A command's sub-commands, or its arguments and options."""
    if hasattr(command, "commands"):
        return {name: _options(one) for name, one in sorted(command.commands.items())}
    return sorted("/".join((*one.opts, *one.secondary_opts)) for one in command.params)


def _answer_keys() -> dict[str, str]:
    """Under what the answer to one example of each prompt is kept: a change would pay for recorded answers again."""
    line = TranscriptLine("Mara", "user", datetime(2026, 3, 2, 12, tzinfo=UTC), "The boat is due on 3 May.")
    scopes = (ScopeBrief("user", None, 0, 4),)
    new, known = (
        NewFact("The boat is due on 9 May.", (1,), (0.9,)),
        KnownLine("The boat is due on 3 May.", 0.9),
    )
    blob = ConsolidationMaterial("user", None, (DatedText(line.time, "Likes tea."),), None, 300)
    asked = (
        (prompts.fact_extraction(FactMaterial((line,), scopes, 30, 30), "fence"), ExtractedFacts),
        (prompts.fact_decisions(DecisionMaterial((known,), (new,), 30), "fence"), FactDecisions),
        (
            prompts.reflection_extraction(ReflectionMaterial((line,), scopes, (), 35), "fence"),
            StatedReflections,
        ),
        (prompts.consolidation(blob, "fence"), ConsolidatedText),
        (prompts.propagation(PropagationMaterial("group", ("Likes tea.",), 35), "fence"), JudgedReflections),
    )
    return {prompt.name: first_key("a-model", prompt, answer) for prompt, answer in asked}


async def _tools() -> dict[str, Any]:
    unconnected: Any = MagicMock(settings=Settings())  # tools are listed without a memory
    server = mcp_server(unconnected, unconnected)
    return {tool.name: sorted(tool.input_schema["properties"]) for tool in await server.list_tools()}


def write() -> None:
    """Write the snapshot."""
    FILE.write_text(json.dumps(promises(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
