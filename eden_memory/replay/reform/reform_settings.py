"""What a reform was asked for: which windows it forms again, and settings, topics and streams of its own."""

import json
import shlex
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from eden_memory.errors import EdenError, describe
from eden_memory.kafka.topics import Topic, Topics, read_topics, topics_path
from eden_memory.limits import limits_of
from eden_memory.names import Names, Placement
from eden_memory.schemas.documents import Override, ReformAsked, Stream
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.reasons import reasons
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import KafkaSettings, Settings, SettingsGroup


def formed_by(asked: ReformAsked, heard: Collection[str] = ()) -> Callable[[Scope], bool]:
    """Whether a reform that was asked so forms a scope by itself: no others have told of it.

    `heard`: keys of session memory with a large audience that the user belongs to
    (eden_memory.directory.directory_store).
    """

    def forms(scope: Scope) -> bool:
        users = scope.user_id, *(scope.audience if isinstance(scope.audience, tuple) else ())
        return (
            asked.agent_id in (None, scope.agent_id)
            and asked.session_id in (None, scope.session_id)
            and (asked.user_id is None or scope.key in heard or asked.user_id in users)
        )

    return forms


@dataclass(frozen=True, slots=True)
class PlannedWindow:
    """A window that is to be formed anew."""

    formation_id: str
    session_id: str
    seq: int
    messages: int
    at: datetime
    """When it was asked for; where that is not known, when it closed."""


def planned(event: FormationRequested, at: datetime | None = None) -> PlannedWindow:
    """Return the parts of a request that are kept while its window waits."""
    return PlannedWindow(
        event.formation_id,
        event.session_id,
        event.seq,
        max(1, len(event.messages)),
        at or event.closed_at,
    )


def takes(asked: ReformAsked, event: FormationRequested, heard: Collection[str] = ()) -> bool:
    """Whether a window is selected: a user's are those in which they take part; `heard` as above."""
    return (
        asked.agent_id in (None, event.agent_id)
        and asked.session_id in (None, event.session_id)
        and (
            asked.user_id is None
            or asked.user_id in event.participants
            or any(scope.key in heard for scope in event.scopes)
        )
    )


def covers_everything(asked: ReformAsked) -> bool:
    """Whether everything is formed anew."""
    return asked.agent_id is None and asked.user_id is None and asked.session_id is None


def in_order(windows: Iterable[PlannedWindow]) -> list[PlannedWindow]:
    """By when they were asked for; those of a session never before an earlier one of it."""
    latest: dict[str, datetime] = {}
    placed: list[tuple[datetime, str, int, PlannedWindow]] = []
    for window in sorted(windows, key=lambda window: (window.session_id, window.seq)):
        at = max(window.at, latest.get(window.session_id, window.at))
        latest[window.session_id] = at
        placed.append((at, window.session_id, window.seq, window))
    return [window for *_, window in sorted(placed, key=lambda row: row[:3])]


def selected(asked: ReformAsked) -> str:
    """Return, for people, whose windows a reform forms."""
    named = {"agent": asked.agent_id, "user": asked.user_id, "session": asked.session_id}
    said = ", ".join(f"{what} {name}" for what, name in named.items() if name is not None)
    return said or "everything"


STREAMS = "streams"
GROUPS = ("windows", "models", "memory", "limits")

ALONE = ("llm", "embedder", "formation_calls")

HINT = (
    "A reform may have its own windows.*, models.*, memory.*, limits.*, llm, embedder and formation_calls: "
    "docs/reference/settings.md."
)

NOT_FORMING = frozenset({"models.at_once", "models.log_prompts"})

OF_WINDOWS = frozenset(
    f"memory.{name}" for name in ("facts", "reflections", "shared_sessions", "sharing", "without_users")
)
"""Settings that say where a window's memory may go: a window records that when it is cut, as it does `windows.*`."""

OF_READERS = frozenset(
    f"memory.{name}"
    for name in (
        "context_days",
        "context_facts",
        "recall",
        "recent",
    )
)
"""Settings that say what is shown of memory, whatever formed it."""

UNSET = ("", "null", "none")

COPY = "db.{own}.find().forEach(one => db.{shared}.replaceOne({{_id: one._id}}, one, {{upsert: true}}))"


class OwnTopics(Topics):
    """The topics of a namespace that are not shared."""

    def __iter__(self) -> Iterator[Topic]:
        """Yield every topic as the broker should have it."""
        shared = {self.name(short) for short, topic in self.file.topics.items() if topic.shared}
        return (topic for topic in super().__iter__() if topic.name not in shared)


def own_topics(kafka: KafkaSettings, placement: Placement) -> OwnTopics:
    """Return the topics that only this placement has."""
    return OwnTopics(read_topics(topics_path()), kafka, placement)


@dataclass(frozen=True, slots=True)
class OwnStreams(Placement):
    """The placement of a reform with streams of its own, which count only while it is formed."""

    def names(self, prefix: str) -> Names:
        """Return the collections of any namespace, with its own streams."""
        return replace(Placement.names(self, prefix), own=frozenset({STREAMS}))


def with_streams(
    asked: FormationRequested, streams: Mapping[str, Mapping[str, Stream]]
) -> FormationRequested:
    """Return the request for the agent's shards in `streams`, without scopes that these switch off.

    Recorded windows name the scopes that there were. `streams`: by agent and label.
    """
    own = streams.get(asked.agent_id, {})
    active = [scope for scope in asked.scopes if scope.kind != "shard" and limits_of(scope, own).active]
    shards: list[Scope] = []
    if any(scope.kind in ("agent", "shard") for scope in asked.scopes):
        names = sorted(stream.shard for stream in own.values() if stream.shard is not None and stream.active)
        shards = [Scope.of_shard(asked.agent_id, name) for name in names]
    broad = [scope for scope in active if scope.kind == "agent"]
    scopes = (*broad, *shards, *(scope for scope in active if scope.kind != "agent"))
    return asked if scopes == asked.scopes else asked.model_copy(update={"scopes": scopes})


