"""What an installation has to set so that what comes is formed as a reform was: settings, streams."""

import json
import shlex
from collections.abc import Iterable

from eden_memory.cli.replay.reform_settings import overridden
from eden_memory.replay.reform.own_streams import STREAMS
from eden_memory.schemas.documents import Override, ReformAsked, Stream
from eden_memory.settings import Settings

COPY = "db.{own}.find().forEach(one => db.{shared}.replaceOne({{_id: one._id}}, one, {{upsert: true}}))"


def differing(settings: Settings, overrides: Iterable[Override]) -> list[Override]:
    """Those of a reform's settings that the installation's (those of this command) are not."""
    return [one for one in overrides if overridden(settings, [one]) != settings]


def to_be_set(settings: Settings, own: Settings, asked: ReformAsked) -> list[str]:
    """Lines for people, EDEN_… to be set first; none where what comes is formed so anyway. `own`: the reform's."""
    others = differing(settings, asked.overrides)
    lines = [f"  {_variable(one)}" for one in others]
    if asked.streams is not None:
        shared = settings.names[Stream.COLLECTION]
        lines.append(f"  its streams, in mongosh: {COPY.format(own=own.names[STREAMS], shared=shared)}")
    if not lines:
        return []
    return ["chat that comes after a switch is formed by `eden run` as it is set; as here, with:", *lines]


def _variable(one: Override) -> str:
    """`EDEN_MEMORY_SIMILAR=0.8`; what was set to nothing is to be unset."""
    name, value = f"EDEN_{one.name.upper().replace('.', '_')}", json.loads(one.value)
    if value is None or (isinstance(value, str) and value.lower() in ("", "null", "none")):
        return f"unset {name}"
    return f"{name}={shlex.quote(value if isinstance(value, str) else json.dumps(value))}"
