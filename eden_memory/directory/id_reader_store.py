"""Read ids that people and programs give as text, by the type that the application's own field holds."""

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Literal, cast

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ExecutionTimeout

from eden_memory.directory.participants import DEFAULT_AGENT
from eden_memory.errors import NotAnId
from eden_memory.mongo.document_fields import getter
from eden_memory.mongo.ids import TYPED, encode_id, id_of, raw, readings, typed
from eden_memory.mongo.lenient_decoding import found_documents
from eden_memory.settings import Settings

IdKind = Literal["agent", "session", "user", "message"]
DEFAULT = "default"
"""The plain text that names the default agent at every door; `s.default` is the text itself."""
SAMPLE = 100
"""Newest documents of a collection whose ids say what type a field holds."""
LOOK_MILLISECONDS = 300
"""For one query of a field that may lack an index."""
KEPT_SECONDS, EMPTY_SECONDS = 600.0, 5.0
"""How long a field's types are cached, and how long those of a field without any id."""


def default_agent(settings: Settings) -> Any:
    """Return the agent of calls that name none, as the application has its id."""
    return raw(settings.agents.default or DEFAULT_AGENT, "agent")


class IdReader:
    """The same at every door that is given ids as text; `source` is the application's database."""

    def __init__(self, source: AsyncDatabase[dict[str, Any]], settings: Settings) -> None:
        self._source, self._settings = source, settings
        self._types: dict[IdKind, tuple[float, frozenset[str]]] = {}

    async def read(self, kind: IdKind, text: str, *, certain: bool = False) -> Any:
        """Return the id as the application has it: typed (`o.65f…`) as it says, plain text by the field's type.

        Where the field holds several types that the text may be of, it is the only id of them that is there, else
        the text. Plain text also stays text where nothing says what the field holds. Raises NotAnId as `id_of`.

        `certain`, for what cannot be undone: any id of another type that is there counts, and NotAnId is raised
        where several are, or none is and the field's types leave it open.
        """
        if kind == "agent" and text == DEFAULT:
            return default_agent(self._settings)
        plain = id_of(text, kind)
        meant = readings(text) if not TYPED.match(text) else [plain]
        if len(meant) == 1:
            return plain
        types = await self._types_of(kind)
        fitting = [each for each in meant if encode_id(each)[0] in types]
        if certain or len(fitting) > 1:
            there = [each for each in (meant if certain else fitting) if await self.exists(kind, each)]
            if len(there) == 1:
                return there[0]
            if certain and (there or len(fitting) != 1):
                forms = " or ".join(encode_id(each) for each in there or meant)
                raise NotAnId(
                    f"the id of the {kind} may be {forms}", "Give the one that you mean in this form."
                )
        return fitting[0] if len(fitting) == 1 else plain

    async def exists(self, kind: IdKind, value: Any) -> bool:
        """Tell whether a document of the application names this id; what takes long to find counts as there."""
        for collection, path in self._fields(kind):
            try:
                query = self._source[collection].find_one(
                    {path: value}, {"_id": 1}, max_time_ms=LOOK_MILLISECONDS
                )
                if await query is not None:
                    return True
            except ExecutionTimeout:
                return True
        return False

    async def typed(self, kind: IdKind, text: str) -> str:
        """As `read`, as typed text."""
        return typed(await self.read(kind, text), kind)

    async def typed_or_none(self, kind: IdKind, text: str | None) -> str | None:
        """As `typed`; None stays None."""
        return None if text is None else await self.typed(kind, text)

    async def sample(self, kind: IdKind) -> list[str]:
        """Return ids of the newest documents, typed, the newest first, each once."""
        found = [
            encoded
            for collection, path in self._fields(kind)
            for row in await found_documents(
                "directory", self._source[collection], {}, {path: 1}, sort=[("_id", -1)], limit=SAMPLE
            )
            for encoded in _ids(getter(path)(row))
        ]
        return list(dict.fromkeys(found))

    async def _types_of(self, kind: IdKind) -> frozenset[str]:
        until, types = self._types.get(kind, (0.0, frozenset[str]()))
        if monotonic() >= until:
            # what is known stays while it is read again
            self._types[kind] = monotonic() + EMPTY_SECONDS, types
            types = frozenset(encoded[0] for encoded in await self.sample(kind))
            self._types[kind] = monotonic() + (KEPT_SECONDS if types else EMPTY_SECONDS), types
        return types

    def _fields(self, kind: IdKind) -> Sequence[tuple[str, str]]:
        """Return the mapped collections and paths that hold ids of this kind."""
        mapped, messages = self._settings, self._settings.messages
        sessions, agents, users = mapped.sessions, mapped.agents, mapped.users
        fields: Mapping[IdKind, Sequence[tuple[str | None, str]]] = {
            "agent": [(sessions.collection, sessions.agent_id), (agents.collection, "_id")],
            "session": [(messages.collection, messages.session_id), (sessions.collection, sessions.id)],
            "user": [
                (messages.collection, messages.user_id),
                (sessions.collection, sessions.users),
                (users.collection, "_id"),
            ],
            "message": [(messages.collection, "_id")],
        }
        return [(collection, path) for collection, path in fields[kind] if collection is not None]


def _ids(value: Any) -> list[str]:
    """Return the typed ids in a field, which holds one or a list; what is no id is left out."""
    found: list[str] = []
    for each in cast("list[Any]", value) if isinstance(value, list) else [value]:
        try:
            found.append(encode_id(each))
        except (TypeError, UnicodeEncodeError):
            continue
    return found
