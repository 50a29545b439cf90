"""The model of the bench beside other memories: states what the table says, in the form that each system asks for.

`python -m tests.model_server --script tests.bench.peers_answers:answer`. It obeys each prompt: where a system shows
what it knows and asks to skip or name repeats, two statements of one fact are the same, whatever their words.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from tests.bench.peers_talk import meaning, stated_in
from tests.model_server.script import Asked, Said, default_script

NEW = re.compile(r"^(N\d+) (?:\([^)]*\) )?near((?: [KN]\d+)*): (.*)$", re.MULTILINE)
KNOWN = re.compile(r"^(K\d+) (?:\([^)]*\) )?(.*)$", re.MULTILINE)
SPEAKER = re.compile(r"^(\w+): ", re.MULTILINE)
Json = dict[str, Any]


def answer(asked: Asked) -> Said:
    """To any prompt of the three systems."""
    if "## New Messages" in asked.user:
        return mem0(asked.user)
    for field in (asked.schema or {}).get("properties", {}):
        if field in GRAPHITI:
            return GRAPHITI[field](asked.user)
    own = EDEN.get(asked.kind)
    return own(asked) if own else default_script(asked)


def eden_facts(asked: Asked) -> Json:
    """Facts with the messages that state them."""
    return {
        "facts": [
            {"text": statement, "scope": "user", "messages": [number]}
            for number, text in asked.messages.items()
            for _, statement in stated_in(text)
        ]
    }


def eden_decisions(asked: Asked) -> Json:
    """NONE for what one of the facts near to it says already."""
    texts: dict[str, str] = dict(KNOWN.findall(asked.user))
    texts |= {label: text for label, _, text in NEW.findall(asked.user)}
    decisions: list[Json] = []
    for label, near, text in NEW.findall(asked.user):
        same = [other for other in near.split() if _same(texts.get(other, ""), text)]
        if same:
            decided = {"decision": "NONE", "existing": same[0], "text": None, "reason": "said before"}
            decisions.append({"fact": label, **decided})
    return {"decisions": decisions}


def mem0(prompt: str) -> Json:
    """New memories only: its prompt asks to skip what the existing ones say."""
    existing = {meaning(one["text"]) for one in json.loads(_between(prompt, "## Existing Memories\n", "\n"))}
    new = stated_in(_between(prompt, "## New Messages\n", "## Observation Date"))
    texts = [statement for fact, statement in new if fact not in existing]
    return {
        "memory": [
            {"id": str(place), "text": text, "attributed_to": "user"} for place, text in enumerate(texts)
        ]
    }


def entities(prompt: str) -> Json:
    """The speakers, and a thing for each fact."""
    message = _between(prompt, "<CURRENT MESSAGE>", "</CURRENT MESSAGE>")
    names = [*SPEAKER.findall(message), *(_thing(fact) for fact, _ in stated_in(message))]
    return {
        "extracted_entities": [
            {"name": name, "entity_type_id": 0, "episode_indices": [0]} for name in dict.fromkeys(names)
        ]
    }


def edges(prompt: str) -> Json:
    """Each fact between its speaker and its thing, dated so that no further call asks for the date."""
    message = _between(prompt, "<CURRENT_MESSAGE>", "</CURRENT_MESSAGE>")
    moment = _between(prompt, "<REFERENCE_TIME>", "#").strip().replace(" ", "T")
    speaker = next(iter(SPEAKER.findall(message)), "user")
    return {
        "edges": [
            {
                "source_entity_name": speaker,
                "target_entity_name": _thing(fact),
                "relation_type": "STATED",
                "fact": statement,
                "valid_at": moment,
                "invalid_at": None,
                "episode_indices": [0],
            }
            for fact, statement in stated_in(message)
        ]
    }


def resolutions(prompt: str) -> Json:
    """Two entities of one name are one."""
    new: list[Json] = json.loads(_between(prompt, "<ENTITIES>", "</ENTITIES>"))
    known: list[Json] = json.loads(_between(prompt, "<EXISTING ENTITIES>", "</EXISTING ENTITIES>"))
    ids = {one["name"]: one["candidate_id"] for one in known}
    return {
        "entity_resolutions": [
            {"id": one["id"], "name": one["name"], "duplicate_candidate_id": ids.get(one["name"], -1)}
            for one in new
        ]
    }


def duplicates(prompt: str) -> Json:
    """The existing facts that say the same; nothing is contradicted."""
    existing = _between(prompt, "<EXISTING FACTS>", "</EXISTING FACTS>")
    new = _between(prompt, "<NEW FACT>", "</NEW FACT>").strip()
    found = [place for place, fact in _listed_facts(existing) if _same(fact, new)]
    return {"duplicate_facts": found, "contradicted_facts": []}


def summaries(prompt: str) -> Json:
    """One for each entity, so that none is asked for again."""
    asked: list[Json] = json.loads(_between(prompt, "<ENTITIES>", "</ENTITIES>"))
    return {
        "summaries": [
            {"name": one["name"], "summary": one["summary"][:400] or f"{one['name']} was talked of."}
            for one in asked
        ]
    }


def _listed_facts(text: str) -> list[tuple[int, str]]:
    """Of a list of `{'idx': …, 'fact': …}`, as JSON or as Python prints it."""
    found = re.findall(
        r"""['"]idx['"]: (\d+), ['"]fact['"]: (?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""", text
    )
    return [(int(place), one or other) for place, one, other in found]


def _same(one: str, other: str) -> bool:
    return meaning(one) is not None and meaning(one) == meaning(other)


def _thing(fact: str) -> str:
    return fact.replace("-", " ")


def _between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0]


EDEN: dict[str, Callable[[Asked], Said]] = {"facts": eden_facts, "decisions": eden_decisions}
GRAPHITI: dict[str, Callable[[str], Said]] = {
    "extracted_entities": entities,
    "edges": edges,
    "entity_resolutions": resolutions,
    "duplicate_facts": duplicates,
    "summaries": summaries,
}
"""By the field that the schema asks for."""
