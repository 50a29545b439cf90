"""The memory that a mirror shows and changes: what a user sees, outside of sessions or in one."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bson import ObjectId
from pymongo.errors import BulkWriteError

from eden_memory.api.service import MemoryService
from eden_memory.app.memory import ProcessMemory
from eden_memory.errors import NotFound
from eden_memory.formation.memory_commands import added_reflection_id
from eden_memory.formation.secret_store import installation_secret
from eden_memory.imports.mirror_page import BLOB, normalised
from eden_memory.memory.browsing_store import scopes_of
from eden_memory.memory.fact_hash import fact_id
from eden_memory.memory.results import BlobView, FactView, MemoryChange, Page, ReflectionView
from eden_memory.mirror.merging import FileCommand, MirroredItem
from eden_memory.mongo.bson_ids import encode_id
from eden_memory.operations.command_requests import CommandRequests
from eden_memory.operations.inbox_requests import Asked
from eden_memory.schemas.scopes import Scope

T = TypeVar("T")
ALREADY_THERE = 11_000
MOST = 200
EVERYTHING = "e30"
"""The id of a change before the first one: all memory is reported."""
Shown = Mapping[str, Sequence[MirroredItem]]


@dataclass(frozen=True)
class MirrorRequests(CommandRequests):
    """Writes requests under an id that the mirror has noted: a repeat is not a second request."""

    request: ObjectId
    by = "mirror"

    def _fields(self, kind: str) -> dict[str, Any]:
        return {**super()._fields(kind), "_id": self.request}

    async def _write(self, asked: Sequence[Asked]) -> None:
        try:
            await super()._write(asked)
        except BulkWriteError as error:
            if any(wrong["code"] != ALREADY_THERE for wrong in error.details["writeErrors"]):
                raise


class MirroredMemory(MemoryService):
    """An agent's memory as a user sees it; `session` and `user` as the application has them."""

    def __init__(self, memory: ProcessMemory, agent_id: Any, session: Any = None, user: Any = None) -> None:
        super().__init__(agent_id, memory=memory, asked_by="eden mirror")
        self._named = {"session": session, "user": user}
        self._request = ObjectId()

    @property
    def agent_id(self) -> str:
        """The agent's typed id."""
        return self._agent_id

    @property
    def _requests(self) -> CommandRequests:
        return MirrorRequests(self.memory, self._agent_id, self._asked_by, self._request)

    async def secret(self) -> bytes:
        """Return the installation's secret, from which the key of the mirror's notes is made."""
        return await installation_secret(self.memory.database, self.memory.settings.names)

    def follow(self) -> AsyncGenerator[MemoryChange]:
        """Yield what is visible now, and then changes."""
        return self.changes(**self._named, after=EVERYTHING)

    async def shown(self) -> Shown:
        """Return the items of each visible scope, oldest first; a scope without a blob has an empty one."""
        asked, view, _ = await self._seen(**self._named)
        blobs = {blob.scope.key: blob for blob in await self.list_blobs(**self._named)}
        items = defaultdict[str, list[MirroredItem]](list)
        async for reflection in _all(self.list_reflections, absorbed=False, **self._named):
            items[reflection.scope.key].append(_reflection_item(reflection))
        async for fact in _all(self.list_facts, active=True, **self._named):
            items[fact.scope.key].append(_fact_item(fact))
        return {key: [_blob_item(blobs.get(key)), *reversed(items[key])] for key in scopes_of(asked, view)}

    async def forgotten(self, scope_key: str, memory_ids: Collection[str]) -> set[str]:
        """Return those of which nothing is left: facts, reflections, or versions of the scope's blob (`blob@3`)."""
        named = {name for name in memory_ids if name.startswith("blob@")}
        versions = {name for name in named if name[5:].isdecimal()}  # others a person wrote
        gone = {name for name in set(memory_ids) - named if not await self.is_known(name)}
        if not versions:
            return gone
        blobs = [blob for blob in await self.list_blobs(**self._named) if blob.scope.key == scope_key]
        kept = {earlier.version for blob in blobs for earlier in (blob, *blob.earlier)}
        oldest = min(kept, default=1)
        return gone | {
            name for name in versions if (number := int(name[5:])) >= oldest and number not in kept
        }

    async def is_known(self, memory_id: str) -> bool:
        """Return whether there is such a fact or reflection, active or not."""
        for look_up in (self.history, self.reflection):
            try:
                await look_up(memory_id, **self._named)
            except NotFound:
                continue
            return True
        return False

    async def send(self, scope: Scope, command: FileCommand, request: str) -> None:
        """Request a command under an id; EdenError if it cannot be carried out."""
        self._request = ObjectId(request)
        if command.action == "add":
            await self._add(scope, command)
            return
        target = scope.key if command.id == BLOB else command.id
        change: dict[str, Any] = {**self._named, "expected_version": command.version}
        if command.action == "edit":
            await self.edit(target, command.text, **change)
        else:
            await self.retire(target, **change)

    async def _add(self, scope: Scope, command: FileCommand) -> None:
        assert command.kind != "blob"
        await self.add(
            command.text, user=self._named["user"], scope=scope.kind, verbatim=True, kind=command.kind
        )

    async def was_added(self, scope: Scope, command: FileCommand, request: str) -> bool:
        """Return whether the request has led to its fact or reflection, whatever became of that since."""
        name = encode_id(ObjectId(request))
        added = fact_id(name, scope.key, 1) if command.kind == "fact" else added_reflection_id(name)
        return await self.is_known(added)


def _blob_item(blob: BlobView | None) -> MirroredItem:
    if blob is None:
        return MirroredItem("blob", BLOB, 0, "")
    return MirroredItem("blob", BLOB, blob.version, normalised("blob", blob.content), blob.pins)


def _fact_item(fact: FactView) -> MirroredItem:
    return MirroredItem("fact", fact.fact_id, fact.version, normalised("fact", fact.content))


def _reflection_item(reflection: ReflectionView) -> MirroredItem:
    text = normalised("reflection", reflection.content)
    return MirroredItem("reflection", reflection.reflection_id, reflection.version, text)


async def _all(listed: Callable[..., Awaitable[Page[T]]], **filters: Any) -> AsyncGenerator[T]:
    """Yield the items of all pages of a list."""
    cursor = None
    while True:
        page = await listed(**filters, limit=MOST, cursor=cursor)
        for item in page.items:
            yield item
        cursor = page.cursor
        if cursor is None:
            return
