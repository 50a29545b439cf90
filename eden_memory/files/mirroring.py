"""Follow memory and a folder of Markdown files, each of which takes the other's changes.

A round reads what has changed, merges each file with its memory, notes and sends the commands that the user's changes
call for, and writes the files. A mirror that starts after a kill finds in its notes the commands that it sent, and in
each file the memory that it was written from, so it sends the same commands again under the same ids.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from bson import ObjectId
from pymongo.errors import BulkWriteError, PyMongoError
from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType] - its stop_event

from eden_memory.api.service import MemoryService
from eden_memory.app.memory import ProcessMemory
from eden_memory.directory.secret_store import installation_secret
from eden_memory.errors import Conflict, EdenError, NotFound
from eden_memory.files.mirror_folder import ANSWERS, MirrorFolder, ScopeFile, SealedNotes, remove_others
from eden_memory.files.mirror_page import (
    BLOB,
    BaseItem,
    FileCommand,
    Merged,
    MirroredItem,
    MirrorPage,
    PageMerge,
    SentCommand,
    digest_of,
    normalised,
    parsed,
)
from eden_memory.formation.memory_commands import added_reflection_id
from eden_memory.logs import LibraryLogger
from eden_memory.memory.browsing_store import scopes_of
from eden_memory.memory.memory_batch import fact_id
from eden_memory.memory.memory_views import BlobView, FactView, MemoryChange, Page, ReflectionView
from eden_memory.mongo.ids import encode_id
from eden_memory.mongo.refusals import only_duplicates
from eden_memory.operations.inbox_requests import Asked, CommandRequests
from eden_memory.schemas.scopes import Scope
from eden_memory.tasks import run_until_first

log = LibraryLogger()


T = TypeVar("T")


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
            only_duplicates(error)


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


AGAIN_SECONDS = 1.0

SETTLED_SECONDS = 0.15

SETTLED_LOOKS, ABSENT_LOOKS = 1, 8

"""A changed file counts after this many equal looks; a missing or unfinished one may still be being written."""

DEBOUNCE_MS, LOOK_MS = 100, 1_000

UNASKED, PART = 3, 10

"""Facts and reflections that may be retired at once without `--accept`: UNASKED, or one in PART if that is more."""

GIT_LOOKS = 60

TRIES = 5


@dataclass(slots=True)
class FileMerge:
    """A scope's file, its text, and its merge with memory."""

    file: ScopeFile
    text: str | None
    merge: PageMerge
    merged: Merged

    def again(self, items: Sequence[MirroredItem], refused: Mapping[str, str]) -> None:
        """Merge with newer memory, and with what was refused."""
        self.merge = replace(self.merge, memory=items, sent=self.file.sent, refused=refused)
        self.merged = self.merge.merged()

    def retirements(self) -> list[FileCommand]:
        """Return the commands for what is missing in the file."""
        return [command for command in self.merged.commands if command.action == "retire"]


