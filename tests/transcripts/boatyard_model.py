"""The model of the transcripts: finds what the offline rules find, and heeds two wishes in a scope's guidance.

`python -m tests.model_server --script tests.transcripts.boatyard_model:answer`.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from eden_memory.formation.offline.offline_answers import facts, reflections
from eden_memory.formation.prompt_material import FactMaterial, ReflectionMaterial, ScopeBrief, TranscriptLine
from tests.model_server.script import Asked, Said, default_script

NO_MONEY = "Leave amounts of money out."
ISO_DATES = "Write dates as YYYY-MM-DD."
WORDS, MOST = 30, 30
LINE = re.compile(r"^\[\d+\] (\d\d:\d\d) (.+?)(?: \((agent|tool|system|other)\))?: (.*)$")
DAY = re.compile(r"^(\d{4}-\d\d-\d\d) [A-Z][a-z]+$")
COUNT = re.compile(r"^- (\S+) (\d+)-(\d+):", re.MULTILINE)
MONEY = re.compile(r"€|\b(?:euros?|EUR|kronor|SEK|kr)\b")
DATE = re.compile(r"(?<!and )(?<!to )\b(\d{1,2}) ([A-Z][a-z]+) (20\d\d)\b")
ROLES = {None: "user", "agent": "assistant"}


def answer(asked: Asked) -> Said:
    """Facts and reflections by the rules; decisions and blobs as the test server answers without a script."""
    if asked.kind == "facts":
        scopes = tuple(ScopeBrief(label) for label in asked.labels)
        found = facts(FactMaterial(tuple(_lines(asked.user)), scopes, MOST, WORDS)).facts
        said = (one.model_dump() for one in found)
        return {"facts": [one for one in map(_heeding(asked.system), said) if one is not None]}
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


def _heeding(system: str) -> Any:
    """A fact as the guidance wants it, or None."""

    def heeded(fact: dict[str, Any]) -> dict[str, Any] | None:
        if NO_MONEY in system and MONEY.search(fact["text"]):
            return None
        return {**fact, "text": DATE.sub(_iso, fact["text"])} if ISO_DATES in system else fact

    return heeded


def _iso(found: re.Match[str]) -> str:
    return f"{datetime.strptime(found[0], '%d %B %Y').replace(tzinfo=UTC):%Y-%m-%d}"
