"""Whether something is the asker's to forget: theirs alone, or of the agent where the application itself asks."""

from typing import Any

from eden_memory.access.visible import Asked, View
from eden_memory.api.reach import KnownSession, SessionReach
from eden_memory.app.memory import SharedMemory
from eden_memory.errors import Invalid, NotFound
from eden_memory.forgetting.forgetting_rules import BlobRef
from eden_memory.memory.browsing_store import Browsing, scopes_of
from eden_memory.mongo.application_ids import raw, typed
from eden_memory.mongo.document_fields import getter
from eden_memory.schemas.documents import Message
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings


class Forgetting:
    """`target` is the application's id of a message, session or user, and the text id of what is ours."""

    def __init__(self, memory: SharedMemory, settings: Settings, browsing: Browsing) -> None:
        """`settings` of the namespace that is read."""
        self._memory, self._settings, self._browsing = memory, settings, browsing
        self._reach = SessionReach(memory)

    async def demand(self, what: Forgettable, target: Any, asked: Asked, view: View) -> Scope | None:
        """NotFound unless it may be forgotten; Invalid for what cannot be. Gives the scope of what is ours."""
        match what:
            case "message":
                await self._message(typed(target, "message"), asked)
            case "session":
                await self._session(typed(target, "session"), asked)
            case "user":
                _user(typed(target, "user"), asked)
            case "fact":
                return (await self._browsing.fact(asked, view, target))[1]
            case "reflection":
                return await self._browsing.scope_of_reflection(asked, view, target)
            case "blob":
                return _blob(target, asked, view)
            case _:  # pyright: ignore[reportUnnecessaryComparison]
                raise Invalid("there is no such thing to forget")
        return None

    async def _message(self, message: str, asked: Asked) -> None:
        """Who asks as a user wrote it, or was alone in its session."""
        session, author = await self._place(message)
        if asked.session_id not in (None, session):
            raise _nothing("message")
        known = await self._reach.known(session)
        if not _agents(asked, known):
            raise _nothing("message")
        alone = _is_alone(known, asked.user_id) and author is None
        if asked.user_id is not None and author != asked.user_id and not alone:
            raise _nothing("message")

    async def _place(self, message: str) -> tuple[str, str | None]:
        """Its session and author, as memory knows them, or the application's own document."""
        settings = self._settings
        stored = self._memory.database[settings.names[Message.COLLECTION]]
        row = await stored.find_one({"_id": message}, {"session_id": 1, "user_id": 1})
        if row is not None and row.get("session_id") is not None:
            return row["session_id"], row.get("user_id")
        paths = settings.messages
        said = await self._memory.source[paths.collection].find_one({"_id": raw(message, "message")})
        session, user = (getter(path)(said or {}) for path in (paths.session_id, paths.user_id))
        if session is None:
            raise _nothing("message")
        return typed(session, "session"), None if user is None else typed(user, "user")

    async def _session(self, session: str, asked: Asked) -> None:
        """Who asks as a user is alone in it."""
        known = await self._reach.known(session)
        mine = asked.session_id in (None, session) and _agents(asked, known)
        if asked.user_id is not None:
            mine = mine and _is_alone(known, asked.user_id)
        if not mine:
            raise _nothing("session")


def _is_alone(known: KnownSession | None, user: str | None) -> bool:
    """Whether nobody but the user is in the session."""
    return known is not None and known.users is not None and set(known.users) == {user}


def _agents(asked: Asked, known: KnownSession | None) -> bool:
    """Whether the session is the agent's, as far as is known."""
    return known is None or known.agent_id is None or known.agent_id == asked.agent_id


def _user(user: str, asked: Asked) -> None:
    if asked.user_id != user and (asked.user_id is not None or asked.session_id is not None):
        raise _nothing("user")


def _blob(target: Any, asked: Asked, view: View) -> Scope:
    """A version that was given: the next one is not to be taken before its time."""
    parsed = BlobRef.parse(target) if isinstance(target, str) else None
    if parsed is None:
        raise _nothing("blob")
    key, version = parsed
    shown = next((one.snapshot for one in view.shown if one.scope.key == key), None)
    given = 0 if shown is None else max(shown.highest_blob_version, shown.blob_version)
    if version > given:
        raise _nothing("blob")
    return scopes_of(asked, view)[key]


def _nothing(what: str) -> NotFound:
    return NotFound(f"there is no such {what} here")