class Mirroring:
    """Mirrors memory to a folder; Conflict where a person has to decide.

    `accept`: what the files say at the start is meant, however much is missing; `restore`: it is discarded.
    """

    def __init__(
        self, memory: MirroredMemory, folder: MirrorFolder, *, accept: bool = False, restore: bool = False
    ) -> None:
        self._memory, self._folder = memory, folder
        self._accept, self._restore = accept, restore
        self._restored: set[str] = set()
        """The scopes whose files are restored: later edits of these are meant."""
        self._files: dict[str, ScopeFile] = {}
        self._notes: SealedNotes | None = None
        self._shown: Shown = {}
        self._sent_now: set[str] = set()
        self._due, self._stale = asyncio.Event(), True

    async def run(self) -> None:
        """Mirror until cancelled."""
        await run_until_first(*map(_through_outages, (self._follow_memory, self._follow_files, self._rounds)))

    async def _follow_memory(self) -> None:
        async with aclosing(self._memory.follow()) as changes:
            async for _ in changes:
                self._stale = True
                self._due.set()

    async def _follow_files(self) -> None:
        async for _ in awatch(
            self._folder.path,
            watch_filter=None,
            recursive=False,
            debounce=DEBOUNCE_MS,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
        ):
            self._due.set()

    async def _rounds(self) -> None:
        self._stale = True
        self._due.set()
        while True:
            await self._due.wait()
            self._due.clear()
            await self.round()

    async def round(self) -> None:
        """Bring files and memory together once."""
        self._folder.demand_there()
        fresh = self._stale
        if fresh:
            await self._read_memory()
        texts = {key: await self._settled(file) for key, file in self._files.items()}
        changed = not all(self._files[key].is_as_written(text) for key, text in texts.items())
        if not (changed or fresh):
            return
        self._folder.demand_there()
        self._demand_branch(changed=changed)
        merges = [self._merged(self._files[key], text) for key, text in texts.items()]
        self._demand_few_missing(merges)
        written = [await self._carry_out(merge) for merge in merges if merge.file.scope_key in self._files]
        if all(written):
            self._accept = self._restore = False

    async def _read_memory(self) -> None:
        """Read what is visible; files of scopes that are not, since whenever, go with their memory."""
        self._stale = False
        self._shown = await self._memory.shown()
        self._folder.demand_there()
        for key in self._files.keys() - self._shown.keys():
            del self._files[key]
        remove_others(self._folder.path, self._folder.own, self._shown)
        for key in self._shown.keys() - self._files.keys():
            self._files[key] = ScopeFile(self._folder.path, self._folder.own, key, await self._sealed())

    async def _sealed(self) -> SealedNotes:
        if self._notes is None:
            self._notes = SealedNotes(await self._memory.secret())
        return self._notes

    async def _settled(self, file: ScopeFile) -> str | None:
        """Return the file's text, once nobody is writing it."""
        text, same, looks = file.read(), 0, 0
        while not file.is_as_written(text):
            whole = text is not None and parsed(text) is not None
            if same >= (SETTLED_LOOKS if whole else ABSENT_LOOKS):
                break
            await asyncio.sleep(SETTLED_SECONDS)
            former, text, looks = text, file.read(), looks + 1
            busy = looks < GIT_LOOKS and self._folder.git_is_busy()
            same = same + 1 if text == former and not busy else 0
        return text

    def _demand_branch(self, *, changed: bool) -> None:
        if changed and self._folder.is_on_another_branch() and not (self._accept or self._restore):
            raise Conflict(f"another git branch is checked out at {self._folder.path}", ANSWERS)
        self._folder.note_branch()

    def _merged(self, file: ScopeFile, text: str | None) -> FileMerge:
        restore = self._restore and file.scope_key not in self._restored
        page = None if text is None or restore else parsed(text)
        base: Mapping[str, BaseItem] = {} if restore else self._base_of(file, text, page)
        merge = PageMerge(base, page, self._shown[file.scope_key], file.sent, {})
        return FileMerge(file, text, merge, merge.merged())

    def _base_of(self, file: ScopeFile, text: str | None, page: MirrorPage | None) -> Mapping[str, BaseItem]:
        if text is not None and (page is None or page.scope_key != file.scope_key):
            raise Conflict(f"{file.path} has lost its front matter, or its last line", ANSWERS)
        base = file.base(page)
        if base is None and self._accept:
            base = file.base(None)
        if base is None:
            raise Conflict(f"{file.path} holds no recent state of this mirror", ANSWERS)
        return base

    def _demand_few_missing(self, merges: Sequence[FileMerge]) -> None:
        """Raise Conflict if more than a tenth of all facts and reflections is to be retired at once."""
        missing = [(merge.file, command) for merge in merges for command in merge.retirements()]
        new = any(command.key not in file.sent for file, command in missing)
        known = sum(len(merge.merge.base.keys() - {BLOB}) for merge in merges)
        if new and not self._accept and len(missing) > max(UNASKED, known / PART):
            raise Conflict(
                f"{len(missing)} of {known} memories are missing in the files of {self._folder.path}", ANSWERS
            )

    async def _carry_out(self, merge: FileMerge) -> bool:
        """Send the file's changes, show the conflicts, and write the file; False if somebody changed it meanwhile."""
        file, key = merge.file, merge.file.scope_key
        refused: dict[str, str] = {}
        for _ in range(TRIES):
            before = len(refused)
            refused |= await self._send(merge)
            if len(refused) == before:
                break
            await self._read_memory()
            self._stale = True  # the other files have not seen it
            self._due.set()
            if key not in self._shown:
                return True
            merge.again(self._shown[key], refused)
        await self._show_conflicts(merge)
        written = file.write(merge.text, merge.merged)
        if written:
            self._restored.add(key)
            self._forget_settled(merge)
        else:
            self._due.set()
        return written

    async def _send(self, merge: FileMerge) -> dict[str, str]:
        """Send the commands that this process has not sent yet; return why some were refused."""
        file, refused = merge.file, dict[str, str]()
        scope = Scope.of_key(file.scope_key, self._memory.agent_id)
        new = {command.key: _sent(command) for command in merge.merged.commands}
        file.note_sent(new | file.sent)
        for command in merge.merged.commands:
            try:
                await self._send_once(scope, command, file.sent[command.key].request)
            except EdenError as error:
                refused[command.refusal] = error.what
                file.note_sent({name: sent for name, sent in file.sent.items() if name != command.key})
        return refused

    async def _send_once(self, scope: Scope, command: FileCommand, request: str) -> None:
        """Send a command, again only where an earlier process may have failed to."""
        if command.action == "add" and await self._memory.was_added(scope, command, request):
            raise Conflict("it was added, and has been changed or retired since")
        if request not in self._sent_now:
            await self._memory.send(scope, command, request)
            self._sent_now.add(request)

    async def _show_conflicts(self, merge: FileMerge) -> None:
        """Write the conflicts beside the file, and none about forgotten memory."""
        conflicts = merge.merged.conflicts
        named = {conflict.item for conflict in conflicts if conflict.item} | merge.file.conflicting()
        gone = await self._memory.forgotten(merge.file.scope_key, named)
        merge.file.drop_conflicts(gone.__contains__)
        if merge.file.add_conflicts([conflict for conflict in conflicts if conflict.item not in gone]):
            log.warning("a change was not taken", file=merge.file.conflicts.name)

    def _forget_settled(self, merge: FileMerge) -> None:
        """Forget the commands whose outcome the file shows."""
        waiting = {command.key for command in merge.merged.commands}
        waiting |= {f"{item.id}@{item.version}" for item in merge.merge.memory}
        file = merge.file
        file.note_sent({key: sent for key, sent in file.sent.items() if key in waiting})


def _sent(command: FileCommand) -> SentCommand:
    digest = "" if command.action == "retire" else digest_of(command.text)
    return SentCommand(command.version, digest, str(ObjectId()))


async def _through_outages(work: Callable[[], Awaitable[None]]) -> None:
    """Do the work again while MongoDB cannot be reached; EdenError if the folder cannot be used."""
    while True:
        try:
            return await work()
        except PyMongoError as error:
            log.warning("the mirror waits for MongoDB", reason=type(error).__name__)
            await asyncio.sleep(AGAIN_SECONDS)
        except OSError as error:
            raise EdenError(f"the folder cannot be used: {error.strerror}", "Nothing was retired.") from None
