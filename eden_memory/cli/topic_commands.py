"""`eden topics`: topics.yaml against the broker, and the AsyncAPI document made from it."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from eden_memory.cli.live_namespace import live_now, soon
from eden_memory.cli.schemas import checkout, documents
from eden_memory.cli.tables import show_table
from eden_memory.cli.terminal import agreed
from eden_memory.errors import Conflict, EdenError, NotFound
from eden_memory.housekeeping.compacted_topics import LoweredTopics
from eden_memory.housekeeping.topics_check import TopicsCheck
from eden_memory.kafka.connection import admin_config
from eden_memory.kafka.topic_admin import TopicAdmin, TopicReport
from eden_memory.kafka.topics import BrokerTopic, Topic, TopicDifference, Topics, load_topics
from eden_memory.local.servers import endpoints
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings
from eden_memory.stages.partition_count_store import PartitionCounts

ASYNCAPI = "docs/asyncapi.yaml"
OVERVIEW = ("topic", "records", "groups", "kept")
RESTORE_SECONDS = 30.0
DETAILS = ("setting", "declared", "on the broker")

app = typer.Typer(
    help="Compare a broker's topics with topics.yaml, and create or change them.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
Delete = Annotated[
    bool, typer.Option("--delete-unknown", help="also delete topics of ours that are not declared")
]
Yes = Annotated[bool, typer.Option("--yes", help="delete without asking")]
Name = Annotated[str | None, typer.Argument(help="one topic, without prefix")]
Check = Annotated[bool, typer.Option("--check", help="write nothing; exit code 1 if the file is not in step")]


@app.command()
def diff(as_json: AsJson = False) -> None:
    """Say what differs; exit code 1 if anything does."""
    topics, admin = _connected()
    report = admin.report(topics)
    _tell(report, as_json, changed=False)
    raise typer.Exit(1 if report.differences else 0)


@app.command()
def apply(as_json: AsJson = False, delete_unknown: Delete = False, yes: Yes = False) -> None:
    """Create what is missing and alter what is ours; exit code 1 if something had to be left as it is."""
    restored = asyncio.run(_restored(Settings()))
    topics, admin = _connected()
    if delete_unknown and not topics.prefix:
        raise EdenError(
            "without a topic prefix, our own undeclared topics cannot be recognised: none is deleted",
            "Set EDEN_KAFKA_TOPIC_PREFIX, or delete them with Kafka's own tools.",
        )
    if restored:
        _err(f"restored what `eden forget --compact` had lowered: {', '.join(restored)}")
    report = admin.apply(topics)
    _tell(report, as_json, changed=True)
    for line in asyncio.run(_accepted(Settings())):
        _err(line)
    if delete_unknown and report.unknown and (yes or _confirmed(report.unknown)):
        admin.delete(report.unknown)
        _err(f"deleted {len(report.unknown)} topics")
    raise typer.Exit(1 if report.refused else 0)


@app.command()
def describe(topic: Name = None, as_json: AsJson = False) -> None:
    """Show topics as declared, beside what the broker has."""
    topics, admin = _connected()
    wanted = _chosen(topics, topic)
    found = admin.found(topics)
    if as_json:
        typer.echo(
            json.dumps([_described(declared, found.get(declared.name)) for declared in wanted], indent=2)
        )
    elif topic:
        typer.echo(f"{wanted[0].name}:")
        details = _details(wanted[0], found.get(wanted[0].name))
        show_table(DETAILS, details, "", whole=("setting",), words=DETAILS)
    else:
        show_table(OVERVIEW, _overview(wanted, found), "", whole=("topic",), words=OVERVIEW)


@app.command()
def asyncapi(check: Check = False) -> None:
    """Write docs/asyncapi.yaml in the checkout."""
    root = checkout()
    stale = documents(root, ASYNCAPI, *(["--check"] if check else []))
    if check and stale:
        raise EdenError(
            f"{root / ASYNCAPI} is not in step with topics.yaml and schemas/", "Run `make schemas`."
        )
    if not check:
        _err(f"wrote {_short(root / ASYNCAPI)}")


def _connected() -> tuple[Topics, TopicAdmin]:
    settings = asyncio.run(_live(Settings()))
    bootstrap = settings.kafka.bootstrap or endpoints(settings).kafka
    admin = TopicAdmin(admin_config(settings.kafka, bootstrap))
    return load_topics(settings.kafka, settings.placement), admin


async def _live(settings: Settings) -> Settings:
    """Return the live namespace's settings; without MongoDB the original's."""
    return await soon(live_now(settings)) or settings


async def _restored(settings: Settings) -> list[str]:
    """Restore what a killed compaction has lowered, if MongoDB answers at once; Conflict while one is running."""
    found = await soon(_restored_now(settings), RESTORE_SECONDS)
    if isinstance(found, Conflict):
        raise found
    return found or []


async def _restored_now(settings: Settings) -> list[str] | Conflict:
    async with installation(settings, restored_too=True) as at:
        try:
            return await LoweredTopics(at.database, at.settings.names, at.admin).restore_left()
        except Conflict as running:
            return running


async def _accepted(settings: Settings) -> list[str]:
    """Record the partitions of topics, if MongoDB answers at once; return where some were added."""
    return await soon(_accepted_now(settings), RESTORE_SECONDS) or []


async def _accepted_now(settings: Settings) -> list[str]:
    async with installation(settings) as at:
        counts = PartitionCounts(at.database, at.settings.names)
        return await TopicsCheck(at.admin, at.topics(at.settings.placement), counts).accept()


def _chosen(topics: Topics, name: str | None) -> list[Topic]:
    if name is None:
        return list(topics)
    chosen = [topic for topic in topics if topic.name in (name, topics.prefix + name)]
    if not chosen:
        declared = ", ".join(topics.file.topics)
        raise NotFound(f"{name} is not in topics.yaml", f"Declared are {declared}.")
    return chosen


def _confirmed(names: Sequence[str]) -> bool:
    return agreed(f"Delete {', '.join(names)}, with all that is in them?")


def _tell(report: TopicReport, as_json: bool, *, changed: bool) -> None:
    if as_json:
        said: dict[str, Any] = {
            "differences": [asdict(difference) for difference in report.differences],
            "unknown": list(report.unknown),
            "applied": changed,
        }
        typer.echo(json.dumps(said, indent=2))
        return
    for difference in report.differences:
        _out(_line(difference, changed=changed))
    for name in report.unknown:
        _out(f"{name}: not in topics.yaml; left alone")
    if not report.differences:
        _out("all topics are as topics.yaml says")


def _line(difference: TopicDifference, *, changed: bool) -> str:
    if difference.what == "missing":
        return f"{difference.topic}: " + (f"created with {difference.wanted}" if changed else "missing")
    what = difference.setting or difference.what
    if difference.refused:
        is_not = f"{difference.topic}: {what} is {difference.found}, not {difference.wanted}"
        return f"{is_not}; left so: {difference.refused}"
    was, wanted = ("was", "is now") if changed else ("is", "should be")
    return f"{difference.topic}: {what} {was} {difference.found}, {wanted} {difference.wanted}"


def _described(topic: Topic, found: BrokerTopic | None) -> dict[str, Any]:
    wanted = {"partitions": topic.partitions, "replication_factor": topic.replication_factor}
    return {
        "topic": topic.name,
        **topic.declaration.model_dump(),
        "declared": {**wanted, "config": dict(topic.config)},
        "on_broker": _on_broker(topic, found) if found else None,
    }


def _on_broker(topic: Topic, found: BrokerTopic) -> dict[str, Any]:
    config = {name: found.config.get(name) for name in topic.config}
    return {"partitions": found.partitions, "replication_factor": found.replication_factor, "config": config}


def _overview(topics: Iterable[Topic], found: dict[str, BrokerTopic]) -> Iterator[Sequence[str | Text]]:
    for topic in topics:
        declared, now = topic.declaration, found.get(topic.name)
        there = f"{now.partitions} partitions" if now else Text("missing", style="red")
        kept = Text.assemble(f"{declared.kept}, ", there)
        yield topic.name, ", ".join(declared.events), ", ".join(declared.groups), kept


def _details(topic: Topic, found: BrokerTopic | None) -> Iterator[Sequence[str]]:
    for name, value in topic.declaration.model_dump(exclude={"tombstones"}).items():
        yield name.replace("_", " "), _text(value), ""
    yield "partitions", str(topic.partitions), str(found.partitions) if found else "missing"
    for name, value in topic.config.items():
        yield name, value, (found.config.get(name) or "") if found else "missing"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {', '.join(events)}" for name, events in value.items())  # pyright: ignore
    return ", ".join(value) if isinstance(value, list) else str(value)  # pyright: ignore


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _out(line: str) -> None:
    Console(soft_wrap=True, highlight=False).print(line, markup=False)


def _err(line: str) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(line, markup=False)
