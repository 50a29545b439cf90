"""The model of the notebook: finds what the offline rules find.

`python -m tests.model_server --script tests.transcripts.boatyard_model:answer`.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from eden_memory.formation.offline.offline_answers import facts, reflections
from eden_memory.formation.prompt_material import FactMaterial, ReflectionMaterial, ScopeBrief, TranscriptLine
from tests.model_server.script import Asked, Said, default_script

WORDS, MOST = 30, 30
LINE = re.compile(r"^\[\d+\] (\d\d:\d\d) (.+?)(?: \((agent|tool|system|other)\))?: (.*)$")
DAY = re.compile(r"^(\d{4}-\d\d-\d\d) [A-Z][a-z]+$")
COUNT = re.compile(r"^- (\S+) (\d+)-(\d+):", re.MULTILINE)
ROLES = {None: "user", "agent": "assistant"}


def answer(asked: Asked) -> Said:
    """Facts and reflections by the rules; decisions and blobs as the test server answers without a script."""
    if asked.kind == "facts":
        scopes = tuple(ScopeBrief(label) for label in asked.labels)
        found = facts(FactMaterial(tuple(_lines(asked.user)), scopes, MOST, WORDS)).facts
        return {"facts": [one.model_dump() for one in found]}
    if asked.kind == "reflections":
        scopes = tuple(
            ScopeBrief(label, least=int(least), most=int(most))
            for label, least, most in COUNT.findall(asked.system)
        )
        material = ReflectionMaterial(lines=tuple(_lines(asked.user)), scopes=scopes, facts=(), words=WORDS)
        return reflections(material).model_dump()
    return default_script(asked)


def _lines(prompt: str) -> Iterator[TranscriptLine]:
    """The conversation, read back from its rendering."""
    day, line = datetime(2026, 1, 1, tzinfo=UTC), None
    for row in prompt.splitlines():
        if found := DAY.match(row):
            day = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
        elif found := LINE.match(row):
            if line is not None:
                yield line
            hour, minute = map(int, found[1].split(":"))
            role = ROLES.get(found[3], found[3])
            line = TranscriptLine(found[2], role, day.replace(hour=hour, minute=minute), found[4])
        elif line is not None and row.startswith(" "):
            line = replace(line, text=f"{line.text}\n{row.strip()}")
    if line is not None:
        yield line
