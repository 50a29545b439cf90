"""Sessions that the application does not know: texts added for an agent and a user, and imported conversations."""

from typing import NamedTuple

from eden_memory.schemas.ids import encode, split

BEGINS = "eden:added:"
_BEGINS_TYPED = encode(BEGINS)


class Own(NamedTuple):
    """The agent and the user whose additions a session holds; ids typed."""

    agent_id: str
    user_id: str | None
    """None: the agent's, nobody's in particular."""


def own_session(agent_id: str, user_id: str | None, conversation_id: str | None = None) -> str:
    """Return the session's id, as an application would have it: the same for the same agent and user.

    `conversation_id` (typed): one conversation of the user that was imported, in a session of its own.
    """
    named = (agent_id, *(name for name in (user_id, conversation_id) if name is not None))
    return BEGINS + ":".join(named)


def is_reserved(session_id: str) -> bool:
    """Tell whether a session (`session_id` typed) bears a name that no application's conversation may have."""
    return session_id.startswith(_BEGINS_TYPED)


def whose(session_id: str) -> Own | None:
    """Return whose additions a session (`session_id` typed) holds; None for a conversation of the application."""
    if not is_reserved(session_id):
        return None
    agent, _, rest = split(session_id)[1].removeprefix(BEGINS).partition(":")
    user, _, conversation = rest.partition(":")
    given = (agent, user, conversation) if conversation else (agent, user) if user else (agent,)
    return Own(agent, user or None) if all(map(_is_id, given)) else None


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
