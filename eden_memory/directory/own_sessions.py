"""Sessions without a conversation: they contain texts that were added for an agent and a user."""

from typing import NamedTuple

from eden_memory.schemas.ids import encode, split

BEGINS = "eden:added:"


class Own(NamedTuple):
    """The agent and the user whose additions a session holds; ids typed."""

    agent_id: str
    user_id: str | None
    """None: the agent's, nobody's in particular."""


def own_session(agent_id: str, user_id: str | None) -> str:
    """Return the session's id, as an application would have it: the same for the same agent and user."""
    return f"{BEGINS}{agent_id}" + (f":{user_id}" if user_id is not None else "")


def whose(session_id: str) -> Own | None:
    """Return whose additions a session (`session_id` typed) holds; None for a conversation."""
    if not session_id.startswith(encode(BEGINS)):
        return None
    agent, _, user = split(session_id)[1].removeprefix(BEGINS).partition(":")
    return Own(agent, user or None) if _is_id(agent) and (not user or _is_id(user)) else None


def given_to_all(session_id: str) -> bool:
    """Tell whether the texts of this session (`session_id` typed) were added for all of the agent's users."""
    own = whose(session_id)
    return own is not None and own.user_id is None


def _is_id(text: str) -> bool:
    try:
        split(text)
    except ValueError:
        return False
    return ":" not in text
