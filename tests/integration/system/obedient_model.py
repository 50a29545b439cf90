"""A model that does what messages tell it: `fact user: …` is a fact of that scope, `note session: …` a reflection,
`note shard:NAME: …` one of a shard.

A fact that says `on 2021-06-05` happened then. Facts that share a word `same-…` are the same fact in other words
(NONE); where the new one also says `instead`, it contradicts (DELETE), where it says `moreover`, it adds (UPDATE).
Consolidation keeps all items.
"""

import re
from typing import Any

from tests.model_server.script import Asked, Said, default_script

TOLD = re.compile(r"\b(fact|note) ([a-z]+(?::\w+)?): (.+)")
KNOWN = re.compile(r"^(K\d+) (?:\([^)]*\) )?(.+)$", re.MULTILINE)
NEW = re.compile(r"^(N\d+) (?:\([^)]*\) )?near((?: [KN]\d+)+): (.+)$", re.MULTILINE)
DATED = re.compile(r"\bon (\d{4}-\d\d-\d\d)\b")
SAME = re.compile(r"\bsame-\w+")
WORD = "unanswerable"
"""A message that holds it gets no usable answer about its facts, ever."""


def obey(asked: Asked) -> Said:
    """The answer that the prompt's messages ask for."""
    if asked.kind == "facts":
        return {"facts": _told(asked, "fact")} if WORD not in asked.user else "nothing that could be read"
    if asked.kind == "reflections":
        return {"reflections": _told(asked, "note")}
    if asked.kind == "decisions":
        return {"decisions": _decided(asked.user)}
    return default_script(asked)


def _told(asked: Asked, what: str) -> list[dict[str, Any]]:
    return [
        {"text": text.strip(), "scope": scope, "messages": [number], **_dated(text, what)}
        for number, said in asked.messages.items()
        for kind, scope, text in TOLD.findall(said)
        if kind == what
    ]


def _dated(text: str, what: str) -> dict[str, Any]:
    found = DATED.search(text)
    return {"occurred_at": found and found[1]} if what == "fact" else {}


def _decided(prompt: str) -> list[dict[str, Any]]:
    known: dict[str, str] = dict(KNOWN.findall(prompt))
    decisions: list[dict[str, Any]] = []
    for label, near, text in NEW.findall(prompt):
        for candidate in near.split():
            if (same := SAME.search(text)) and same[0] in known.get(candidate, ""):
                decisions.append(_decision(label, candidate, text))
                break
    return decisions


def _decision(label: str, existing: str, text: str) -> dict[str, Any]:
    word = "DELETE" if "instead" in text else "UPDATE" if "moreover" in text else "NONE"
    merged = text if word == "UPDATE" else None
    return {"fact": label, "decision": word, "existing": existing, "text": merged, "reason": "scripted"}
