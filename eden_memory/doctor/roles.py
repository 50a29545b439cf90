"""What the names that applications give to roles mean. Pure."""

import re

from eden_memory.settings import Role

NAMES: dict[Role, tuple[str, ...]] = {
    "user": ("user", "human", "customer", "client", "visitor", "guest", "member", "person", "enduser", "me"),
    "assistant": ("assistant", "ai", "bot", "chatbot", "model", "agent", "llm", "gpt", "copilot"),
    "tool": (
        "tool",
        "function",
        "toolresult",
        "toolresponse",
        "functionresponse",
        "toolcall",
        "functioncall",
    ),
    "system": ("system", "developer", "instruction", "instructions"),
    "other": ("other",),
}
MEANINGS: dict[str, Role] = {name: role for role, names in NAMES.items() for name in names}
NOT_LETTERS = re.compile(r"[^a-z]")
AROUND = re.compile(r"(message|msg|role|turn)(chunk)?$|^role")
"""Words around a role's name, as in `HumanMessage`, `AIMessageChunk`, `ROLE_USER`."""


def meaning(name: object) -> Role | None:
    """Our role for an application's name of one, whatever its case; None where its meaning is not clear."""
    if not isinstance(name, str):
        return None
    plain = NOT_LETTERS.sub("", name.lower())
    return MEANINGS.get(plain) or MEANINGS.get(AROUND.sub("", plain))
