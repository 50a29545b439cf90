"""Find the agent, session and user that a person names for a command."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import typer

from eden_memory.access.admission_store import LOCAL
from eden_memory.access.presence_store import MongoPresence
from eden_memory.access.visible import Asker
from eden_memory.api.service import Memory, MemoryService
from eden_memory.cli.structured_logs import warnings_only
from eden_memory.cli.terminal import plain
from eden_memory.directory.id_reader_store import default_agent
from eden_memory.directory.participants import DEFAULT_AGENT, whose
from eden_memory.directory.session_document_store import SessionDocuments
from eden_memory.errors import NotFound
from eden_memory.mongo.document_fields import getter
from eden_memory.mongo.ids import TYPED, decode_id, encode_id
from eden_memory.operations.admitted_call import AdmittedCall
from eden_memory.operations.empty_because import EmptyBecause
from eden_memory.operations.reach import SessionReach
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import session_of, user_of

T = TypeVar("T")
AS_ID = "as in the application, or typed: s.TEXT, i.5, u.UUID, o.OBJECTID"
Agent = Annotated[
    str | None, typer.Option(help=f"the agent, {AS_ID}; unset: the session's, or the default agent")
]
Session = Annotated[str | None, typer.Option(help=f"as seen in this session, {AS_ID}")]
User = Annotated[str | None, typer.Option(help=f"as this user sees it, {AS_ID}")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output")]


@dataclass(frozen=True, slots=True)
class Viewer:
    """An agent's memory, and the session and user that view it; `asker`: all three by their typed ids."""

    memory: MemoryService
    asker: Asker
    session: Any = None
    user: Any = None

    @property
    def named(self) -> dict[str, Any]:
        """Return session and user as arguments of MemoryService's calls."""
        return {"session": self.session, "user": self.user}

    @property
    def call(self) -> AdmittedCall:
        """Return an operation's call, of someone who administers everything."""
        return AdmittedCall(LOCAL, self.memory, SessionReach(self.memory.memory), self.session, self.user)

    async def scope_keys(self) -> frozenset[str]:
        """Return the keys of the scopes that they may see."""
        readers = await self.memory.memory.current()
        return frozenset((await readers.contexts.view(self.asker)).scope_keys)


NOTHING = "no memory to show here"


def nothing(what: str, user: str | None) -> str:
    """Return a note that nothing was found, with a hint if no user is named."""
    return what if user is not None else f"{what}; use --user ID to show what is known of a user"


def say_why(because: EmptyBecause | None) -> None:
    """Tell on standard error why an answer is empty."""
    if because is not None:
        typer.echo(plain(str(because)), err=True)


def ask(
    agent: str | None, session: str | None, user: str | None, work: Callable[[Viewer], Awaitable[T]]
) -> T:
    """Run work on an agent's memory for the named session and user."""

    async def done() -> T:
        async with who(Settings(), agent, session, user) as found:
            return await work(found)

    try:
        return asyncio.run(done())
    except NotFound as error:
        if user is not None or error.hint:
            raise
        raise NotFound(error.what, "Use --user ID to show what is known of a user.") from None


@asynccontextmanager
async def who(
    settings: Settings, agent: str | None, session: str | None, user: str | None, *, alone: bool = False
) -> AsyncGenerator[Viewer]:
    """Yield the viewer; `alone`: the default user is the session's only one. EdenError for an ambiguous id."""
    memory = Memory(settings)
    with warnings_only():
        try:
            named = None if session is None else await _named(memory, "session", session)
            agent_id = await (_agent(memory, named) if agent is None else memory.ids.read("agent", agent))
            person = None if user is None else await _named(memory, "user", user)
            if alone and user is None and named is not None:
                person = await _only_user(memory, Asker(encode_id(agent_id), _typed(named)))
            asker = Asker(encode_id(agent_id), _typed(named), _typed(person))
            yield Viewer(memory.agent(agent_id, asked_by="eden"), asker, named, person)
        finally:
            await memory.close()


def _typed(named: Any) -> str | None:
    return None if named is None else encode_id(named)


async def _named(memory: Memory, kind: Literal["session", "user"], text: str) -> Any:
    """Return the id in the form that some message has, else of the field's type; text if it can be nothing else."""
    if TYPED.match(text):
        return await memory.ids.read(kind, text)
    paths = memory.settings.messages
    find, path = (session_of, paths.session_id) if kind == "session" else (user_of, paths.user_id)
    try:
        return await find(memory.source, paths.collection, path, text)
    except NotFound:
        found = await memory.ids.read(kind, text)
        if found == text and (text.isdecimal() or len(text) in (24, 32, 36)):
            raise
        return found


async def _agent(memory: Memory, session: Any) -> Any:
    """Return the agent of the session's document; the default agent without one."""
    if session is not None and (own := whose(encode_id(session))) is not None:
        return decode_id(own.agent_id)
    mapped = memory.settings.sessions
    if session is not None and mapped.collection is None:
        return decode_id(DEFAULT_AGENT)
    row = None
    if session is not None:
        row = await SessionDocuments(memory.source, mapped).one(encode_id(session))
    if row is None:
        return default_agent(memory.settings)
    said = getter(mapped.agent_id)(row)
    return decode_id(DEFAULT_AGENT) if said is None else said


async def _only_user(memory: Memory, asked: Asker) -> Any:
    """Return the only user; None if there are several, or none is known."""
    settings = (await memory.current()).settings
    presence = MongoPresence(memory.source, memory.database, settings)
    (present,) = (await presence.look_up([asked])).values()
    users = tuple(present.users or ())
    return decode_id(users[0]) if len(users) == 1 else None
