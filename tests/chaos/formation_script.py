"""What the model says in the fault run: marked facts of users and of the agent, reflections that no prompt shares."""

from hashlib import sha256
from typing import Any

from tests.model_server.script import (
    MARK,
    Asked,
    Said,
    default_script,
    marked_facts,
    of_all,
    three_reflections,
)

AGENT_EVERY = 4
"""Every so many markers' facts are the agent's; the others are their user's."""


def marker_of(number: int) -> str:
    """The marker of one thing said."""
    return f"MARK-{number:05d}"


def of_agent(marker: str) -> bool:
    """Whether the fact with this marker is the agent's."""
    return int(marker.removeprefix("MARK-")) % AGENT_EVERY == 0


def script(asked: Asked) -> Said:
    """As the default one does, but for facts of the agent, and now and then a reflection of it."""
    match asked.kind:
        case "facts":
            return {"facts": [_placed(one, asked) for one in marked_facts(asked)["facts"]]}
        case "reflections":
            return {"reflections": [*three_reflections(asked)["reflections"], *_of_the_agent(asked)]}
        case _:
            return default_script(asked)


def _placed(fact: dict[str, Any], asked: Asked) -> dict[str, Any]:
    found = MARK.search(fact["text"])
    assert found is not None
    broad = of_agent(found[0]) and "agent" in asked.labels
    return {**fact, "scope": "agent", "text": of_all(found[0])} if broad else fact


def _of_the_agent(asked: Asked) -> list[dict[str, Any]]:
    """One for every window that begins with a fact of the agent."""
    numbers = sorted(asked.messages)[:2]
    found = MARK.search(asked.messages[numbers[0]]) if numbers else None
    if found is None or not of_agent(found[0]) or "agent" not in asked.labels:
        return []
    name = "m" + sha256(asked.user.encode()).hexdigest()[:10]  # ten digits alone would be a telephone number
    return [{"text": f"The company turned to matter {name}.", "scope": "agent", "messages": numbers}]