def overrides_of(given: Sequence[str], file: Path | None) -> tuple[Override, ...]:
    """Return the given settings by name; the command line's override the file's."""
    found: dict[str, Any] = dict(_of_file(file)) if file is not None else {}
    for setting in given:
        name, sign, value = setting.partition("=")
        if not sign:
            raise EdenError(f"{setting!r} sets nothing", "Write it as --set memory.similar=0.8.")
        found[name.strip()] = value.strip()
    for name in found:
        _check_name(name)
    return tuple(Override(name=name, value=_json(name, found[name])) for name in sorted(found))


def overridden(settings: Settings, overrides: Iterable[Override]) -> Settings:
    """The settings with these; EdenError for a name or value that there is not."""
    changes: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for override in overrides:
        group, dot, field = override.name.partition(".")
        value = json.loads(override.value)
        if isinstance(value, str) and value.lower() in UNSET:
            value = None
        if dot:
            groups.setdefault(group, {})[field] = value
        else:
            changes[group] = value
    for name, fields in groups.items():
        changes[name] = _group(name, getattr(settings, name), fields)
    if "llm" in changes and not changes["llm"]:
        raise EdenError("llm is set to nothing", HINT)
    return settings.model_copy(update=changes)


def streams_of(file: Path) -> tuple[str, list[dict[str, Any]]]:
    """Digest and documents of a file of streams: a JSON list of documents as `memory_streams` has them."""
    try:
        rows = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise EdenError(
            f"{file} cannot be read: {describe(error)}", "A JSON list of stream documents."
        ) from None
    if not isinstance(rows, list):
        raise EdenError(f"{file} is no list", "A JSON list of stream documents.")
    found = [_stream(file, number, row) for number, row in enumerate(cast("list[Any]", rows), 1)]
    ids = [stream["_id"] for stream in found]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise EdenError(f"{file}: {', '.join(twice)} stands there twice", "Give each an _id of its own.")
    text = json.dumps(sorted(found, key=lambda stream: stream["_id"]), sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest(), found


def _stream(file: Path, number: int, row: Any) -> dict[str, Any]:
    try:
        return Stream.model_validate_json(json.dumps(row)).stored()
    except (ValidationError, TypeError) as error:
        raise EdenError(
            f"{file}: stream {number} is not valid: {_why(error)}", "docs/reference/documents.md"
        ) from None


def _of_file(file: Path) -> Mapping[str, Any]:
    try:
        content = tomllib.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise EdenError(f"{file} cannot be read: {describe(error)}", "TOML, as eden.toml is.") from None
    found: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            found |= {f"{name}.{field}": given for field, given in cast("dict[str, Any]", value).items()}
        else:
            found[name] = value
    return found


def _json(name: str, value: Any) -> str:
    try:
        return json.dumps(value)
    except TypeError:  # TOML has dates and times
        raise EdenError(f"{name} cannot be set to {value}", HINT) from None


def refuse_ineffective(asked: ReformAsked) -> None:
    """Raise EdenError for a setting that would change nothing in a reform, with what would."""
    names = [override.name for override in asked.overrides]
    if shown := sorted(OF_READERS.intersection(names)):
        raise EdenError(
            f"{', '.join(shown)} says what is shown of memory: forming it anew changes nothing",
            "Set it for the processes that read memory, in the environment or eden.toml; no reform is needed.",
        )
    cut = sorted(OF_WINDOWS.intersection(names))
    if cut and not asked.rewindow:
        raise EdenError(
            f"{', '.join(cut)} is recorded in each window: windows that are taken as they were keep theirs",
            "Cut them anew with --rewindow.",
        )


def _check_name(name: str) -> None:
    group, dot, field = name.partition(".")
    known = field in Settings.model_fields[group].annotation.model_fields if group in GROUPS else False  # pyright: ignore
    if (not dot and name not in ALONE) or (dot and not known) or name in NOT_FORMING:
        raise EdenError(f"{name} cannot be set for a reform", HINT)


def _group(name: str, group: SettingsGroup, fields: Mapping[str, Any]) -> SettingsGroup:
    try:
        return type(group).model_validate({**group.model_dump(), **fields})
    except ValidationError as error:
        raise EdenError(f"{name} cannot be set so: {_why(error)}", HINT) from None


def _why(error: Exception) -> str:
    return reasons(error) if isinstance(error, ValidationError) else describe(error)


def to_be_set(settings: Settings, own: Settings, asked: ReformAsked) -> list[str]:
    """Return, as lines, what to set so that later chat is formed as in the reform; `own`: its settings."""
    others = [override for override in asked.overrides if overridden(settings, [override]) != settings]
    lines = [f"  {_variable(override)}" for override in others]
    if asked.streams is not None:
        shared = settings.names[Stream.COLLECTION]
        lines.append(f"  its streams, in mongosh: {COPY.format(own=own.names[STREAMS], shared=shared)}")
    if not lines:
        return []
    return ["chat that comes after a switch is formed by `eden run` as it is set; as here, with:", *lines]


def _variable(override: Override) -> str:
    """`EDEN_MEMORY_SIMILAR=0.8`; `unset …` for a setting without a value."""
    name, value = f"EDEN_{override.name.upper().replace('.', '_')}", json.loads(override.value)
    if value is None or (isinstance(value, str) and value.lower() in UNSET):
        return f"unset {name}"
    return f"{name}={shlex.quote(value if isinstance(value, str) else json.dumps(value))}"
