"""What an application's names of roles mean. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from eden_memory.doctor.sampled_fields import SampledField
from eden_memory.schemas.events.chat import ALL_OTHERS, role_name
from eden_memory.settings import Role

PAIR = 2


SAYS_WHO = frozenset({"user", "human", "bot", "assistant", "ai", "me"})


AROUND_WHO = frozenset({"is", "was", "by", "from", "sent", "sender", "author", "message", "msg", "generated"})
"""Words beside them in the name of a flag, as in `isBot`, `sentByUser`."""


NAMES: dict[Role, tuple[str, ...]] = {
    "user": (
        "user",
        "human",
        "customer",
        "client",
        "visitor",
        "guest",
        "member",
        "person",
        "enduser",
        "me",
    ),
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
    """Our role for an application's name of one, whatever its case; None where its meaning is not clear.

    `user_12` is the id of a user, no role.
    """
    if not isinstance(name, str):
        return None
    plain = NOT_LETTERS.sub("", name.lower())
    role = MEANINGS.get(plain) or MEANINGS.get(AROUND.sub("", plain))
    return None if role == "user" and re.search(r"\d", name) else role


def role_names(role: SampledField | None) -> Mapping[str, Role]:
    """Map the names of roles to ours as far as they are clear."""
    if role is None:
        return {}
    if flags := flag_roles(role):
        return flags
    names = dict.fromkeys(value for value in role.values if isinstance(value, str))
    clear: dict[str, Role] = {name: ours for name in names if (ours := meaning(name)) is not None}
    if names_me(role) and len(names) == PAIR:
        clear |= {name: "assistant" for name in names if not _is_me(name)}
    return clear


def name_of_role(role: SampledField, value: Any, means: Mapping[str, Role]) -> str | None:
    """Return the name of the role that a document has."""
    if {"false", ALL_OTHERS} & {*means} or not all(isinstance(each, str) for each in role.present):
        return role_name(value)
    return value if isinstance(value, str) else None


def names_me(role: SampledField) -> bool:
    """Tell whether a field of roles only says who is *me*, and nothing beside it tells the agent from the user."""
    if all(isinstance(value, bool) for value in role.present):
        return "me" in role.words
    means = {meaning(value) for value in role.present if not _is_me(value)}
    return any(map(_is_me, role.present)) and not means & {"user", "assistant"}


def _is_me(name: object) -> bool:
    return isinstance(name, str) and NOT_LETTERS.sub("", name.lower()) == "me"


def flag_roles(sampled_field: SampledField) -> Mapping[str, Role]:
    """Map true and false to roles in a field that says who speaks (`isBot`); return nothing for any other field."""
    words, flags = set(sampled_field.words), sampled_field.present
    who = {meaning(word) for word in words & SAYS_WHO}
    if len(who) != 1 or words - SAYS_WHO - AROUND_WHO:
        return {}
    if not flags or not all(isinstance(value, bool) for value in flags):
        return {}
    return {"true": "user", "false": "assistant"} if "user" in who else {"true": "assistant", "false": "user"}
